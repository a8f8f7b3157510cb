"""Lua programs (SPEC A26, A36): Lua 5.4 by the library lupa. Each instance has a virtual machine (VM) of its own, which sees only
the event.

The VM's own Lua files replace all that would differ between engines: clock, random numbers, the order of `pairs`, addresses in
texts, sorting of tables. `rewriting` does so for `#` and `..` in the code. A hook counts instructions, and the library counts the
bytes of the texts that it makes.

If these limits do not suffice, the limit of the VM's allocator is reached. Engines reach it at different points, so the engine
ends.

Events cross in blocks, as rows of bytes that the VM's `rows.lua` splits and joins.
"""

from __future__ import annotations

import math
import re
import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, NoReturn

import lupa.lua54
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.base.call_board import LOOP_MAX, ROW
from hotspare.base.errors import CodeOutOfMemory, Mistake, Place, ProjectError, SnapshotDamaged
from hotspare.model.code import Code, ModuleUse, Script
from hotspare.model.code_imports import may_share_state
from hotspare.model.types import FieldType, Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.chunk import Bools, Int64s, UInt8s
from hotspare.scripting.contract import (
    DEPTH_MAX,
    OPCODE_NAMES,
    OPCODE_TEXT,
    CodeFailure,
    FailedEvent,
    InputEvents,
    Instance,
    OutputEvents,
    ProgramText,
    SharedCode,
    TimeAndSeed,
    Value,
)
from hotspare.scripting.fields import ColumnBuilder, Unfit, column_values
from hotspare.scripting.lua.rewriting import rewrite_lua
from hotspare.scripting.shared import Properties, StepSharedCode

MEMORY_BYTES = 512 << 20
MEMORY_PER_BYTE = 48
"""The memory in bytes that is allowed for each byte of the variables' canonical form, while they are written or read."""
VALUES_MAX = 1 << 18
"""The maximum number of values within one value that leaves the VM. A table with two names counts twice."""
ROWS_PER_CALL = LOOP_MAX
"""The maximum number of events that one call passes to the VM."""
_MASK_FIELDS = 48
"""The number of fields that share one mask of nulls, as in `rows.lua`."""
_FILES = ("boot", "budget", "basics", "shared", "tables", "times", "text", "json", "rows")
_PROGRAM_FILES = ("variables", "events")
_COUNTS = struct.Struct("<qqq")
_LINE = re.compile(r"^(?P<chunk>[^:\n]*):(?P<line>[0-9]+): (?P<text>.*)", re.DOTALL)
_TEXTS = (FieldType.STRING, FieldType.BLOB)
_INPUT_KIND = {FieldType.DOUBLE: b"d", FieldType.MONEY: b"d", FieldType.STRING: b"s", FieldType.BLOB: b"s"}
_OUTPUT_KIND = {
    FieldType.INT32: b"i4",
    FieldType.INT64: b"i8",
    FieldType.DATE: b"i8",
    FieldType.STAMP: b"i8",
    FieldType.DOUBLE: b"d",
    FieldType.STRING: b"s",
    FieldType.BLOB: b"b",
}
_CHECKED_IN_PYTHON = b"o"


@dataclass(frozen=True, slots=True)
class LuaProgram:
    """A Lua program. `initial_properties`: for a snippet, the properties that exist before its `init`, which may set more.
    `memory_bytes`: the limit of one VM, to which room for its variables is added.
    """

    text: ProgramText
    initial_properties: Properties | None = None
    memory_bytes: int = MEMORY_BYTES

    def open(self) -> LuaInstance:
        shared = StepSharedCode(self.initial_properties.freeze(), {}) if self.initial_properties is not None else None
        return LuaInstance(self.text, shared, self.memory_bytes)

    def properties_after_init(self) -> Properties:
        """Returns a copy of `initial_properties` with the changes that loading the code and its init function make."""
        properties = self.initial_properties.freeze() if self.initial_properties is not None else Properties()
        LuaInstance(self.text, StepSharedCode(properties, {}), self.memory_bytes)
        return properties

    def has_function(self, function: str) -> bool:
        return self.open().has_function(function)


