"""Inputs for the law Twin of the loops that keep strings (see `kernel_inputs`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hotspare.table.loops import index, interning, text_collection
from hotspare.table.row_index import empty_index

Args = tuple[Any, ...]
Random = np.random.Generator


def _words(random: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns random byte strings of 0 to 70 bytes, some of them equal."""
    known = [random.integers(0, 256, random.integers(0, 70), np.uint8).tobytes() for _ in range(max(1, count // 2))]
    chosen = [known[random.integers(0, len(known))] for _ in range(count)]
    offsets = np.cumsum([0, *(len(word) for word in chosen)])
    return np.frombuffer(b"".join(chosen), np.uint8).copy(), offsets


def crowded_index() -> index.Index:
    """Returns an index whose first segment is full, without room for another."""
    crowded = empty_index()
    for slot in range(index.SEGMENT_ENTRIES_MAX):
        index.add(crowded, np.uint64(7 * slot), 1000 + slot)
    return crowded


def _texts(size: int) -> interning.InternedTexts:
    """Returns a table with a few strings in pages of 32 bytes, of which codes 2 and 5 are free, and room for `size` more bytes."""
    state, pages = np.zeros(interning.STATE_WIDTH, np.int64), 8 + size // 32
    state[[interning.COUNT, interning.END, interning.PAGE_BITS, interning.ROUND]] = 1, 32 * pages, 5, 2
    data, places, free = np.zeros(32 * pages, np.uint8), np.zeros((64, 2), np.int64), np.array([5, 2, 0])
    marks, page_bytes, emptied = np.zeros(64, np.uint8), np.zeros(pages, np.int64), np.zeros(pages, np.int64)
    texts = interning.InternedTexts(empty_index(), places, np.zeros(64, np.uint64), marks, free, data, page_bytes, emptied, state)
    known = [b"abc", b"two", b"x" * 40, b"", b"five", b"y" * 25]
    offsets = np.cumsum([0, *map(len, known)]).astype(np.int32)
    interning.intern_bytes(np.frombuffer(b"".join(known), np.uint8), offsets, 0, texts, np.zeros(len(known), np.int64))
    for code in (2, 5):
        index.drop(texts.by_text, index.place_of(texts.by_text, texts.hashes[code], code))
        interning.count_bytes(texts, texts.places[code, 0], texts.places[code, 1], -1)
        marks[code] = 0
    state[interning.FREE] = 2
    marks[[3, 6]] = 1
    return texts


def intern_bytes() -> Iterator[Args]:
    random = np.random.default_rng(20_240_607)
    for count, is_updating in ((1, 0), (5, 1), (40, 1)):
        data, offsets = _words(random, count)
        texts = _texts(len(data))
        texts.state[interning.IS_MARKING] = is_updating
        yield data, offsets.astype(np.int32), 0, texts, np.zeros(count, np.int64)
        yield np.frombuffer(b"yabcfive", np.uint8), np.array([1, 4, 8, 8], np.int32), 1, _texts(0), np.zeros(3, np.int64)
    yield data, offsets.astype(np.int32), 3, _texts(len(data))._replace(by_text=crowded_index()), np.zeros(count, np.int64)


def hash_bytes() -> Iterator[Args]:
    random = np.random.default_rng(20_240_607)
    for count in (0, 1, 40):
        data, offsets = _words(random, count)
        yield data, offsets.astype(np.int32), np.zeros(count, np.uint64)


def gather_bytes() -> Iterator[Args]:
    random = np.random.default_rng(20_240_607)
    data, offsets = _words(random, 12)
    places = np.column_stack([offsets[:-1], np.diff(offsets)])
    some = places[random.integers(0, 12, 30)]
    yield data, some, np.zeros(some[:, 1].sum(), np.uint8), np.zeros(31, np.int64)
    some = places[[0, 1, 2, 2, 3, 11, 4, 5, 6]]
    yield data, some, np.zeros(some[:, 1].sum(), np.uint8), np.zeros(10, np.int32)


def free_run() -> Iterator[Args]:
    page_bytes, kept = np.array([0, 0, 7, 0, 0, 0, 9, 0]), np.array([0, 0, 0, 0, 1, 0, 0, 0])
    for need, most in ((1, 9), (2, 2), (1, 1), (3, 9), (3, 3)):
        yield page_bytes, kept, need, most


def purge() -> Iterator[Args]:
    for stuck in (0, 1):
        texts = _texts(0)
        if stuck:
            texts = texts._replace(by_text=texts.by_text._replace(stuck=np.array([index.entry_of(np.uint64(7), 3)], np.uint64)))
            texts.by_text.sizes[index.STUCK] = 1
        for first, segments in ((0, 1), (0, 9)):
            yield texts, first, segments


def free_unmarked() -> Iterator[Args]:
    for first, looks in ((1, 100), (1, 18), (4, 2)):
        yield _texts(0), first, 7, looks, np.zeros(9, np.int64)


def copy_sparse() -> Iterator[Args]:
    for looks, room, end in ((100, 9, 32 * 8), (9, 9, 32 * 8), (100, 1, 32 * 8), (100, 9, 90)):
        texts = _texts(0)
        texts.state[interning.END] = end
        yield texts, np.ones(8, np.uint8), 1, 7, looks, np.zeros((room, 2), np.int64)


def redirect_moved() -> Iterator[Args]:
    for args in copy_sparse():
        text_collection.copy_sparse(*args)
        yield args[0], args[-1]
