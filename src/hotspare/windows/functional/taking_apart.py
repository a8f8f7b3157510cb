"""One input of a window that makes any number of events of each: its rows become what the window's index is asked for (SPEC A25).

An insert inserts the events that come of it, an update upserts those of the new values and deletes those that came of the old
values and of the new ones no more, a delete deletes those of its row. With an opcode function the event itself says it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hotspare.base.errors import Mistake, ProjectError
from hotspare.expressions.compiled import EVENT_FIELDS
from hotspare.expressions.programs import CompiledProgram, ComputedEvents, run_program
from hotspare.model.events import OPCODE_WORDS, Opcode
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.changelog import Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, UInt8s
from hotspare.rows.elementwise import cut_texts
from hotspare.rows.refusals import BadEvents, Refusals
from hotspare.table.lanes import to_lanes
from hotspare.table.strings import StringTable
from hotspare.windows.shared.contract import Input
from hotspare.windows.shared.keyed import bad_events
from hotspare.windows.shared.rowwise import BESIDE_FIELDS, field_columns, forgetful, read_of, unresolved
from hotspare.windows.shared.stateless import OF_EVENT, deletes, event_columns, reported

_OPCODES = {word: opcode for word, opcode in OPCODE_WORDS.items() if opcode is not Opcode.UPDATE_BLOCK} | {"s": Opcode.SAFE_DELETE}
_UNSAID = 0


class TakenApart(NamedTuple):
    """What the index is asked for, rising by rank; the input row that each event comes of; and the rows that are bad."""

    chunk: Chunk
    row: Int64s
    bad: BadEvents


class Taker:
    """Takes the rows of one input apart."""

    def __init__(self, window: ResolvedWindow, given: Input, program: CompiledProgram) -> None:
        self.given = given
        self.program = program
        self.schema = window.schema
        self._is_keyed = window.window.index is not IndexType.EMPTY
        names = given.schema.index
        self._read = read_of(given.schema, (*program.fields, *(n for n in self.schema.names if n in names)))
        self._of_event = tuple(n for n in program.fields if n in EVENT_FIELDS and n not in names)
        self.beside = tuple(name for name in program.fields if name in BESIDE_FIELDS)
        self._keys = self.schema.key_indexes
        self._text_bytes_max = window.window.text_bytes_max
        log = given.changelog
        if not self._is_keyed and log.opcodes is Opcodes.PUBLISHED:
            raise unresolved(window)
        self.resolved = log.computed_from() if self._is_keyed else log
        if self.resolved.opcodes is not Opcodes.INSERTS and program.opcode is None:
            self._check_repeatable(window)

    def _check_repeatable(self, window: ResolvedWindow) -> None:
        """The events of old values have to be found again."""
        if not self._is_keyed and any(name in OF_EVENT and name not in self.given.schema.index for name in self.program.fields):
            raise forgetful(window, "computes from the event itself", "compute from fields alone")
        of_event = {name for name in OF_EVENT if name not in self.given.schema.index}
        for where, reads in self._what_makes_keys():
            if of_event & reads:
                message = (
                    f"window {window.id} computes {where} from what an event is, not from its fields, and "
                    "rows are updated and deleted: "
                    "what was put out for a row cannot be found again"
                )
                hint = "compute keys from fields alone, make the source insert-only, or give the window an opcode"
                raise ProjectError(str(window.id), [Mistake(window.window.place, message, hint)])

    def _what_makes_keys(self) -> list[tuple[str, set[str]]]:
        """What decides which events there are and their keys, with all that it reads."""
        keys = {self.schema.fields[i].name for i in self._keys}
        found: list[tuple[str, set[str]]] = []
        for steps, what in ((self.program.own, "a key"), *((loop.steps, "a key of a loop") for loop in self.program.loops)):
            found += [(what, _reads(self.program, step.expression.fields)) for step in steps.outputs if step.name in keys]
        found += [("the elements of a loop", _reads(self.program, loop.items.fields)) for loop in self.program.loops]
        if self.program.generate is not None:
            found.append(("generate", _reads(self.program, self.program.generate.fields)))
        return found

    def take(self, now: Chunk, beside: Mapping[str, pa.Array], strings: StringTable) -> TakenApart:
        """Of whole rows, the two of an update block together; `beside`: columns of what is counted."""
        columns = event_columns(self._of_event, self.given.schema, now.opcode, now.flags) | field_columns(self._read, now, strings)
        ran = run_program(self.program, columns | dict(beside), len(now), self.schema)
        refused = reported([failures for failures in ran.failed if len(failures)], now.opcode)
        failed = np.zeros(len(now), np.bool_)
        for failures in ran.failed:
            failed[failures.rows] = True
        opcode, wrong = _opcodes(ran.opcode, len(now))
        wrong &= ~failed & ~deletes(now.opcode)
        said = Refusals.of(np.flatnonzero(wrong), np.zeros(int(wrong.sum()), np.int64), [(str(BadReason.OPCODE), _NO_OPCODE)])
        bad = bad_events(refused, now, self.given.schema, strings) + bad_events(said, now, self.given.schema, strings)
        chunk, row = self._asked(now, ran.made, opcode, failed | wrong, strings)
        return TakenApart(chunk, row, bad)

    def _asked(self, now: Chunk, made: ComputedEvents, opcode: UInt8s, failed: Bools, strings: StringTable) -> tuple[Chunk, Int64s]:
        """What the index is asked for: of each row what it says, old values after the new ones."""
        values = [cut_texts(made.values[f.name], self._text_bytes_max) for f in self.schema.fields]
        lanes, valid = to_lanes(values, self.schema, strings)
        is_old = np.zeros(len(now), np.bool_)
        blocks = np.flatnonzero(now.opcode == Opcode.UPDATE_BLOCK)
        is_old[blocks + 1] = True
        if self.program.opcode is not None:
            keeps = ~(failed | is_old | deletes(now.opcode))[made.row]
            said = opcode[made.row]
            asked = np.where(said == _UNSAID, _OF_ROW[now.opcode[made.row]], said)
        else:
            keeps = ~failed[made.row]
            asked = _OF_ROW[now.opcode[made.row]]
            keeps &= ~self._stays(made, lanes, valid, is_old, failed)
        rows = np.flatnonzero(keeps)
        row = made.row[rows]
        chunk = Chunk(
            now.rank[row], asked[rows].astype(np.uint8), now.flags[row], lanes.take(rows, axis=0), valid.take(rows, axis=0)
        )
        return chunk, row

    def _stays(self, made: ComputedEvents, lanes: Int64s, valid: Bools, is_old: Bools, failed: Bools) -> Bools:
        """Events of old values whose key the new values have, too."""
        old = is_old[made.row]
        stays = np.zeros(len(old), np.bool_)
        if not self._is_keyed or not old.any():
            return stays
        block = made.row - old
        fresh = ~old & ~failed[made.row]
        told = np.column_stack([block, *(lanes[:, i] for i in self._keys), *(valid[:, i].astype(np.int64) for i in self._keys)])
        _, number = np.unique(told, axis=0, return_inverse=True)
        number = number.ravel()
        new_ones = np.zeros(number.max(initial=0) + 1, np.bool_)
        new_ones[number[fresh]] = True
        found: Bools = old & new_ones[number]
        return found


_NO_OPCODE = "the opcode function gives no opcode: insert, update, upsert, delete or safedelete"
_OF_ROW = np.array(
    [
        {Opcode.UPDATE_BLOCK: Opcode.UPSERT, Opcode.DELETE: Opcode.SAFE_DELETE}.get(Opcode(i), Opcode(i)) if i else 0
        for i in range(max(Opcode) + 1)
    ],
    np.uint8,
)
"""By the opcode of a resolved event what its events ask the index for. A delete of what never came out is no mistake."""
PASSED = np.array(
    [
        {Opcode.UPSERT: Opcode.INSERT, Opcode.SAFE_DELETE: Opcode.DELETE}.get(Opcode(i), Opcode(i)) if i else 0
        for i in range(max(Opcode) + 1)
    ],
    np.uint8,
)
"""What becomes of it where there is no index: who is behind gets what came and what went."""


def _reads(program: CompiledProgram, names: Sequence[str]) -> set[str]:
    """All that these names are made of."""
    steps = {
        step.name: step.expression.fields for each in (program.own, *(loop.steps for loop in program.loops)) for step in each.all
    }
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            if name not in program.given:
                waiting += steps.get(name, ())
    return found


def _opcodes(texts: pa.Array | None, count: int) -> tuple[UInt8s, Bools]:
    """The opcode that each text says, _UNSAID where it is null; and where it says none."""
    said = np.full(count, _UNSAID, np.uint8)
    wrong = np.zeros(count, np.bool_)
    if texts is None:
        return said, wrong
    known = {text: _OPCODES.get(text.strip().lower()) for text in texts.unique().to_pylist() if text is not None}
    for row, text in enumerate(texts.to_pylist()):
        if text is not None:
            opcode = known[text]
            wrong[row] = opcode is None
            said[row] = _UNSAID if opcode is None else opcode
    return said, wrong
