"""Writes the contents of a snapshot to a store: only contents that are not stored yet, in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TypeAlias, TypeVar

from hotspare.stores import limits
from hotspare.stores.content import Blob, blob_of
from hotspare.stores.contract import Content

_T = TypeVar("_T")
Given: TypeAlias = bytes | Content
CONTENTS_PER_CALL = 16
"""The number of contents in a batch, which one call looks up or reads."""
HEADER = ""
"""The name of the header in mappings from page names; names of pages are never empty."""


class NewContent:
    """A `Content` that no store has yet. `make` builds the bytes when they are written, so that only a batch of them is in
    memory."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self.store_key: object = None

    def set_store_key(self, known: object) -> None:
        self.store_key = known

    def encode(self) -> bytes:
        return self._make()


def copied_pages(pages: Mapping[str, bytes]) -> Iterator[tuple[str, Content]]:
    """Yields the pages of another store's snapshot for `Store.write_candidate`; each page is read only when it is written."""
    for name in pages:
        yield name, NewContent(partial(pages.__getitem__, name))


def in_batches(items: Iterable[_T], count: int = CONTENTS_PER_CALL) -> Iterator[list[_T]]:
    left = iter(items)
    while part := list(islice(left, count)):
        yield part


def checked_contents(snapshot: str, header: bytes, pages: Iterable[tuple[str, Given]]) -> dict[str, Given]:
    """Returns header and pages by name. Raises UsageError or StoreError for invalid names."""
    given: dict[str, Given] = {HEADER: header}
    for page, content in pages:
        limits.check_name("page", page)
        if page in given:
            raise limits.duplicate_page(snapshot, page)
        given[page] = content
    return given


def write_new(
    given: Mapping[str, Given], hold: Callable[[set[str]], set[str]], write: Callable[[str, bytes], object]
) -> dict[str, Blob]:
    """Writes the contents that are not stored yet; returns the blob of each by page name. `hold(hashes)` returns the hashes that
    are stored, and protects their contents from collectors; `write(hash, content)` stores a content and protects it."""
    blobs: dict[str, Blob] = {}
    for some in in_batches(given.items()):
        known = {page: blob for page, content in some if (blob := _known(content)) is not None}
        there = hold({blob.hash for blob in known.values()})
        new: dict[str, bytes] = {}
        for page, content in some:
            if page in known and known[page].hash in there:
                blobs[page] = known[page]
                continue
            encoded = content if isinstance(content, bytes) else content.encode()
            blobs[page] = blob_of(encoded)
            new[blobs[page].hash] = encoded
            if not isinstance(content, bytes):
                content.set_store_key(blobs[page])
        for each in sorted(new.keys() - hold(set(new))):
            write(each, new[each])
    return blobs


def _known(content: Given) -> Blob | None:
    known = None if isinstance(content, bytes) else content.store_key
    return known if isinstance(known, Blob) else None