class LuaInstance(Instance):
    def __init__(self, text: ProgramText, shared: SharedCode | None = None, memory_bytes: int = MEMORY_BYTES) -> None:
        """Loads the program into a new VM. `shared`: the shared state while the code is loaded. Raises ProjectError if the program
        cannot be loaded.
        """
        self._name, self._owner = text.name, text.display_name
        self._shared = shared
        script = text.script
        self._memory_max = memory_bytes + MEMORY_PER_BYTE * script.limits.state_bytes_max
        self._runtime = lupa.lua54.LuaRuntime(
            encoding=None,
            unpack_returned_tuples=True,
            register_eval=False,
            register_builtins=False,
            max_memory=self._memory_max,
            attribute_filter=_no_attribute,
        )
        self._host = host = self._runtime.table()
        host[b"steps_max"], host[b"state_bytes_max"] = script.limits.steps_max, script.limits.state_bytes_max
        host[b"garbage_steps"], host[b"over_bytes"] = memory_bytes >> 8, memory_bytes // (64 + MEMORY_PER_BYTE)
        host[b"transient"] = self._runtime.table_from([name.encode() for name in script.transient])
        host[b"opcodes"] = self._runtime.table_from({name.encode(): int(value) for name, value in OPCODE_NAMES.items()})
        host[b"opcode_names"] = self._runtime.table_from({value: name.encode() for value, name in OPCODE_TEXT.items()})
        host[b"empty_is_event"] = text.is_empty_table_event
        self._install_shared_functions(text)
        for name in _FILES:
            self._run(name)
        host[b"is_loading"] = True
        host[b"begin_program"]()
        for name in _PROGRAM_FILES:
            self._run(name)
        for module in (each for each in text.modules if each.use is ModuleUse.MODULE):
            self._load(module.name, module.code, module.name)
        self._load(text.name, script.code, "")
        if text.init and self.has_function(text.init):
            self._begin(script, text.init, None if text.settings is None else self._to_lua(dict(text.settings), 0))
        host[b"is_loading"] = False
        host[b"scan"]()
        self._shared = None
        self._readers: dict[Schema, Any] = {}
        self._writers: dict[Schema, Any] = {}

    def _run(self, name: str) -> None:
        self._runtime.compile(_machine_part(name), mode=b"b")(self._host)

    def _load(self, chunk: str, code: Code, module: str) -> None:
        source = rewrite_lua(code.text)
        if source.gc_metafield_line:
            message = f"the Lua code of {chunk} gives a metatable __gc or __mode, which depend on garbage collection"
            raise ProjectError(self._name, [_mistake(code, message, source.gc_metafield_line, "keep the data in plain tables")])
        texts = [text.encode(errors="replace") for text in (chunk, code.text, source.text, source.names)]
        wrong = self._host[b"load_text"](*texts, module.encode() or None)
        if wrong is not None:
            failure = _failure(wrong, self._name)
            message = f"the Lua code of {chunk} cannot be loaded: {failure.text}"
            raise ProjectError(self._name, [_mistake(code, message, failure.line)])

    def _begin(self, script: Script, init: str, settings: Any) -> None:
        """Calls the init function. Raises ProjectError if it fails. The call is not an event, so it does not count towards the next
        check of the variables.
        """
        wrong = self._host[b"start"](init.encode(), settings)
        if wrong is not None:
            failure = _failure(wrong, self._name)
            message = f"function {init} of {self._owner} fails: {failure.text}"
            raise ProjectError(self._name, [_mistake(script.code, message, failure.line)])

    def has_function(self, function: str) -> bool:
        name = function.encode()
        return self._host[b"of_windows"][name] is None and self._host[b"function_of"](name) is not None

    def call(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> Value:
        return _from_lua(self._call_function(function, arguments, moment)[0])

    def call_for_two(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> tuple[Value, Value]:
        first, second = self._call_function(function, arguments, moment)
        return _from_lua(first), _from_lua(second)

    @property
    def steps(self) -> int:
        return int(self._host[b"used_steps"])

    @property
    def memory_bytes(self) -> int:
        return int(self._runtime.get_memory_used())

    def attach_shared_code(self, shared: SharedCode | None) -> None:
        self._shared = shared

    def _install_shared_functions(self, text: ProgramText) -> None:
        """Installs the VM's functions for shared state, if the code or its modules may use any. The functions hold only a weak
        reference to this object.
        """
        if not any(may_share_state(each.text) for each in (text.script.code, *(module.code for module in text.modules))):
            return
        this = weakref.ref(self)

        def call_shared(work: Callable[[LuaInstance, SharedCode], tuple[Any, int]]) -> tuple[bool, Any, int]:
            found = this()
            if found is None or found._shared is None:
                return False, b"properties and snippets are there when events come, not when the code is loaded", 0
            try:
                return True, *work(found, found._shared)
            except CodeFailure as failure:
                return False, failure.text.encode(errors="replace"), 0

        def poll_changed(number: int, name: bytes, wants_first: object) -> tuple[bool, Any]:
            found = this()
            if found is None or found._shared is None:
                return False, None
            listener = f"{found._name}#{number}"
            is_new, value = found._shared.poll_property(listener, _text(name), wants_first=wants_first)
            return is_new, found._to_lua(value, 0)

        host = self._host
        host[b"set_property"] = lambda name, value: call_shared(
            lambda self, shared: (None, shared.set(_text(name), _from_lua(value)))
        )
        host[b"get_property"] = lambda name: call_shared(lambda self, shared: self._property_to_lua(*shared.get(_text(name))))
        host[b"call_snippet"] = lambda *given: call_shared(lambda self, shared: self._call_snippet(shared, *given))
        host[b"news"] = poll_changed

    def _property_to_lua(self, value: Value, size: int) -> tuple[Any, int]:
        return self._to_lua(value, 0), size

    def _call_snippet(
        self, shared: SharedCode, snippet: bytes, function: bytes, time_us: int, seed: int, given: Any
    ) -> tuple[Any, int]:
        arguments = [_from_lua(given[place]) for place in range(1, given[b"n"] + 1)]
        returned, steps = shared.call(_text(snippet), _text(function), arguments, TimeAndSeed(time_us, seed))
        return self._to_lua(returned, 0), steps

    def _call_function(self, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> tuple[Any, Any]:
        given = [self._to_lua(value, 0) for value in arguments]
        ok, result, *limit = _several(self._call_machine(b"call", function.encode(), moment.time_us, _signed(moment.seed), *given))
        if not ok:
            raise _failure(result, self._name, _reason(limit and limit[0]))
        return result, limit[0] if limit else None

    def variable(self, name: str) -> Value:
        return _from_lua(self._host[b"env"][name.encode()])

    def make_events(self, function: str, events: InputEvents, schema: Schema, made_max: int) -> OutputEvents:
        reader, writer = self._reader(events.schema), self._writer(schema)
        events = events.slice(0, ROWS_PER_CALL)
        done, failed, count, rows, texts, strange = self._call_for_events(b"make", function, events, reader, writer, made_max)
        row, opcode, columns = _unpacked(count, rows, list(texts.values()), schema)
        made = _OutputColumns(schema, columns, row)
        odd = list(strange.values())
        for n, field, value in zip(odd[0::3], odd[1::3], odd[2::3], strict=True):
            made.fit(n - 1, field - 1, value)
        columns, wrong = made.columns()
        failures = self._failed(failed) + wrong
        refused = np.isin(row, np.array([each.row for each in wrong], np.int64))
        if refused.any():
            kept = np.flatnonzero(~refused)
            row, opcode, columns = row[kept], opcode[kept], [column.take(pa.array(kept)) for column in columns]
        return OutputEvents(row, opcode, columns, sorted(failures, key=lambda each: each.row), done)

    def select(self, function: str, events: InputEvents) -> tuple[Bools, Sequence[FailedEvent]]:
        passes, failures = [np.empty(0, np.uint8)], []
        reader = self._reader(events.schema)
        for begin in range(0, len(events), ROWS_PER_CALL):
            piece = events.slice(begin, begin + ROWS_PER_CALL)
            mask, failed = self._call_for_events(b"select", function, piece, reader)
            passes.append(np.frombuffer(mask, np.uint8))
            failures += [FailedEvent(each.row + begin, each.reason, each.message) for each in self._failed(failed)]
        return np.concatenate(passes).astype(np.bool_), failures

    def _call_for_events(self, name: bytes, function: str, events: InputEvents, reader: Any, *more: Any) -> Any:
        """Calls the VM's function `name`, which calls `function` for each event, and shows each of these calls."""
        arguments = function.encode(), events.input.encode(), reader, len(events), self._rows(events), *more
        if not events.slot.is_watched or not len(events):
            return self._call_machine(name, *arguments)
        events.begin_loop()
        self._host[b"show"] = partial(events.slot.cells.__setitem__, ROW)
        made = self._call_machine(name, *arguments)
        self._host[b"show"] = None
        events.slot.end_window()
        return made

    def save(self) -> bytes:
        ok, data = self._call_machine(b"saved")
        if not ok:
            raise _failure(data, self._name, BadReason.CODE_LIMIT)
        credit, weight, broken = self._host[b"kept"]()
        return b"".join((_COUNTS.pack(credit, weight, len(broken)), broken, data))

    def load(self, data: bytes) -> None:
        try:
            credit, weight, length = _COUNTS.unpack_from(data)
            broken, body = data[_COUNTS.size : _COUNTS.size + length], data[_COUNTS.size + length :]
            if not broken:
                self._host[b"load"](body)
            self._host[b"keep"](credit, weight, broken)
        except (lupa.lua54.LuaError, struct.error) as error:
            raise SnapshotDamaged("the variables of Lua code cannot be read", detail=str(error)) from error

    def _call_machine(self, name: bytes, *arguments: Any) -> Any:
        """Calls the VM's function `name`. Raises CodeOutOfMemory if the VM has too little memory; afterwards none of its variables
        can be trusted.
        """
        try:
            return self._host[name](*arguments)
        except lupa.lua54.LuaError as error:
            if not (isinstance(error, MemoryError) or self._host[b"watch"][1] is None):
                raise
            message = f"the Lua code of {self._owner} needs more than {self._memory_max >> 20} MiB of memory"
            hint = "let it make shorter texts and smaller tables for one event, or lower its limit of steps"
            raise CodeOutOfMemory(message, hint=hint) from error

    def _reader(self, schema: Schema) -> Any:
        if schema not in self._readers:
            self._readers[schema] = self._host[b"reader"](self._names(schema), self._runtime.table_from(_input_kinds(schema)))
        return self._readers[schema]

    def _writer(self, schema: Schema) -> Any:
        if schema not in self._writers:
            self._writers[schema] = self._host[b"writer"](self._names(schema), self._runtime.table_from(_output_kinds(schema)))
        return self._writers[schema]

    def _names(self, schema: Schema) -> Any:
        return self._runtime.table_from([name.encode() for name in schema.names])

    def _rows(self, events: InputEvents) -> Any:
        rows, text = _packed(events)
        return self._runtime.table_from({b"bytes": rows, b"text": text})

    def _failed(self, failed: Any) -> list[FailedEvent]:
        flat = list(failed.values())
        found = []
        for row, is_limit, message in zip(flat[0::3], flat[1::3], flat[2::3], strict=True):
            failure = _failure(message, self._name, _reason(is_limit))
            found.append(FailedEvent(row - 1, failure.reason, failure.text))
        return found

    def _to_lua(self, value: Value, depth: int) -> Any:
        if isinstance(value, str):
            return value.encode(errors="surrogatepass")
        if isinstance(value, list | dict):
            if depth >= DEPTH_MAX:
                raise CodeFailure(f"what it is given is nested more than {DEPTH_MAX} deep")
            pairs = value.items() if isinstance(value, dict) else enumerate(value, 1)
            table = self._runtime.table()
            for key, inner in pairs:
                if inner is not None:
                    table[self._to_lua(key, depth + 1)] = self._to_lua(inner, depth + 1)
            return table
        if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
            return float(value)
        return value


def _input_kinds(schema: Schema) -> list[bytes]:
    """Returns, for each field, the letter for the form in which the engine passes its values to the VM."""
    return [_INPUT_KIND.get(field.type, b"i") for field in schema.fields]


def _output_kinds(schema: Schema) -> list[bytes]:
    """Returns, for each field, the letter for the form in which the VM returns its values."""
    return [_OUTPUT_KIND.get(field.type, _CHECKED_IN_PYTHON) for field in schema.fields]


def _packed(events: InputEvents) -> tuple[bytes, bytes]:
    """Returns the events as rows of 8-byte numbers, and one byte string with all texts, to which the rows refer by offsets."""
    count, fields = len(events), events.schema.fields
    columns: list[npt.NDArray[Any]] = []
    texts: list[bytes] = []
    text_length = 0
    for first in range(0, max(len(fields), 1), _MASK_FIELDS):
        nulls = np.zeros(count, np.int64)
        for bit, (field, column) in enumerate(
            zip(fields[first : first + _MASK_FIELDS], events.columns[first : first + _MASK_FIELDS], strict=True)
        ):
            if column.null_count:
                nulls |= column.is_null().to_numpy(zero_copy_only=False).astype(np.int64) << bit
            if field.type in _TEXTS:
                offsets, text = _offsets_and_bytes(column)
                columns += [offsets[:-1] + (text_length + 1), offsets[1:] + text_length]
                texts.append(text)
                text_length += len(text)
            else:
                columns.append(_lane(column, field.type))
        columns.append(nulls)
    columns += [events.opcode.astype(np.int64), events.time_us, events.seeds.view(np.int64)]
    return np.stack(columns, axis=1).tobytes(), b"".join(texts)


def _offsets_and_bytes(column: pa.Array) -> tuple[Int64s, bytes]:
    """Returns the offsets of the texts of a column, relative to the first text, and the bytes of all texts."""
    _, offset_buffer, data = column.buffers()
    if offset_buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int64), b""
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    return offsets - begin, b"" if data is None else data.slice(begin, end - begin).to_pybytes()


def _lane(column: pa.Array, type_: FieldType) -> Int64s:
    """Returns 64 bits for each value: a double's bits for doubles and money, else an integer; 0 for null."""
    if type_ is FieldType.MONEY:
        column = column.cast(pa.float64())
    elif type_ is not FieldType.DOUBLE:
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    lane: Int64s = np.ascontiguousarray(column.to_numpy(zero_copy_only=False)).view(np.int64)
    return lane


def _unpacked(count: int, rows: bytes, texts: Sequence[bytes], schema: Schema) -> tuple[Int64s, UInt8s, list[pa.Array]]:
    """Returns, for each of `count` events, the index of the input event that caused it, its opcode, and a column per field.

    Texts may be invalid UTF-8. A value that Python has to check later is null.
    """
    width = 2 + len(schema) + max(1, -(-len(schema) // _MASK_FIELDS))
    lanes = np.frombuffer(rows, np.int64).reshape(count, width)
    columns: list[pa.Array] = []
    remaining, at = iter(texts), 2
    for first in range(0, len(schema), _MASK_FIELDS):
        nulls = lanes[:, at]
        at += 1
        for bit, field in enumerate(schema.fields[first : first + _MASK_FIELDS]):
            valid = (nulls >> bit & 1) == 0
            lane = np.ascontiguousarray(lanes[:, at])
            at += 1
            kind = _OUTPUT_KIND.get(field.type, _CHECKED_IN_PYTHON)
            columns.append(_column(lane, valid, field.type, next(remaining) if kind in (b"s", b"b") else b""))
    return lanes[:, 0] - 1, lanes[:, 1].astype(np.uint8), columns


def _column(lane: Int64s, valid: Bools, type_: FieldType, text: bytes) -> pa.Array:
    arrow, count = ARROW_TYPE[type_], len(lane)
    if _OUTPUT_KIND.get(type_) is None:
        return pa.nulls(count, arrow)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    if type_ in _TEXTS:
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(lane, out=offsets[1:])
        return pa.Array.from_buffers(arrow, count, [mask, pa.py_buffer(offsets), pa.py_buffer(text)])
    values = lane.astype(np.int32) if type_ is FieldType.INT32 else lane
    return pa.Array.from_buffers(arrow, count, [mask, pa.py_buffer(values)])


class _OutputColumns:
    """The output columns of the VM. `fit` adds the values that only Python can check and convert."""

    def __init__(self, schema: Schema, columns: list[pa.Array], row: Any) -> None:
        self._schema, self._columns, self._row = schema, columns, row
        self._fitted: dict[int, dict[int, Any]] = {}
        self._failed: dict[int, FailedEvent] = {}

    def fit(self, made: int, field: int, value: Any) -> None:
        """Sets a field of output event `made` to a value of the VM. Marks the input event as failed if the field cannot hold the
        value.
        """
        try:
            self._fitted.setdefault(field, {})[made] = ColumnBuilder(self._schema.fields[field].type).fitted(_from_lua(value))
        except Unfit as unfit:
            self._refuse(made, field, str(unfit), unfit.reason)
        except CodeFailure as failure:
            self._refuse(made, field, failure.text, failure.reason)

    def _refuse(self, made: int, field: int, text: str, reason: BadReason) -> None:
        row = int(self._row[made])
        self._failed.setdefault(row, FailedEvent(row, reason, f"field {self._schema.fields[field].name}: {text}"))

    def columns(self) -> tuple[list[pa.Array], list[FailedEvent]]:
        """Returns the completed columns, and the failures of the events with a value that their field cannot hold."""
        return [self._column(i) for i in range(len(self._columns))], list(self._failed.values())

    def _column(self, i: int) -> pa.Array:
        column, type_ = self._columns[i], self._schema.fields[i].type
        if pa.types.is_string(column.type):
            column = self._unicode(i, column)
        if i not in self._fitted:
            return column
        builder, values = ColumnBuilder(type_), column_values(column, type_)
        for made, value in self._fitted[i].items():
            values[made] = value
        for value in values:
            builder.append(value)
        return builder.array()

    def _unicode(self, i: int, column: pa.Array) -> pa.Array:
        """Returns the column with null for texts that are not UTF-8, whose events are marked as failed."""
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            texts = column.cast(pa.binary()).to_pylist()
            for made, text in enumerate(texts):
                if text is not None and not _is_unicode(text):
                    texts[made] = None
                    self._refuse(made, i, "the bytes are not UTF-8 text", BadReason.CODE)
            return pa.array(texts, pa.binary()).cast(pa.string())
        return column


def _is_unicode(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _mistake(code: Code, message: str, line: int, hint: str = "the code runs once when it is loaded, before any event") -> Mistake:
    place = Place(code.place.file, code.place.line + max(line, 1) - 1) if code.place.line else code.place
    return Mistake(place, message, hint)


@cache
def _machine_part(name: str) -> bytes:
    """Returns one of the VM's own Lua files as bytecode, compiled once per process."""
    content = files("hotspare.scripting.lua").joinpath(f"{name}.lua").read_bytes()
    compiler = lupa.lua54.LuaRuntime(encoding=None).eval(
        b"function(text, name) return string.dump(assert(load(text, name, 't'))) end"
    )
    compiled: bytes = compiler(content, f"={name}".encode())
    return compiled


def _no_attribute(owner: object, name: object, is_setting: object) -> NoReturn:
    raise AttributeError("Lua code sees no Python objects")


def _failure(message: bytes, program: str, reason: BadReason = BadReason.CODE) -> CodeFailure:
    """Returns a CodeFailure for the VM's message, with the line first. A place in another text than `program` also has that text's
    name.
    """
    text, line = message.decode(errors="replace"), 0
    if found := _LINE.match(text):
        line = int(found["line"])
        where = f"line {line}" if found["chunk"] == program else f"{found['chunk']}, line {line}"
        text = f"{where}: {found['text']}"
    return CodeFailure(text, reason=reason, line=line)


def _text(name: bytes) -> str:
    return name.decode(errors="replace")


def _reason(is_limit: object) -> BadReason:
    """Returns CODE_LIMIT if the VM reports that a limit was exceeded, else CODE."""
    return BadReason.CODE_LIMIT if is_limit else BadReason.CODE


def _several(returned: Any) -> tuple[Any, ...]:
    return returned if isinstance(returned, tuple) else (returned, None)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def _from_lua(value: Any) -> Value:
    """Returns a value of the VM as a plain Python value. Raises CodeFailure if that is impossible."""
    return _Plain().value(value, 0)


class _Plain:
    """The conversion of one value of the VM to a plain value. It fails after VALUES_MAX values within the value."""

    def __init__(self) -> None:
        self._left = VALUES_MAX

    def value(self, value: Any, depth: int) -> Value:
        self._left -= 1
        if self._left < 0:
            raise CodeFailure(f"a value holds more than {VALUES_MAX} values", reason=BadReason.CODE_LIMIT)
        if isinstance(value, bytes):
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value
        if isinstance(value, float) and math.isnan(value):
            return math.nan
        if value is None or isinstance(value, bool | int | float):
            return value
        if lupa.lua54.lua_type(value) != "table":
            raise CodeFailure(f"a {lupa.lua54.lua_type(value)} is not a plain value")
        if depth >= DEPTH_MAX:
            raise CodeFailure(f"a table is nested more than {DEPTH_MAX} deep")
        return self._table(list(value.items()), depth)

    def _table(self, entries: list[tuple[Any, Any]], depth: int) -> Value:
        for key, _ in entries:
            if not isinstance(key, bytes | bool | int | float):
                raise CodeFailure(f"a table has a {lupa.lua54.lua_type(key)} as a key")
        entries.sort(key=lambda entry: _place(entry[0]))
        pairs = {self.value(key, depth + 1): self.value(inner, depth + 1) for key, inner in entries}
        is_list = all(isinstance(key, int) for key in pairs) and list(pairs) == list(range(1, len(pairs) + 1))
        return list(pairs.values()) if pairs and is_list else pairs


def _place(key: bytes | float) -> tuple[bool, bool, float, bytes]:
    """Returns a sort key that puts keys of a table in the order in which the VM iterates over them."""
    if isinstance(key, bytes):
        return False, True, 0, key
    return isinstance(key, bool), False, key, b""
