"""User code in a pattern (SPEC A30): functions that decide which events are of interest, and a function that makes the output.

    event, match ──► function(event, context) ──► true or false, and values that the match keeps
    match        ──► output(context)          ──► an event, or nothing

`context.data` has the values that a match keeps, `context.events` its events by their names: the newest, or a list of all if the
logic counts them. The state of a match is one text in its row, so it is in snapshots, and no two matches share it. Functions see
the state from before the event, independent of other functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.code import Module
from hotspare.model.events import Opcode
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.chunk import Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.scripting.canonical_bytes import TooManyBytes, UnkeptValue, decode, encode
from hotspare.scripting.code_state import CodeState
from hotspare.scripting.contract import (
    NO_OPCODE,
    CodeFailure,
    EventBuilder,
    Instance,
    OutputEvents,
    Program,
    ProgramText,
    TimeAndSeed,
    Value,
    event_dicts,
    expect_boolean,
    plain_copy,
)
from hotspare.scripting.fields import describe_kind
from hotspare.scripting.languages import compile_user_code
from hotspare.table.lanes import to_arrow, to_arrow_columns, to_lanes
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Counters, Page, Part
from hotspare.table.strings import StringTable
from hotspare.table.text_pieces import text_pieces
from hotspare.windows.pattern.columns import OrderedEvents
from hotspare.windows.pattern.logic import Event, Logic
from hotspare.windows.pattern.loops import pattern_logic as k
from hotspare.windows.pattern.loops.pattern import collect_awaited_events
from hotspare.windows.pattern.patterns import WindowPattern
from hotspare.windows.pattern.program import PatternPlan
from hotspare.windows.shared.code_operator import CallTimesAndSeeds
from hotspare.windows.shared.keyed import bad_events

_DATA, _EVENTS = "data", "events"


MATCHES, CALLS = "matches", "calls"
"""Parts of the page: the open matches, and the count of calls."""
_NONE = np.full(1, k.NONE, np.int64)


class PatternCalls:
    """Calls the user code of a window's patterns. `p in calls` is true if pattern number `p` has code."""

    def __init__(
        self, window: ResolvedWindow, patterns: Sequence[WindowPattern], plan: PatternPlan, inputs: Sequence[Schema]
    ) -> None:
        self._plan, self._schema, self._inputs = plan, window.schema, inputs
        self._others = [i for i, each in enumerate(window.schema.fields) if not each.is_key]
        self._moments = CallTimesAndSeeds(window.id)
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

    def new_code_parts(self) -> dict[str, Part]:
        """Returns fresh parts for the page: the code's variables for each pattern with code, and the count of calls; empty without
        code.
        """
        parts: dict[str, Part] = {_part(p): CodeState(each.program) for p, each in self._codes.items()}
        return parts | {CALLS: Counters(1)} if parts else {}

    def evaluate_matches(
        self, page: Page, slots: Int64s, taking: OrderedEvents, work: k.MatchWork, timeline: Timeline, strings: StringTable
    ) -> BadEvents:
        """Calls the functions for the current event, with each match in `slots` and with a new match. Writes to `work` and `taking`
        which events of interest are true, and the new states of matches. Returns the bad events.
        """
        matches = cast(MultiIndex, page.parts[MATCHES])
        rows, program = matches.rows.pages.rows, self._plan.program
        e, p = int(work.counts[k.EVENT]), int(work.counts[k.AT])
        slots = slots[rows.time[slots] > taking.events.time[e]]
        slots = np.concatenate((slots[np.argsort(rows.order[slots], kind="stable")], _NONE))
        bits = np.empty(len(slots), np.int64)
        collect_awaited_events(rows, program, p, slots, work, bits)
        bits &= taking.events.masks[p, e] & k.EVENT_BITS
        number, row = int(taking.number[e]), int(taking.row[e])
        count = sum(int(mask).bit_count() for mask in bits.tolist())
        moments = self._moments.next_calls(int(work.counts[k.RANK]), count, cast(Counters, page.parts[CALLS]).values, timeline)
        answers = self._codes[p].call_event_functions(
            cast("CodeState[None]", page.parts[_part(p)]).live_instance(),
            self._event(taking.chunks[number].between(row, row + 1), self._inputs[number], strings),
            self._match_states(matches, p, slots, strings),
            bits.tolist(),
            moments,
            lambda: timeline.slot.begin_call(int(work.counts[k.RANK])),
        )
        timeline.slot.end_window()
        self._write(answers, slots, p, e, taking, work, strings)
        if answers.failed is None:
            return NO_BAD_EVENTS
        return _refused(answers.failed, taking.chunks[number], row, self._inputs[number], strings)

    def make_output(
        self, page: Page, out: k.MatchOutputs, work: k.MatchWork, timeline: Timeline, strings: StringTable
    ) -> BadEvents:
        """Completes the newest row of `out`, the output of the match in `work`, with the values that the pattern's output function
        returns. Removes the row if the function returns nothing or fails. Returns the bad events.
        """
        p, at, rank = int(work.counts[k.COMPLETE]) - 1, int(work.counts[k.MADE]) - 1, int(work.counts[k.RANK])
        work.counts[k.COMPLETE] = 0
        place = int(self._plan.program.patterns[p, k.OF_CODE])
        kept = to_arrow(work.lanes[:1, place], work.valid[:1, place], FieldType.BLOB, strings)[0].as_py()
        (moment,) = self._moments.next_calls(rank, 1, cast(Counters, page.parts[CALLS]).values, timeline)
        instance = cast("CodeState[None]", page.parts[_part(p)]).live_instance()
        timeline.slot.begin_call(rank)
        try:
            made = self._codes[p].call_output_function(instance, kept or b"", moment)
        except CodeFailure as failure:
            work.counts[k.MADE] = at
            lanes, valid = np.zeros((1, len(self._schema)), np.int64), np.zeros((1, len(self._schema)), np.bool_)
            opcode, flags = np.full(1, Opcode.INSERT, np.uint8), np.zeros(1, np.uint8)
            nothing = Chunk(np.array([rank]), opcode, flags, lanes, valid, is_whole=True)
            return _refused(failure, nothing, 0, self._schema, strings)
        finally:
            timeline.slot.end_window()
        if made is None:
            work.counts[k.MADE] = at
            return NO_BAD_EVENTS
        others = Schema(tuple(self._schema.fields[i] for i in self._others))
        lanes, valid = to_lanes(made.columns, others, strings)
        out.lanes[at, self._others], out.valid[at, self._others] = lanes[0], valid[0]
        return NO_BAD_EVENTS

    def _event(self, chunk: Chunk, schema: Schema, strings: StringTable) -> Mapping[str, Value]:
        return event_dicts(schema, to_arrow_columns(chunk.lanes, chunk.valid, schema, strings), 1)[0]

    def _match_states(self, matches: MultiIndex, p: int, slots: Int64s, strings: StringTable) -> Iterator[bytes | None]:
        """Yields the state of each match in `slots`, read piece by piece, or None if it has none; last None for the new match."""
        rows, place = matches.rows.pages.rows, int(self._plan.program.patterns[p, k.OF_CODE])
        lanes, valid = rows.lanes[slots[:-1], place], rows.valid[slots[:-1], place]
        for begin, end in text_pieces(lanes.reshape(-1, 1), [0], strings):
            yield from to_arrow(lanes[begin:end], valid[begin:end], FieldType.BLOB, strings).to_pylist()
        yield None

    def _write(
        self, answers: MatchAnswers, slots: Int64s, p: int, e: int, taking: OrderedEvents, work: k.MatchWork, strings: StringTable
    ) -> None:
        true = [i for i, bits in enumerate(answers.truth) if bits]
        keeps = np.zeros(len(slots), np.int64)
        keeps[true] = strings.intern(pa.array([answers.match_states[i] for i in true], pa.binary()))[0]
        work.truth[slots[:-1]], work.code_states[slots[:-1]] = answers.truth[:-1], keeps[:-1]
        taking.events.fresh[p, e], work.counts[k.FRESH] = answers.truth[-1], keeps[-1]


