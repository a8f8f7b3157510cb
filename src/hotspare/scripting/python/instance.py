"""Runs user code in Python: implements the contract of `scripting.contract` over an interpreter.

Changes of a call that failed are undone: a bad event has no effect, and no value that cannot be saved remains.

Events reach the code as dicts. A loop over the fields of each event costs more than most functions. So each schema becomes the text
of two Python functions that name its fields one by one. Names of fields are in that text as literals only.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import CO_VARARGS
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hotspare.base.call_board import LOOP_MAX, ROW
from hotspare.base.errors import Mistake, Place, ProjectError
from hotspare.model.code import Arguments, Code, Module, ModuleUse
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.chunk import Bools
from hotspare.scripting.contract import (
    NO_OPCODE,
    OPCODE_KEY,
    OPCODE_TEXT,
    CodeFailure,
    FailedEvent,
    InputEvents,
    Instance,
    OutputEvents,
    ProgramText,
    TimeAndSeed,
    Value,
    expect_boolean,
    parse_opcode,
    plain_copy,
)
from hotspare.scripting.fields import ColumnBuilder, Unfit, column_values, describe_kind
from hotspare.scripting.python.kept import EventDict, KeptDict
from hotspare.scripting.python.kept_bytes import encode
from hotspare.scripting.python.meter import PythonLimits
from hotspare.scripting.python.plain_values import plain_value
from hotspare.scripting.python.program import CallFailure, CallTooLarge, Interpreter, PythonText, Unloadable
from hotspare.scripting.python.stack import at_fixed_level

_BLOCK_EVENTS = LOOP_MAX
"""The number of events that are converted to dicts at a time."""
_MEMORY_PER_BYTE = 3
"""The approximate memory in bytes of plain values, for each byte in which the keeper counts them."""
_EVENT_TYPES = frozenset({dict, KeptDict, EventDict, defaultdict, OrderedDict})
"""The types of a returned value that count as one event."""
_FITS = {
    FieldType.INT32: "type({v}) is int and -2147483648 <= {v} <= 2147483647",
    FieldType.INT64: "type({v}) is int and -9223372036854775808 <= {v} <= 9223372036854775807",
    FieldType.DATE: "type({v}) is int and -9223372036854775808 <= {v} <= 9223372036854775807",
    FieldType.STAMP: "type({v}) is int and -9223372036854775808 <= {v} <= 9223372036854775807",
    FieldType.DOUBLE: "type({v}) is float",
    FieldType.STRING: "type({v}) is str and {v}.isascii()",
    FieldType.BLOB: "type({v}) is bytes",
}
"""For each field type, the condition under which a field holds a value `v` without conversion, as a template of Python code."""


def place_of_line(place: Place, line: int) -> Place:
    """Returns the place of line `line`, counted from 1, of a text that begins at `place`."""
    return replace(place, line=place.line + max(line - 1, 0)) if place.line else place


class PythonProgram:
    """A compiled Python program: immutable, and shared by all instances. Creating one raises ProjectError if the code cannot be
    loaded.
    """

    def __init__(self, text: ProgramText) -> None:
        script = text.script
        self._name, self._calls = text.name, text.calling_convention
        self._codes: Mapping[str, Code] = {text.name: script.code} | {_label(each): each.code for each in text.modules}
        self._transient, self._arguments = script.transient, script.arguments
        self._limits = PythonLimits(steps=script.limits.steps_max, kept_bytes=script.limits.state_bytes_max)
        names = [each.name for each in text.modules if each.use is ModuleUse.MODULE]
        texts = {each: self._compiled(each.code, _label(each), names) for each in text.modules}
        self._modules = {each.name: texts[each] for each in texts if each.use is ModuleUse.MODULE}
        self._snippets = {each.name: texts[each] for each in texts if each.use is ModuleUse.SNIPPET}
        self._text = self._compiled(script.code, text.name, names)
        self._settings = text.settings
        self._init = text.init if text.settings is None or self.has_function(text.init) else ""
        self.open()

    def _compiled(self, code: Code, name: str, modules: Sequence[str]) -> PythonText:
        try:
            return PythonText.from_source(code.text, name, modules, self._calls)
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

    def has_function(self, function: str) -> bool:
        return function in self._text.functions


def _label(module: Module) -> str:
    """Returns the name of a module in messages: NAME, or "snippet NAME" for a snippet."""
    return module.name if module.use is ModuleUse.MODULE else str(module)


class _Outcome(NamedTuple):
    """The result of calls for several events: the failed events, and the number of events for which the function was called."""

    failed: list[FailedEvent]
    seen_count: int


class PythonInstance(Instance):
    def __init__(self, interpreter: Interpreter, arguments: Arguments = Arguments.EVENT) -> None:
        self._interpreter, self._arguments = interpreter, arguments

    @property
    def memory_bytes(self) -> int:
        return _MEMORY_PER_BYTE * self._interpreter.keeper.bytes_used

    def call(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> Value:
        """Calls `function` and returns its value. Arguments beyond the function's parameters are dropped, as in Lua. Raises
        CodeFailure.
        """
        called = self._function(function)
        if not called.__code__.co_flags & CO_VARARGS:
            arguments = arguments[: called.__code__.co_argcount]
        try:
            return self._interpreter.call(lambda *given: plain_value(called(*given)), arguments, moment.time_us, moment.seed)
        except CallFailure as failure:
            raise _code_failure(failure) from failure

    def as_event_argument(self, fields: Mapping[str, Value]) -> Value:
        return EventDict(fields)

    def variable(self, name: str) -> Value:
        return plain_copy(self._interpreter.variables.get(name))

    def _function(self, name: str) -> Callable[..., Any]:
        found = self._interpreter.function(name)
        if found is None:
            raise CodeFailure(f"there is no function {name}")
        return found

    def _event_callable(self, function: Callable[..., Any], schema: Schema) -> tuple[Callable[..., Any], bool]:
        """Returns a callable for one event, and whether that callable also takes a context."""
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

    def make_events(self, function: str, events: InputEvents, schema: Schema, made_max: int) -> OutputEvents:
        made, row_of = _OutputColumns(schema), [np.empty(0, np.int64)]

        def collect_events(first: int, rows: list[int], found: list[Any]) -> None:
            made.add(found)
            row_of.append(np.array(rows, np.int64) + first)

        outcome = self._each(function, events, _EventReader(schema).read, collect_events, made_max)
        opcodes, columns = made.arrays()
        return OutputEvents(np.concatenate(row_of), opcodes, columns, outcome.failed, outcome.seen_count)

    def select(self, function: str, events: InputEvents) -> tuple[Bools, Sequence[FailedEvent]]:
        passes = np.zeros(len(events), np.bool_)

        def collect_passes(first: int, rows: list[int], found: list[Any]) -> None:
            passes[first:][rows] = found

        return passes, self._each(function, events, lambda made: [expect_boolean(made)], collect_passes, len(events)).failed

    def _each(
        self,
        function: str,
        events: InputEvents,
        read: Callable[[Any], list[Any]],
        take: Callable[[int, list[int], list[Any]], None],
        found_max: int,
    ) -> _Outcome:
        """Calls the function for each event in turn until at least `found_max` results are found. `read` converts a returned value
        to results. `take(first, numbers, results)` gets them in blocks, each with the number of its event, counted from `first`.
        """
        return at_fixed_level(lambda: self._each_in_turn(function, events, read, take, found_max))

    def _each_in_turn(
        self,
        function: str,
        events: InputEvents,
        read: Callable[[Any], list[Any]],
        take: Callable[[int, list[int], list[Any]], None],
        found_max: int,
    ) -> _Outcome:
        interpreter, called, failed = self._interpreter, self._function(function), list[FailedEvent]()
        begin, end = interpreter.begin_call, interpreter.commit_call
        called, takes_context = self._event_callable(called, events.schema)
        seen, left, name = 0, found_max, events.input
        cells = events.slot.cells
        for first in range(0, len(events), _BLOCK_EVENTS):
            block = events.slice(first, min(first + _BLOCK_EVENTS, len(events)))
            times, seeds, opcodes = block.time_us.tolist(), block.seeds.tolist(), block.opcode.tolist()
            rows_of, found = list[int](), list[Any]()
            rows = _event_rows(block.schema, block.columns, len(block))
            block.begin_loop()
            for row, (event, opcode, time_us, seed) in enumerate(zip(rows, opcodes, times, seeds, strict=True)):
                cells[ROW] = row
                begin(time_us, seed)
                try:
                    made = called(event, {"opcode": OPCODE_TEXT[opcode], "input": name}) if takes_context else called(event)
                    more = read(made)
                    end()
                except CodeFailure as error:
                    interpreter.keeper.roll_back()
                    failed.append(FailedEvent(first + row, error.reason, error.text))
                except BaseException as error:
                    failure = _code_failure(interpreter.abort_call(error))
                    failed.append(FailedEvent(first + row, failure.reason, failure.text))
                else:
                    found += more
                    rows_of += [row] * len(more)
                    if len(found) >= left:
                        break
            take(first, rows_of, found)
            left, seen = left - len(found), first + row + 1
            if left <= 0:
                break
        events.slot.end_window()
        return _Outcome(failed, seen)


def _event_rows(schema: Schema, columns: Sequence[pa.Array], count: int) -> list[dict[str, Any]]:
    """Returns one dict per event. A null field is not in the dict, but code that reads it gets None."""
    if not columns:
        return [{} for _ in range(count)]
    rows = _row_maker(schema.names)(*(column_values(column, f.type) for column, f in zip(columns, schema.fields, strict=True)))
    if any(column.null_count for column in columns):
        some = np.zeros(count, np.bool_)
        for column in columns:
            if column.null_count:
                some |= column.is_null().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(some).tolist():
            rows[row] = EventDict({name: value for name, value in rows[row].items() if value is not None})
    return rows


@lru_cache(maxsize=256)
def _row_maker(names: tuple[str, ...]) -> Callable[..., list[dict[str, Any]]]:
    variables = [f"v{i}" for i in range(len(names))]
    pairs = ", ".join(f"{name!r}: {v}" for name, v in zip(names, variables, strict=True))
    lists = ", ".join(f"a{i}" for i in range(len(names)))
    walked = f"for {', '.join(variables)}, in zip({lists}, strict=True)"
    return _compile_function(f"def make({lists}):\n    return [{{{pairs}}} {walked}]\n", {})


class _EventReader:
    """Reads events of a schema from the value that code returns: for each, a tuple of an opcode and one value per field."""

    def __init__(self, schema: Schema) -> None:
        self._read = _reader(schema)

    def read(self, returned: Any) -> list[tuple[Any, ...]]:
        """Returns the events. Raises CodeFailure unless the value is an event, a list of events, or nothing (None or False)."""
        if type(returned) in _EVENT_TYPES:
            return [self._read(returned)]
        if returned is None or returned is False:
            return []
        if not isinstance(returned, list | tuple):
            raise CodeFailure(f"returns {describe_kind(returned)}, not an event, a list of events, or nothing")
        for event in returned:
            if type(event) not in _EVENT_TYPES:
                raise CodeFailure(f"returns {describe_kind(event)} in a list, not an event, a list of events, or nothing")
        return [self._read(event) for event in returned]


@lru_cache(maxsize=256)
def _reader(schema: Schema) -> Callable[[Any], tuple[Any, ...]]:
    lines = ["def make(event):", f"    o = get(event, {OPCODE_KEY!r})", f"    o = {NO_OPCODE} if o is None else parse_opcode(o)"]
    for i, field in enumerate(schema.fields):
        fits = _FITS.get(field.type, "False").format(v=f"v{i}")
        lines += [
            f"    v{i} = get(event, {field.name!r})",
            f"    if not ({fits}) and v{i} is not None:",
            f"        v{i} = fit{i}(v{i})",
        ]
    lines.append(f"    return (o, {', '.join(f'v{i}' for i in range(len(schema)))},)")
    names: dict[str, Any] = {f"fit{i}": _fitting(f.name, f.type) for i, f in enumerate(schema.fields)}
    return _compile_function("\n".join(lines), names | {"get": dict.get, "parse_opcode": parse_opcode})


def _fitting(name: str, type_: FieldType) -> Callable[[Any], Any]:
    column = ColumnBuilder(type_)

    def fit(value: Any) -> Any:
        try:
            return column.fitted(plain_value(value))
        except Unfit as unfit:
            raise CodeFailure(f"field {name}: {unfit}", reason=unfit.reason) from unfit

    return fit


def _compile_function(text: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(text, names)  # noqa: S102 our own text, in which names of fields are literals
    made: Callable[..., Any] = names["make"]
    return made


class _OutputColumns:
    """The columns of output events, filled from tuples of an opcode and field values."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._opcodes: list[int] = []
        self._values: list[list[Any]] = [[] for _ in schema.fields]

    def add(self, events: Sequence[tuple[Any, ...]]) -> None:
        """Adds events, as `_EventReader.read` returns them, a block at a time. Splitting tuples soon after they are made is
        fastest, and frees them before the garbage collector scans them.
        """
        if events:
            for values, more in zip((self._opcodes, *self._values), zip(*events, strict=True), strict=True):
                values.extend(more)

    def arrays(self) -> tuple[np.ndarray[Any, Any], list[pa.Array]]:
        """Returns the opcodes as uint8[n], and an Arrow array of n values per field."""
        arrays = [_array(values, field.type) for values, field in zip(self._values, self._schema.fields, strict=True)]
        return np.array(self._opcodes, np.uint8), arrays


def _array(values: Sequence[Any], type_: FieldType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(ARROW_TYPE[type_]) if type_ in TIME_TYPES else pa.array(values, ARROW_TYPE[type_])


def _code_failure(failure: CallFailure) -> CodeFailure:
    reason = BadReason.CODE_LIMIT if isinstance(failure, CallTooLarge) else BadReason.CODE
    text = f"line {failure.line}: {failure.text}" if failure.line else failure.text
    return CodeFailure(text, reason=reason, line=failure.line)
