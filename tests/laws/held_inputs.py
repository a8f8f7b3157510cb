"""Inputs of the kernels of rows that wait for a pulse, for the law Twin: random changelogs, in small pages, folded and not."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np

from hotspare.model.events import Opcode
from hotspare.stages.loops import held as k
from hotspare.table.loops import relation as relation_kernels
from hotspare.table.loops import slots
from hotspare.table.relation import Relation, Shape

Args = tuple[Any, ...]
POLICY = relation_kernels.Policy(relation_kernels.COUNT_SLIDING, 2**62, 1, 0, 0)
SHAPES = (k.EntryShape(2, 2, 4, 6), k.EntryShape(2, 3, 6, 9), k.EntryShape(2, 0, 2, 3))


def _relation(shape: k.EntryShape) -> Relation:
    """Returns a relation in small pages, so that rows are moved."""
    width, key = (shape.flags + shape.images - 1, 0) if shape.images else (shape.width + k.EVENT_FIELDS, shape.width + 2)
    relation = Relation(Shape(width, (key,), ()), POLICY)
    relation.pages.page_slots = 2
    relation.pages.rows.state[[slots.PAGE_SLOTS, slots.SPARE]] = 2, 0
    return relation


def _events(random: np.random.Generator, count: int, first: int) -> k.EventArrays:
    opcode = random.choice(np.array([Opcode.INSERT, Opcode.DELETE, Opcode.UPDATE_BLOCK], np.uint8), count)
    opcode[-1] = Opcode.INSERT
    for i in np.flatnonzero(opcode[:-1] == Opcode.UPDATE_BLOCK).tolist():
        opcode[i + 1] = Opcode.DELETE
    lanes = np.column_stack([random.integers(0, 3, count), random.integers(0, 9, count)])
    valid = random.random((count, 2)) < 0.9
    flags = random.choice([1, 4], count).astype(np.uint8)
    return k.EventArrays(opcode, flags, lanes * valid, valid, np.array([0]), np.arange(first, first + count).reshape(-1, 1))


class Kind(Enum):
    FOLDED = "folded"
    KEPT = "kept"


def _given(kind: Kind) -> Iterator[Args]:
    """Yields (rows, policy, shape, events, until, refused, counts), until all events are processed."""
    random = np.random.default_rng(20_261_123)
    for shape in SHAPES[:2] if kind is Kind.FOLDED else SHAPES[2:]:
        relation = _relation(shape)
        for first in (0, 20, 40):
            events, counts, refused = _events(random, 20, first), np.zeros(k.COUNTS_WIDTH, np.int64), np.zeros((20, 2), np.int64)
            while counts[k.AT] < 20:
                args = (relation.pages.rows, POLICY, shape, events, np.int64(20), refused, counts)
                yield args
                if kind is Kind.FOLDED:
                    k.fold_events(*args)
                else:
                    k.append_events(*args[:5], counts)
                relation.pages.make_room()
            k.release_entries(relation.pages.rows, POLICY, shape, _room(13), np.int64(9))


def _room(size: int) -> k.ReleasedRows:
    opcode, flags = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    return k.ReleasedRows(opcode, flags, np.zeros((size, 2), np.int64), np.zeros((size, 2), np.bool_))


def fold_events() -> Iterator[Args]:
    return map(_copy, _given(Kind.FOLDED))


def append_events() -> Iterator[Args]:
    for *args, _, counts in map(_copy, _given(Kind.KEPT)):
        yield *args, counts


def let_go() -> Iterator[Args]:
    for kind in Kind:
        for rows, policy, shape, *_ in _given(kind):
            for room in (0, 1, 100):
                yield _copy((rows, policy, shape, _room(room + 4), np.int64(room)))


def _copy(part: Any) -> Any:
    if isinstance(part, tuple):
        items = [_copy(item) for item in part]
        return type(part)(*items) if hasattr(part, "_fields") else tuple(items)
    return part.copy() if isinstance(part, np.ndarray) else part
