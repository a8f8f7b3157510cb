"""Python as a language of people's code: the contract of `engine.code.contract` over an interpreter.

What a call changed before it failed is taken back: a bad event leaves nothing behind, and nothing that cannot be kept stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from hotspare.engine.code.contract import CodeFailure, Events, Failed, Instance, Limits, Made, Moment, Value, context_of, truth

from hotspare.engine.code.python.kept_bytes import encode
from hotspare.engine.code.python.meter import PythonLimits
from hotspare.engine.code.python.program import CallFailure, CallTooLarge, Interpreter, PythonText
from hotspare.engine.code.python.rows import EventReader, event_rows
from hotspare.engine.rows.bad_reasons import BadReason
from hotspare.engine.rows.chunk import Bools


class PythonProgram:
    """A text with the modules of its project. Immutable, and the same for every instance."""

    def __init__(self, text: PythonText, modules: Mapping[str, PythonText], limits: Limits) -> None:
        self._text, self._modules = text, modules
        self._limits = PythonLimits(steps=limits.steps_max, kept_bytes=limits.state_bytes_max)

    def open(self) -> PythonInstance:
        return PythonInstance(Interpreter(self._text, self._modules, self._limits))

    def defines(self, function: str) -> bool:
        return function in self._text.functions


class PythonInstance(Instance):
    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def call(self, function: str, arguments: Sequence[Value], moment: Moment) -> Value:
        try:
            return self._interpreter.call(self._function(function), arguments, moment.time_us, moment.seed)
        except CallFailure as failure:
            raise _code_failure(failure, function) from failure

    def _function(self, name: str) -> Callable[..., Any]:
        found = self._interpreter.function(name)
        if found is None:
            raise CodeFailure(f"there is no function {name}")
        return found

    def save(self) -> bytes:
        return self._interpreter.save()

    def freeze(self) -> Callable[[], bytes]:
        frozen = self._interpreter.keeper.freeze()
        return lambda: encode(frozen)

    def load(self, data: bytes) -> None:
        self._interpreter.load(data)

    def make_events(self, function: str, events: Events, schema: Any) -> Made:
        reader = EventReader(schema)
        row_of: list[int] = []
        made: list[tuple[Any, ...]] = []

        def put(row: int, found: list[tuple[Any, ...]]) -> None:
            for each in found:
                row_of.append(row)
                made.append(each)

        failed = self._each(function, events, lambda returned: reader.read(function, returned), put)
        opcodes, columns = reader.columns(made)
        return Made(np.array(row_of, np.int64), opcodes, columns, failed)

    def select(self, function: str, events: Events) -> tuple[Bools, Sequence[Failed]]:
        passes = np.zeros(len(events), np.bool_)

        def put(row: int, passed: bool) -> None:  # noqa: FBT001
            passes[row] = passed

        failed = self._each(function, events, lambda returned: truth(returned, function), put)
        return passes, failed

    def _each(self, function: str, events: Events, read: Callable[[Any], Any], put: Callable[[int, Any], None]) -> Sequence[Failed]:
        """Call the function for each event: what `read` makes of what it returns is given to `put` with the number of the event."""
        interpreter, called, failed = self._interpreter, self._function(function), []
        begin, end = interpreter.begin, interpreter.end
        times, seeds, opcodes = events.time_us.tolist(), events.seeds.tolist(), events.opcode.tolist()
        rows = event_rows(events.schema, events.columns, len(events))
        for row, (event, opcode, time_us, seed) in enumerate(zip(rows, opcodes, times, seeds, strict=True)):
            begin(time_us, seed)
            try:
                found = read(called(event, context_of(opcode)))
                end()
            except CodeFailure as error:
                interpreter.keeper.roll_back()
                failed.append(Failed(row, error.reason, error.text))
            except BaseException as error:
                failure = _code_failure(interpreter.failure(error), function)
                failed.append(Failed(row, failure.reason, failure.text))
            else:
                put(row, found)
        return failed


def _code_failure(failure: CallFailure, function: str) -> CodeFailure:
    reason = BadReason.CODE_LIMIT if isinstance(failure, CallTooLarge) else BadReason.CODE
    place = f"{function}, line {failure.line}" if failure.line else function
    return CodeFailure(f"{place}: {failure.text}", reason=reason, line=failure.line)
