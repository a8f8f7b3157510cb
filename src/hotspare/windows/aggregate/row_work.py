"""A work over chunks of one schema, without any state: what an operator computes of events before or behind what it remembers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from hotspare.model.types import Schema
from hotspare.rows.chunk import Bools, Chunk
from hotspare.rows.refusals import NOTHING_REFUSED, Refusals
from hotspare.table.lanes import CODED, to_arrow
from hotspare.table.loops.columns import pick_columns
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.windows.shared.few_rows import FewRows
from hotspare.windows.shared.rowwise import evaluate_pieces
from hotspare.windows.shared.stateless import Work, event_columns


class RowWork:
    """`work` over chunks of the schema `given`; what comes of it is of the schema `made`."""

    def __init__(self, given: Schema, made: Schema, work: Work) -> None:
        self.work = work
        self._given, self._made = given, made
        self._few = FewRows(work, given)
        self._picks = np.array(work.picks, np.int64)
        self._passes_all = work.picks == tuple(range(len(given)))
        fields, index = given.fields, given.index
        self._read = tuple((name, index[name], fields[index[name]].type) for name in work.fields if name in index)
        self._texts = tuple(i for _, i, type_ in self._read if type_ in CODED)
        self._of_event = tuple(name for name in work.fields if name not in index)

    def evaluated(
        self, given: Chunk, strings: StringTable, counted: Mapping[str, pa.Array] | None = None
    ) -> tuple[Chunk, Bools, Refusals]:
        """Rows of the schema `made`, those that do not pass as well; who passes; who is refused. `counted`: columns beside fields,
        opcode and flags."""
        made = given if self._passes_all else self._laid_out(given)
        if (passes := self._few.passing(given, made)) is not None:
            return made, passes, NOTHING_REFUSED

        def columns(begin: int, end: int) -> dict[str, pa.Array]:
            beside = {name: column.slice(begin, end - begin) for name, column in (counted or {}).items()}
            return self._columns(given.between(begin, end), strings) | beside

        pieces = text_pieces(given.lanes, self._texts, strings)
        passes, refused = evaluate_pieces(self.work, pieces, columns, made, self._made, strings)
        return made, passes, refused

    def _columns(self, chunk: Chunk, strings: StringTable) -> dict[str, pa.Array]:
        columns = event_columns(self._of_event, self._given, chunk.opcode, chunk.flags) if self._of_event else {}
        for name, i, type_ in self._read:
            columns[name] = to_arrow(chunk.lanes[:, i], chunk.valid[:, i], type_, strings)
        return columns

    def _laid_out(self, chunk: Chunk) -> Chunk:
        """Rows of the schema `made`, nothing computed yet."""
        lanes = np.empty((len(chunk), len(self._made)), np.int64)
        valid = np.empty((len(chunk), len(self._made)), np.bool_)
        pick_columns(chunk.lanes, chunk.valid, self._picks, lanes, valid)
        return Chunk(chunk.rank, chunk.opcode, chunk.flags, lanes, valid, chunk.is_whole)
