"""Python as a language of user code: the contract of `scripting.contract` over an interpreter.

What a call changed before it failed is taken back: a bad event leaves nothing behind, and nothing that cannot be kept stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import CO_VARARGS
from typing import Any, NamedTuple

import numpy as np

from hotspare.base.errors import Mistake, Place, ProjectError
from hotspare.model.code import Arguments, Code, Module, ModuleUse
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.chunk import Bools
from hotspare.scripting.contract import (
    OPCODE_TEXT,
    CodeFailure,
    Failed,
    GivenEvents,
    Instance,
    MadeEvents,
    Moment,
    ProgramText,
    Value,
    plain,
    truth,
)
from hotspare.scripting.python.kept import SeenEvent
from hotspare.scripting.python.kept_bytes import encode
from hotspare.scripting.python.meter import PythonLimits
from hotspare.scripting.python.plain_values import plain_value
from hotspare.scripting.python.program import CallFailure, CallTooLarge, Interpreter, PythonText, Unloadable
from hotspare.scripting.python.rows import EventReader, MadeColumns, event_rows
from hotspare.scripting.python.stack import at_fixed_level

_BLOCK_EVENTS = 4096
"""Events become dicts so many at a time."""
_MEMORY_A_BYTE = 3
"""Plain values take so many bytes of memory for each byte in which they are kept."""


def place_of_line(place: Place, line: int) -> Place:
    """The place of a line, from 1, of a text that begins at `place`."""
    return replace(place, line=place.line + max(line - 1, 0)) if place.line else place


class PythonProgram:
    """Immutable, and the same for every instance. ProjectError where it cannot be loaded."""

    def __init__(self, text: ProgramText) -> None:
        script = text.script
        self._name, self._calls = text.name, text.calls
        self._codes: Mapping[str, Code] = {text.name: script.code} | {_label(each): each.code for each in text.modules}
        self._transient, self._arguments = script.transient, script.arguments
        self._limits = PythonLimits(steps=script.limits.steps_max, kept_bytes=script.limits.state_bytes_max)
        names = [each.name for each in text.modules if each.use is ModuleUse.MODULE]
        texts = {each: self._compiled(each.code, _label(each), names) for each in text.modules}
        self._modules = {each.name: texts[each] for each in texts if each.use is ModuleUse.MODULE}
        self._snippets = {each.name: texts[each] for each in texts if each.use is ModuleUse.SNIPPET}
        self._text = self._compiled(script.code, text.name, names)
        self._settings = text.settings
        self._init = text.init if text.settings is None or self.defines(text.init) else ""
        self.open()

    def _compiled(self, code: Code, name: str, modules: Sequence[str]) -> PythonText:
        try:
            return PythonText.compiled(code.text, name, modules, self._calls)
        except Unloadable as error:
            raise self._refused(error, name) from error

    def _refused(self, error: Unloadable, name: str) -> ProjectError:
        place = self._codes[name].place
        mistakes = [Mistake(place_of_line(place, each.line), each.message, each.hint) for each in error.mistakes]
        return ProjectError(self._name, mistakes)

    def open(self) -> PythonInstance:
        try:
            interpreter = Interpreter(
                self._text,
                self._modules,
                self._limits,
                self._snippets,
                init=self._init,
                settings=self._settings,
                transient=self._transient,
            )
        except Unloadable as error:
            raise self._refused(error, error.name or self._name) from error
        return PythonInstance(interpreter, self._arguments)

    def defines(self, function: str) -> bool:
        return function in self._text.functions


def _label(module: Module) -> str:
    """The name of its text."""
    return module.name if module.use is ModuleUse.MODULE else str(module)


class _Outcome(NamedTuple):
    """What came of calls: failures, and how many events were seen."""

    failed: list[Failed]
    done: int


class PythonInstance(Instance):
    def __init__(self, interpreter: Interpreter, arguments: Arguments = Arguments.EVENT) -> None:
        self._interpreter, self._arguments = interpreter, arguments

    @property
    def memory_bytes(self) -> int:
        return _MEMORY_A_BYTE * self._interpreter.keeper.bytes_used

    def call(self, function: str, arguments: Sequence[Value], moment: Moment) -> Value:
        """Arguments that the function does not take are left out, as Lua does it."""
        called = self._function(function)
        if not called.__code__.co_flags & CO_VARARGS:
            arguments = arguments[: called.__code__.co_argcount]
        try:
            return self._interpreter.call(lambda *given: plain_value(called(*given)), arguments, moment.time_us, moment.seed)
        except CallFailure as failure:
            raise _code_failure(failure) from failure

    def seen_event(self, fields: Mapping[str, Value]) -> Value:
        return SeenEvent(fields)

    def variable(self, name: str) -> Value:
        return plain(self._interpreter.variables.get(name))

    def _function(self, name: str) -> Callable[..., Any]:
        found = self._interpreter.function(name)
        if found is None:
            raise CodeFailure(f"there is no function {name}")
        return found

    def _taking_events(self, function: Callable[..., Any], schema: Schema) -> tuple[Callable[..., Any], bool]:
        """What is called with an event, and whether it takes a context too."""
        code = function.__code__
        if self._arguments is Arguments.EVENT:
            return function, code.co_argcount != 1 or bool(code.co_flags & CO_VARARGS)
        names, taken = schema.names, code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if "context" in taken and "context" not in names:
            return lambda event, context: function(**{name: event[name] for name in names}, context=context), True
        return lambda event: function(**{name: event[name] for name in names}), False

    def save(self) -> bytes:
        return self._interpreter.save()

    def freeze(self) -> Callable[[], bytes]:
        frozen = self._interpreter.keeper.freeze()
        return lambda: encode(frozen)

    def load(self, data: bytes) -> None:
        self._interpreter.load(data)

    def make_events(self, function: str, events: GivenEvents, schema: Schema, made_max: int) -> MadeEvents:
        made, row_of = MadeColumns(schema), list[int]()

        def take(rows: list[int], found: list[Any]) -> None:
            made.add(found)
            row_of.extend(rows)

        outcome = self._each(function, events, EventReader(schema).read, take, made_max)
        opcodes, columns = made.arrays()
        return MadeEvents(np.array(row_of, np.int64), opcodes, columns, outcome.failed, outcome.done)

    def select(self, function: str, events: GivenEvents) -> tuple[Bools, Sequence[Failed]]:
        passes = np.zeros(len(events), np.bool_)

        def take(rows: list[int], found: list[Any]) -> None:
            passes[rows] = found

        return passes, self._each(function, events, lambda made: [truth(made)], take, len(events)).failed

    def _each(
        self,
        function: str,
        events: GivenEvents,
        read: Callable[[Any], list[Any]],
        take: Callable[[list[int], list[Any]], None],
        found_max: int,
    ) -> _Outcome:
        """Call the function for one event after another until `found_max` are found or more: what `read` makes of what it returns.
        `take` gets that by blocks, for each the number of the event that it came of."""
        return at_fixed_level(lambda: self._each_in_turn(function, events, read, take, found_max))

    def _each_in_turn(
        self,
        function: str,
        events: GivenEvents,
        read: Callable[[Any], list[Any]],
        take: Callable[[list[int], list[Any]], None],
        found_max: int,
    ) -> _Outcome:
        interpreter, called, failed = self._interpreter, self._function(function), list[Failed]()
        begin, end = interpreter.begin, interpreter.end
        called, takes_context = self._taking_events(called, events.schema)
        row, left, name = -1, found_max, events.input
        for first in range(0, len(events), _BLOCK_EVENTS):
            block = events.slice(first, min(first + _BLOCK_EVENTS, len(events)))
            times, seeds, opcodes = block.time_us.tolist(), block.seeds.tolist(), block.opcode.tolist()
            rows_of, found = list[int](), list[Any]()
            rows = event_rows(block.schema, block.columns, len(block))
            for row, (event, opcode, time_us, seed) in enumerate(zip(rows, opcodes, times, seeds, strict=True), first):
                begin(time_us, seed)
                try:
                    made = called(event, {"opcode": OPCODE_TEXT[opcode], "input": name}) if takes_context else called(event)
                    more = read(made)
                    end()
                except CodeFailure as error:
                    interpreter.keeper.roll_back()
                    failed.append(Failed(row, error.reason, error.text))
                except BaseException as error:
                    failure = _code_failure(interpreter.failure(error))
                    failed.append(Failed(row, failure.reason, failure.text))
                else:
                    found += more
                    rows_of += [row] * len(more)
                    if len(found) >= left:
                        break
            take(rows_of, found)
            left -= len(found)
            if left <= 0:
                break
        return _Outcome(failed, row + 1)


def _code_failure(failure: CallFailure) -> CodeFailure:
    reason = BadReason.CODE_LIMIT if isinstance(failure, CallTooLarge) else BadReason.CODE
    text = f"line {failure.line}: {failure.text}" if failure.line else failure.text
    return CodeFailure(text, reason=reason, line=failure.line)
