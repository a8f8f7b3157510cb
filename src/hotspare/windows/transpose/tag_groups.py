"""The newest values of groups by tag, as a transpose window keeps them: a relation with a row per group.

A row observed is a partial upsert of its group. A null of a partial upsert leaves what was, so which values of a tag are null is a
number of its own, bit by bit. A group may be null in any field that it goes by: that, too, is a number, part of the key.

    group fields | which are null | tag 1: values | tag 2: values ... | tag 1: which are null | tag 2 ...
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from hotspare.model.events import Flag, Opcode
from hotspare.model.types import FieldType, Schema
from hotspare.rows import tuning
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.table.absent import WhenRead
from hotspare.table.lanes import CODED
from hotspare.table.loops import relation as k
from hotspare.table.relation import KEEP_ALL, Relation, Shape
from hotspare.table.strings import StringTable

_EMPTY_TEXT = pa.array([""], pa.string())


class TagGroups:
    """What is fixed about them; the groups themselves are a `Relation`."""

    def __init__(
        self, given: Schema, tag: str, tags: int, values: tuple[str, ...], group_by: tuple[str, ...], limit_us: int
    ) -> None:
        """Rows of the schema `given`, of so many tags; groups without a row for `limit_us` are forgotten, 0: none are."""
        self._tag = given.index[tag]
        self._tags = tags
        self._values = [given.index[name] for name in values]
        self._by = [given.index[name] for name in group_by]
        types = [f.type for f in given.fields]
        self._coded = [types[i] in CODED for i in self._by]
        self._doubles = tuple(i for i in self._by if types[i] is FieldType.DOUBLE)
        self._first = len(self._by) + 1
        self._nulls = self._first + tags * len(values)
        coded = [i for i, is_coded in enumerate(self._coded) if is_coded]
        coded += [self._first + t * len(values) + v for t in range(tags) for v, i in enumerate(self._values) if types[i] in CODED]
        self.rows_max = max(1, tuning.current().transposed_lanes // (self._nulls + tags))
        """So many rows are best observed together."""
        self._shape = Shape(self._nulls + tags, tuple(range(self._first)), tuple(coded))
        self._policy = k.Policy(k.TIME_SLIDING, limit_us, limit_us, 0, 0, 0) if limit_us else KEEP_ALL

    def relation(self) -> Relation:
        """Without a group."""
        return Relation(self._shape, self._policy, reading=WhenRead.AT_USE)

    def observe(
        self, groups: Relation, given: Chunk, timeline: Timeline, tags: Int64s, strings: StringTable
    ) -> tuple[Int64s, Bools]:
        """Take rows, in order; lanes and validity of all values of each one's group after it, tag by tag. `tags`: the codes of the
        tags; rows with another one, or null, change nothing. `timeline` has no heartbeats."""
        resolution = groups.apply(self._upserts(given, tags, strings), timeline)
        _, slots = resolution.arrived()
        lanes, valid = groups.lanes[slots], groups.valid[slots]
        groups.forget_outputs()
        found, has = lanes[:, self._first : self._nulls], valid[:, self._first : self._nulls]
        width = len(self._values)
        for value in range(width):
            has[:, value::width] &= (lanes[:, self._nulls :] >> value) & 1 == 0
        return np.where(has, found, 0), has

    def _upserts(self, given: Chunk, tags: Int64s, strings: StringTable) -> Chunk:
        count = len(given)
        given = given.with_plain_doubles(self._doubles)
        lanes, valid = np.zeros((count, self._shape.width), np.int64), np.zeros((count, self._shape.width), np.bool_)
        valid[:, : self._first] = True
        for at, (column, is_coded) in enumerate(zip(self._by, self._coded, strict=True)):
            is_null = ~given.valid[:, column]
            lanes[:, at] = given.lanes[:, column]
            if is_null.any():
                lanes[is_null, at] = strings.intern(_EMPTY_TEXT)[0][0] if is_coded else 0
                lanes[:, self._first - 1] |= is_null.astype(np.int64) << at
        number = _numbers(given.lanes[:, self._tag], tags)
        rows = np.flatnonzero((number >= 0) & given.valid[:, self._tag])
        number, nulls = number[rows], np.zeros(len(rows), np.int64)
        for value, column in enumerate(self._values):
            to, has = self._first + number * len(self._values) + value, given.valid[rows, column]
            lanes[rows, to], valid[rows, to] = np.where(has, given.lanes[rows, column], 0), has
            nulls |= (~has).astype(np.int64) << value
        lanes[rows, self._nulls + number], valid[rows, self._nulls + number] = nulls, True
        opcode = np.full(count, Opcode.UPSERT, np.uint8)
        return Chunk(given.rank, opcode, np.full(count, Flag.NORMAL | Flag.PARTIAL, np.uint8), lanes, valid)


def _numbers(lane: Int64s, codes: Int64s) -> Int64s:
    """The place of each value among the codes, -1 where it is none of them."""
    order = np.argsort(codes, kind="stable")
    at = np.minimum(np.searchsorted(codes[order], lane), len(codes) - 1)
    return np.where(codes[order][at] == lane, order[at], -1)
