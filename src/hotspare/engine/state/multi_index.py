"""Rows by key and, several together, by the fields of a condition, as a part of a page: what a join keeps of one side.

It takes events that are resolved: inserts of new keys, update blocks, deletes. Rows that agree in the fields of the condition are
met in order of arrival; a row that changes keeps its place, unless these fields change. Null agrees with nothing.
"""

from __future__ import annotations

import weakref

import numpy as np

from hotspare.engine.kernels import multi_index as k
from hotspare.engine.kernels.interning import mark_codes
from hotspare.engine.rows.chunk import Bools, Int64s
from hotspare.engine.state.pages import Column, Columns, expect
from hotspare.engine.state.relation import Shape
from hotspare.errors import SnapshotDamaged

_CAPACITY_MIN = 64


class MultiIndex:
    """`store` is what kernels work on, after `reserve`; after `settle` slots that were given up are used again.

    A snapshot shares the buffers; the next `reserve` copies them as long as it needs them.
    """

    def __init__(self, shape: Shape, conditions: tuple[int, ...]) -> None:
        self._shape = shape
        self._conditions = np.array(conditions, np.int64)
        self._twins: list[weakref.ref[MultiIndex]] = []
        self.store = self._fresh(0)

    @property
    def live(self) -> int:
        return int(self.store.state[k.LIVE])

    def reserve(self, count: int) -> None:
        """Make room for `count` more versions of rows, in buffers of one's own."""
        store, capacity = self.store, len(self.store.lanes)
        if not count:
            return
        if int(store.state[k.HIGH]) + count > capacity:
            self._fill(*self._rows(), count)
        elif any(ref() is not None for ref in self._twins):
            self.store = k.Store(**{name: array.copy() for name, array in store._asdict().items()})
        self._twins = []

    def settle(self) -> None:
        store = self.store
        free, freed = int(store.state[k.FREE]), int(store.state[k.FREED])
        store.free[free : free + freed] = store.freed[:freed]
        store.state[k.FREE] = free + freed
        store.state[k.FREED] = 0

    def freeze(self) -> MultiIndex:
        twin = MultiIndex.__new__(MultiIndex)
        twin._shape, twin._conditions, twin._twins = self._shape, self._conditions, []
        twin.store = self.store._replace(state=self.store.state.copy())
        self._twins = [ref for ref in self._twins if ref() is not None]
        self._twins.append(weakref.ref(twin))
        return twin

    def columns(self) -> Columns:
        lanes, valid = self._rows()
        return {"lanes": Column(lanes, self._shape.codes), "valid": Column(valid)}

    def load(self, columns: Columns) -> None:
        lanes = expect(columns, "lanes", np.dtype(np.int64), (-1, self._shape.width)).array
        valid = expect(columns, "valid", np.dtype(np.bool_), (len(lanes), self._shape.width)).array
        if not valid[:, list(self._shape.keys)].all():
            raise SnapshotDamaged("a page holds a row without a key")
        self._twins = []
        self._fill(lanes, valid, 0)

    def mark(self, used: Bools) -> None:
        for column in self._shape.codes:
            mark_codes(self.store.lanes[: int(self.store.state[k.HIGH]), column], used)

    def recode(self, codes: Int64s) -> None:
        lanes, valid = self._rows()
        for column in self._shape.codes:
            lanes[:, column] = codes[lanes[:, column]]
        self._twins = []
        self._fill(lanes, valid, 0)

    def _rows(self) -> tuple[Int64s, Bools]:
        """Copies of lanes and valid, in order of arrival."""
        store = self.store
        arrivals = store.meta[: int(store.state[k.HIGH]), k.ARRIVAL]
        order = np.argsort(arrivals, kind="stable")[len(arrivals) - self.live :]
        return store.lanes[order], store.valid[order]

    def _fill(self, lanes: Int64s, valid: Bools, more: int) -> None:
        """Fresh structures with these rows, and room for `more`."""
        count = len(lanes)
        self.store = self._fresh(count + more)
        self.store.lanes[:count] = lanes
        self.store.valid[:count] = valid
        k.fill_store(self.store, np.int64(count))

    def _fresh(self, rows: int) -> k.Store:
        """Empty, with room for half as many again."""
        capacity = max(_CAPACITY_MIN, rows + rows // 2)
        entries = 1 << (2 * capacity - 1).bit_length()
        return k.Store(
            by_key=np.zeros(entries, np.uint64),
            by_condition=np.zeros(entries, np.uint64),
            lanes=np.zeros((capacity, self._shape.width), np.int64),
            valid=np.zeros((capacity, self._shape.width), np.bool_),
            meta=np.full((capacity, k.META_WIDTH), -1, np.int64),
            free=np.empty(capacity, np.int64),
            freed=np.empty(capacity, np.int64),
            state=np.zeros(k.STATE_WIDTH, np.int64),
            keys=np.array(self._shape.keys, np.int64),
            conditions=self._conditions,
        )
