"""People's code in a pattern (SPEC A30): functions that say which events are of interest, and the one that makes what is put out.

    event, match ──► function(event, context) ──► true or false, and values that the match keeps
    match        ──► output(context)          ──► an event

`context.data` has the values that a match keeps, `context.events` its events by their names: the newest, or all in a list where the
logic counts them. What a match keeps is one text in its row, so it is in snapshots, and in none that is shared. Functions see what
was there before the event, whatever else comes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.code import Module
from hotspare.model.events import Opcode
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.scripting.contract import (
    NO_OPCODE,
    CodeFailure,
    EventBuilder,
    Instance,
    MadeEvents,
    Moment,
    Program,
    ProgramText,
    Value,
    plain,
    truth,
)
from hotspare.scripting.fields import kind_of
from hotspare.scripting.programs import compile_program
from hotspare.scripting.tree import TooMuch, Unkept, decode, encode
from hotspare.windows.pattern.logic import Event, Logic
from hotspare.windows.pattern.patterns import WindowPattern

_DATA, _EVENTS = "data", "events"


@dataclass(slots=True)
class Answers:
    """Of each match the events of interest that are true for it, as bits, and what it keeps then; and the first failure."""

    truth: list[int] = field(default_factory=list)
    keeps: list[bytes] = field(default_factory=list)
    failed: CodeFailure | None = None


class PatternCode:
    """Of one pattern. `names`: its events of interest, by bit."""

    def __init__(self, label: str, pattern: WindowPattern, names: Sequence[str], modules: Sequence[Module], schema: Schema) -> None:
        """ProjectError where the code cannot be loaded, or lacks a function."""
        assert pattern.script is not None
        script = self._script = pattern.script
        functions = {event.name: event.function for event in pattern.events}
        self._names, self._functions = names, [functions[name] for name in names]
        self._listed = frozenset(_counted(pattern.parsed))
        self._schema = Schema(tuple(each for each in schema.fields if not each.is_key))
        own = tuple(module for module in modules if module.language is script.language)
        self.program: Program = compile_program(ProgramText(label, script, modules=own))
        mistakes = [
            Mistake(event.place, f"the code of {label} defines no function {event.function}", "define it, or name another one")
            for event in pattern.events
            if not self.program.defines(event.function)
        ]
        if mistakes:
            raise ProjectError(label, mistakes)

    def answers(
        self,
        instance: Instance,
        event: Mapping[str, Value],
        kept: Iterator[bytes | None],
        bits: Sequence[int],
        moments: Iterator[Moment],
    ) -> Answers:
        """Ask for an event and each match, which keeps `kept`, and of which it may be `bits`; `moments`: one for each call."""
        found = Answers()
        for before, may_be in zip(kept, bits, strict=True):
            is_true, after = 0, before or b""
            for bit in _bits(may_be):
                try:
                    said = self._said(instance, bit, event, before, next(moments))
                    if said is not None:
                        after, is_true = self._with(after, bit, event, said), is_true | 1 << bit
                except CodeFailure as failure:
                    found.failed = found.failed or _named(failure, self._functions[bit])
            found.truth.append(is_true)
            found.keeps.append(after)
        return found

    def output(self, instance: Instance, kept: bytes, moment: Moment) -> MadeEvents | None:
        """The event that a match puts out, without its key; None for none. CodeFailure."""
        try:
            return self._put_out(instance.call(self._script.function, (self._context(instance, kept),), moment))
        except CodeFailure as failure:
            raise _named(failure, self._script.function) from failure

    def _put_out(self, returned: Value) -> MadeEvents | None:
        if returned is None:
            return None
        if not isinstance(returned, dict):
            raise CodeFailure(f"returns {kind_of(returned)}, not an event or nothing")
        builder = EventBuilder(self._schema)
        builder.add(0, returned)
        made = builder.made(1)
        if made.opcode[0] not in (NO_OPCODE, Opcode.INSERT):
            raise CodeFailure("returns another opcode than insert, and a pattern puts out nothing else")
        return made

    def _said(
        self, instance: Instance, bit: int, event: Mapping[str, Value], before: bytes | None, moment: Moment
    ) -> dict[Any, Value] | None:
        """The values that the match keeps of the event; None where the function says that it is not of interest."""
        arguments = (instance.seen_event(event), self._context(instance, before))
        said, values = instance.call_for_two(self._functions[bit], arguments, moment)
        if not truth(said):
            return None
        if values is not None and not isinstance(values, dict):
            raise CodeFailure(f"returns {kind_of(values)} beside true, not a table of values that the match keeps")
        return values or {}

    def _context(self, instance: Instance, kept: bytes | None) -> dict[str, Value]:
        found = decode(kept) if kept else {_DATA: {}, _EVENTS: {}}
        events = {
            name: [instance.seen_event(each) for each in value] if isinstance(value, list) else instance.seen_event(value)
            for name, value in found[_EVENTS].items()
        }
        return {_DATA: found[_DATA], _EVENTS: events}

    def _with(self, kept: bytes, bit: int, event: Mapping[str, Value], values: dict[Any, Value]) -> bytes:
        """What a match keeps with one more event. CodeFailure where it is too much, or cannot be kept."""
        found = decode(kept) if kept else {_DATA: {}, _EVENTS: {}}
        name, seen = self._names[bit], dict(event)
        if name in self._listed:
            found[_EVENTS].setdefault(name, []).append(seen)
        else:
            found[_EVENTS][name] = seen
        bytes_max = self._script.limits.state_bytes_max
        try:
            found[_DATA].update(plain(values))
            return encode(found, bytes_max)
        except TooMuch as error:
            raise CodeFailure(f"a match keeps more than {bytes_max} bytes", reason=BadReason.CODE_LIMIT) from error
        except Unkept as error:
            raise CodeFailure(f"a match cannot keep {error.kind}, in {error.path}", reason=BadReason.CODE_LIMIT) from error


def _named(failure: CodeFailure, function: str) -> CodeFailure:
    """With the name of the function that fails."""
    return CodeFailure(f"{function}: {failure.text}", reason=failure.reason, line=failure.line)


def _bits(mask: int) -> Iterator[int]:
    bit = 0
    while mask >> bit:
        if mask >> bit & 1:
            yield bit
        bit += 1


def _counted(logic: Logic) -> Iterator[str]:
    """Events of interest of which more than one is wanted."""
    if isinstance(logic, Event):
        return
    for operand in logic.operands:
        if isinstance(operand, Event) and logic.count > 1:
            yield operand.name
        yield from _counted(operand)
