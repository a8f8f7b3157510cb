"""Remove-state window (SPEC A31): events of a table as a stream of inserts, numbered 1, 2, 3 ...

An update block is one event: its insert has the new values, and the old ones are dropped. Dropped events have no number. The count
is state, so it continues after a restore; shard k of a project counts from k * 2**48.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.model.events import Flag, Opcode
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.changelog import DISTINCT
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline, UInt8s
from hotspare.rows.letters import FLAG_TEXTS, OPCODE_TEXTS
from hotspare.table.loops.columns import pick_columns
from hotspare.table.pages import Counters, Page
from hotspare.table.strings import StringTable
from hotspare.windows.remove_state.declaration import LogFields, Removed, RemoveStateWindow
from hotspare.windows.shared.contract import SHARD_BITS, Operator, OperatorInput, OperatorResult

COUNTER = "counter"
"""Part of the page: the count of numbered events."""

_IS_UPDATE = np.isin(np.arange(len(Opcode) + 1), [Opcode.UPDATE, Opcode.UPDATE_BLOCK])
_IS_DELETE = np.isin(np.arange(len(Opcode) + 1), [Opcode.DELETE, Opcode.SAFE_DELETE])
_OF_RETENTION = (np.arange(sum(Flag) + 1) & Flag.RETENTION) != 0


class RemoveStateOperator(Operator):
    """Numbers events. Keys are unique and rows never change, so it keeps no rows, whatever its index."""

    output_changelog = DISTINCT

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(RemoveStateWindow, window.window)
        self._drops = _dropped(declared.removed)
        self._logs = declared.log_fields is LogFields.ADDED
        made, width = len(declared.added_fields), len(self.inputs[0].schema)
        self._picks = np.array([-1] * made + list(range(width)), np.int64)

    def open(self) -> Page:
        return Page({COUNTER: Counters(1)})

    def initialize_shard(self, page: Page, shard: int) -> None:
        cast(Counters, page.parts[COUNTER]).values[0] = shard << SHARD_BITS

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (given,) = inputs
        if not len(given):
            return OperatorResult(Chunk.empty(len(self.schema)))
        passes = ~self._drops[given.opcode, given.flags]
        passes[np.flatnonzero(given.opcode == Opcode.UPDATE_BLOCK) + 1] = False
        rows = np.flatnonzero(passes)
        some = given.copied_rows(rows)
        counter = cast(Counters, page.parts[COUNTER]).values
        lanes = np.empty((len(rows), len(self.schema)), np.int64)
        valid = np.empty((len(rows), len(self.schema)), np.bool_)
        pick_columns(some.lanes, some.valid, self._picks, lanes, valid)
        lanes[:, 0] = np.arange(counter[0] + 1, counter[0] + len(rows) + 1)
        counter[0] += len(rows)
        valid[:, 0] = True
        if self._logs and len(rows):
            for column, texts, numbers in ((1, OPCODE_TEXTS, some.opcode), (2, FLAG_TEXTS, some.flags)):
                lanes[:, column] = _codes(texts, numbers, strings)
                valid[:, column] = True
        opcode = np.full(len(rows), Opcode.INSERT, np.uint8)
        return OperatorResult(Chunk(some.rank, opcode, np.full(len(rows), Flag.NORMAL, np.uint8), lanes, valid, is_whole=True))


def _dropped(removed: Sequence[Removed]) -> Bools:
    """Returns bool[opcode, flags]: whether an event with this opcode and these flags is dropped."""
    updates, deletes, by_retention = _IS_UPDATE[:, None], _IS_DELETE[:, None], _OF_RETENTION[None, :]
    kinds = {
        Removed.UPDATES: updates & ~by_retention,
        Removed.DELETES: deletes & ~by_retention,
        Removed.RETENTION_UPDATES: updates & by_retention,
        Removed.RETENTION_DELETES: deletes & by_retention,
    }
    drops = np.zeros((len(Opcode) + 1, sum(Flag) + 1), np.bool_)
    for each in removed:
        drops |= kinds[each]
    return drops


def _codes(texts: pa.Array, numbers: UInt8s, strings: StringTable) -> Int64s:
    """Returns the codes of `texts[numbers]`. Only texts that are used are interned."""
    used, place = np.unique(numbers, return_inverse=True)
    codes, _ = strings.intern(texts.take(pa.array(used)))
    return codes[place]
