"""Calls of people's code for the open matches of a pattern window, one event after the other (see `windows.pattern.code`).

For an event the functions of all matches that wait for it are called first, in the order in which the matches came to where they
are, then those of a match that the event may begin; then, as matches become complete, the function that makes their outputs. So
what code keeps in its variables does not depend on how input is cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.model.events import Opcode
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.scripting.contract import CodeFailure, Value, event_values
from hotspare.scripting.part import CodeState
from hotspare.table.lanes import to_arrow, to_arrow_columns, to_lanes
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Counters, Page, Part
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.windows.pattern.code import Answers, PatternCode
from hotspare.windows.pattern.columns import OrderedEvents
from hotspare.windows.pattern.loops import pattern_logic as k
from hotspare.windows.pattern.loops.pattern import asked_of
from hotspare.windows.pattern.patterns import WindowPattern
from hotspare.windows.pattern.program import PatternPlan
from hotspare.windows.shared.code_operator import Moments
from hotspare.windows.shared.keyed import bad_events

MATCHES, CALLS = "matches", "calls"
"""Parts of the page: open matches; how many calls there were."""
_NONE = np.full(1, k.NONE, np.int64)


class PatternCalls:
    """Of the patterns of a window that have code."""

    def __init__(
        self, window: ResolvedWindow, patterns: Sequence[WindowPattern], plan: PatternPlan, inputs: Sequence[Schema]
    ) -> None:
        self._plan, self._schema, self._inputs = plan, window.schema, inputs
        self._others = [i for i, each in enumerate(window.schema.fields) if not each.is_key]
        self._moments = Moments(window.id)
        self._codes = {
            p: PatternCode(
                f"window {window.id}, pattern {pattern.name}",
                pattern,
                [event.name for event in plan.conditions[p].events],
                window.modules,
                window.schema,
            )
            for p, pattern in enumerate(patterns)
            if pattern.script is not None
        }

    def __contains__(self, p: int) -> bool:
        return p in self._codes

    def parts(self) -> dict[str, Part]:
        """What belongs into the page."""
        parts: dict[str, Part] = {_part(p): CodeState(each.program) for p, each in self._codes.items()}
        return parts | {CALLS: Counters(1)} if parts else {}

    def answer(
        self, page: Page, slots: Int64s, taking: OrderedEvents, work: k.MatchWork, timeline: Timeline, strings: StringTable
    ) -> BadEvents:
        """Say for which of the matches in `slots`, and whether for one that it begins, the event under way is of interest. What is
        refused."""
        matches = cast(MultiIndex, page.parts[MATCHES])
        rows, program = matches.rows.pages.rows, self._plan.program
        e, p = int(work.counts[k.EVENT]), int(work.counts[k.AT])
        slots = slots[rows.time[slots] > taking.events.time[e]]
        slots = np.concatenate((slots[np.argsort(rows.order[slots], kind="stable")], _NONE))
        bits = np.empty(len(slots), np.int64)
        asked_of(rows, program, p, slots, work, bits)
        bits &= taking.events.masks[p, e] & k.EVENT_BITS
        number, row = int(taking.number[e]), int(taking.row[e])
        count = sum(int(mask).bit_count() for mask in bits.tolist())
        moments = self._moments.of(int(work.counts[k.RANK]), count, cast(Counters, page.parts[CALLS]).values, timeline)
        answers = self._codes[p].answers(
            cast("CodeState[None]", page.parts[_part(p)]).running(),
            self._event(taking.chunks[number].between(row, row + 1), self._inputs[number], strings),
            self._kept(matches, p, slots, strings),
            bits.tolist(),
            moments,
        )
        self._write(answers, slots, p, e, taking, work, strings)
        if answers.failed is None:
            return NO_BAD_EVENTS
        return _refused(answers.failed, taking.chunks[number], row, self._inputs[number], strings)

    def put_out(self, page: Page, out: k.Made, work: k.MatchWork, timeline: Timeline, strings: StringTable) -> BadEvents:
        """Make the last output, of the match in `work`, or take it away; what is refused."""
        p, at, rank = int(work.counts[k.COMPLETE]) - 1, int(work.counts[k.MADE]) - 1, int(work.counts[k.RANK])
        work.counts[k.COMPLETE] = 0
        place = int(self._plan.program.patterns[p, k.OF_CODE])
        kept = to_arrow(work.lanes[:1, place], work.valid[:1, place], FieldType.BLOB, strings)[0].as_py()
        (moment,) = self._moments.of(rank, 1, cast(Counters, page.parts[CALLS]).values, timeline)
        try:
            instance = cast("CodeState[None]", page.parts[_part(p)]).running()
            made = self._codes[p].output(instance, kept or b"", moment)
        except CodeFailure as failure:
            work.counts[k.MADE] = at
            lanes, valid = np.zeros((1, len(self._schema)), np.int64), np.zeros((1, len(self._schema)), np.bool_)
            opcode, flags = np.full(1, Opcode.INSERT, np.uint8), np.zeros(1, np.uint8)
            nothing = Chunk(np.array([rank]), opcode, flags, lanes, valid, is_whole=True)
            return _refused(failure, nothing, 0, self._schema, strings)
        if made is None:
            work.counts[k.MADE] = at
            return NO_BAD_EVENTS
        others = Schema(tuple(self._schema.fields[i] for i in self._others))
        lanes, valid = to_lanes(made.columns, others, strings)
        out.lanes[at, self._others], out.valid[at, self._others] = lanes[0], valid[0]
        return NO_BAD_EVENTS

    def _event(self, chunk: Chunk, schema: Schema, strings: StringTable) -> Mapping[str, Value]:
        return event_values(schema, to_arrow_columns(chunk.lanes, chunk.valid, schema, strings), 1)[0]

    def _kept(self, matches: MultiIndex, p: int, slots: Int64s, strings: StringTable) -> Iterator[bytes | None]:
        """What each match keeps, piece by piece; of the last, which has not begun, nothing."""
        rows, place = matches.rows.pages.rows, int(self._plan.program.patterns[p, k.OF_CODE])
        lanes, valid = rows.lanes[slots[:-1], place], rows.valid[slots[:-1], place]
        for begin, end in text_pieces(lanes.reshape(-1, 1), [0], strings):
            yield from to_arrow(lanes[begin:end], valid[begin:end], FieldType.BLOB, strings).to_pylist()
        yield None

    def _write(
        self, answers: Answers, slots: Int64s, p: int, e: int, taking: OrderedEvents, work: k.MatchWork, strings: StringTable
    ) -> None:
        true = [i for i, bits in enumerate(answers.truth) if bits]
        keeps = np.zeros(len(slots), np.int64)
        keeps[true] = strings.intern(pa.array([answers.keeps[i] for i in true], pa.binary()))[0]
        work.truth[slots[:-1]], work.keeps[slots[:-1]] = answers.truth[:-1], keeps[:-1]
        taking.events.fresh[p, e], work.counts[k.FRESH] = answers.truth[-1], keeps[-1]


def _part(p: int) -> str:
    return f"code {p}"


def _refused(failure: CodeFailure, chunk: Chunk, row: int, schema: Schema, strings: StringTable) -> BadEvents:
    refused = Refusals.of(np.array([row]), np.zeros(1, np.int64), [(str(failure.reason), failure.text)])
    return bad_events(refused, chunk, schema, strings)