def _part(p: int) -> str:
    return f"code {p}"


def _refused(failure: CodeFailure, chunk: Chunk, row: int, schema: Schema, strings: StringTable) -> BadEvents:
    refused = Refusals.from_causes(np.array([row]), np.zeros(1, np.int64), [(str(failure.reason), failure.text)])
    return bad_events(refused, chunk, schema, strings)


@dataclass(slots=True)
class MatchAnswers:
    """Answers of the functions for an event: for each match the events of interest that are true, as bits, and the new state.
    `failed`: the first failure, or None.
    """

    truth: list[int] = field(default_factory=list)
    match_states: list[bytes] = field(default_factory=list)
    failed: CodeFailure | None = None


class PatternCode:
    """The compiled user code of one pattern. Calls its functions for events, and for the output of a match."""

    def __init__(self, label: str, pattern: WindowPattern, names: Sequence[str], modules: Sequence[Module], schema: Schema) -> None:
        """Compiles the code. `names`: the events of interest, by bit; `schema`: the window's schema. Raises ProjectError if the
        code cannot be loaded, or lacks a function.
        """
        assert pattern.script is not None
        script = self._script = pattern.script
        functions = {event.name: event.function for event in pattern.events}
        self._names, self._functions = names, [functions[name] for name in names]
        self._listed = frozenset(_counted(pattern.parsed))
        self._schema = Schema(tuple(each for each in schema.fields if not each.is_key))
        own = tuple(module for module in modules if module.language is script.language)
        self.program: Program = compile_user_code(ProgramText(label, script, modules=own))
        mistakes = [
            Mistake(event.place, f"the code of {label} defines no function {event.function}", "define it, or name another one")
            for event in pattern.events
            if not self.program.has_function(event.function)
        ]
        if mistakes:
            raise ProjectError(label, mistakes)

    def call_event_functions(
        self,
        instance: Instance,
        event: Mapping[str, Value],
        kept: Iterator[bytes | None],
        bits: Sequence[int],
        moments: Iterator[TimeAndSeed],
        show_call: Callable[[], None],
    ) -> MatchAnswers:
        """Calls the functions for an event and each match. `kept`: the state of each match, None for a new one; `bits`: the events
        of interest that the event may be for the match; `moments`: time and seed of each call; `show_call`: called before each. A
        function that fails counts as false.
        """
        found = MatchAnswers()
        for before, may_be in zip(kept, bits, strict=True):
            is_true, after = 0, before or b""
            for bit in _bits(may_be):
                show_call()
                try:
                    said = self._call_event_function(instance, bit, event, before, next(moments))
                    if said is not None:
                        after, is_true = self._with(after, bit, event, said), is_true | 1 << bit
                except CodeFailure as failure:
                    found.failed = found.failed or _named(failure, self._functions[bit])
            found.truth.append(is_true)
            found.match_states.append(after)
        return found

    def call_output_function(self, instance: Instance, kept: bytes, moment: TimeAndSeed) -> OutputEvents | None:
        """Returns the output of a match with the state `kept`, without its key; None if the function returns nothing. Raises
        CodeFailure.
        """
        try:
            return self._build_output(instance.call(self._script.function, (self._context(instance, kept),), moment))
        except CodeFailure as failure:
            raise _named(failure, self._script.function) from failure

    def _build_output(self, returned: Value) -> OutputEvents | None:
        if returned is None:
            return None
        if not isinstance(returned, dict):
            raise CodeFailure(f"returns {describe_kind(returned)}, not an event or nothing")
        builder = EventBuilder(self._schema)
        builder.add(0, returned)
        made = builder.build_events(1)
        if made.opcode[0] not in (NO_OPCODE, Opcode.INSERT):
            raise CodeFailure("returns another opcode than insert; a pattern emits only inserts")
        return made

    def _call_event_function(
        self, instance: Instance, bit: int, event: Mapping[str, Value], before: bytes | None, moment: TimeAndSeed
    ) -> dict[Any, Value] | None:
        """Returns the values that the function of `bit` lets the match keep; None if it returns false. Raises CodeFailure."""
        arguments = (instance.as_event_argument(event), self._context(instance, before))
        said, values = instance.call_for_two(self._functions[bit], arguments, moment)
        if not expect_boolean(said):
            return None
        if values is not None and not isinstance(values, dict):
            raise CodeFailure(f"returns {describe_kind(values)} together with true, not a table of values that the match keeps")
        return values or {}

    def _context(self, instance: Instance, kept: bytes | None) -> dict[str, Value]:
        found = decode(kept) if kept else {_DATA: {}, _EVENTS: {}}
        events = {
            name: [instance.as_event_argument(each) for each in value]
            if isinstance(value, list)
            else instance.as_event_argument(value)
            for name, value in found[_EVENTS].items()
        }
        return {_DATA: found[_DATA], _EVENTS: events}

    def _with(self, kept: bytes, bit: int, event: Mapping[str, Value], values: dict[Any, Value]) -> bytes:
        """Returns the state `kept` of a match, with `event` and `values` added. Raises CodeFailure if it is too large, or cannot be
        stored.
        """
        found = decode(kept) if kept else {_DATA: {}, _EVENTS: {}}
        name, seen = self._names[bit], dict(event)
        if name in self._listed:
            found[_EVENTS].setdefault(name, []).append(seen)
        else:
            found[_EVENTS][name] = seen
        bytes_max = self._script.limits.state_bytes_max
        try:
            found[_DATA].update(plain_copy(values))
            return encode(found, bytes_max)
        except TooManyBytes as error:
            raise CodeFailure(f"a match keeps more than {bytes_max} bytes", reason=BadReason.CODE_LIMIT) from error
        except UnkeptValue as error:
            raise CodeFailure(f"a match cannot keep {error.kind}, in {error.path}", reason=BadReason.CODE_LIMIT) from error


def _named(failure: CodeFailure, function: str) -> CodeFailure:
    """Returns the failure with the name of the failing function before its text."""
    return CodeFailure(f"{function}: {failure.text}", reason=failure.reason, line=failure.line)


def _bits(mask: int) -> Iterator[int]:
    bit = 0
    while mask >> bit:
        if mask >> bit & 1:
            yield bit
        bit += 1


def _counted(logic: Logic) -> Iterator[str]:
    """Yields the names of events of interest that the logic counts, with a count above 1."""
    if isinstance(logic, Event):
        return
    for operand in logic.operands:
        if isinstance(operand, Event) and logic.count > 1:
            yield operand.name
        yield from _counted(operand)
