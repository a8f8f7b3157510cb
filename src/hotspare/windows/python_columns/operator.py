"""Python window over columns (SPEC A36): Arrow arrays in, Arrow arrays out.

A call gets all rows of a batch. The result of a row must not depend on the others, since batches may be cut anywhere (law Cut); so
the code gets opaque columns (`python_kernel`). If a call fails, its rows are bisected down to those on which it fails alone. A call
may not change module variables, because other engines would not have the change.

A call that does not end shows its first row and the count of its rows. The engine that starts again calls the code row by row
(`Timeline.is_row_by_row`), and so finds the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.code import ModuleUse
from hotspare.model.code_windows import copied_fields
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.chunk import Chunk, Int64s, Timeline, UInt8s, all_true
from hotspare.rows.elementwise import halved, with_nulls
from hotspare.rows.refusals import NOTHING_REFUSED, Refusals
from hotspare.scripting.contract import CallingConvention, ProgramText
from hotspare.scripting.fields import describe_kind
from hotspare.scripting.languages import compile_user_code
from hotspare.scripting.python.column_guards import OpaqueColumn, opaque_values
from hotspare.scripting.python.instance import place_of_line
from hotspare.scripting.python.meter import PythonLimits
from hotspare.scripting.python.program import CallFailure, CallTooLarge, Interpreter, PythonText
from hotspare.table.pages import Page
from hotspare.windows.python_columns.declaration import PythonColumnsWindow
from hotspare.windows.shared.contract import OperatorInput
from hotspare.windows.shared.rowwise import RowWindow
from hotspare.windows.shared.stateless import Evaluation, RowFunction, delete_mask

_TEXTS = (FieldType.STRING, FieldType.BLOB)
_UNIFORM = frozenset({bool, int, float, str, bytes})
"""Types of Python: a list of values of one of these types always has the same Arrow type."""


_HINT = "see docs/windows/python.md#over-columns; a window of the type python takes one event at a time, and may do more"


class PythonColumnsOperator(RowWindow):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        declared = cast(PythonColumnsWindow, window.window)
        text = ProgramText(
            str(window.id), declared.script, modules=window.modules, calling_convention=CallingConvention.WITH_COLUMNS
        )
        compile_user_code(text)
        given = inputs[0].schema
        copied = frozenset(copied_fields(declared, given, window.schema))
        function = ColumnFunction.from_program_text(text, given, window.schema, copied)
        try:
            function.check()
        except CallFailure as failure:
            place = place_of_line(declared.script.code.place, failure.line)
            message = f"function {declared.script.function} of {text.display_name} fails for any events: {failure.text}"
            raise ProjectError(text.name, [Mistake(place, message, _HINT)]) from failure
        super().__init__(window, inputs, function)
        self._columns_function = function

    @property
    def head_function(self) -> None:
        """User code runs in the core only, where its calls are watched."""
        return

    def _function(self, page: Page, given: Chunk, timeline: Timeline) -> RowFunction:
        return _ShownFunction(self._columns_function, given.rank, timeline)


class _ShownFunction(RowFunction):
    """Evaluates `function` for the rows of a chunk, piece after piece, and shows its calls. `rank`: the rank of each row."""

    def __init__(self, function: ColumnFunction, rank: Int64s, timeline: Timeline) -> None:
        self._by, self._rank, self._timeline = function, rank, timeline
        self._done = 0

    @property
    def fields(self) -> tuple[str, ...]:
        return self._by.fields

    @property
    def picks(self) -> tuple[int, ...]:
        return self._by.picks

    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        begin, slot = self._done, self._timeline.slot
        self._done += len(opcode)
        rank = self._rank[begin : self._done]

        def show_call(first: int, end: int) -> None:
            slot.begin_call(rank.item(first), 1 if rank[first] == rank[end - 1] else end - first)

        rows_max = 1 if self._timeline.is_row_by_row else len(opcode)
        done = self._by.evaluate_in_calls(columns, opcode, max(1, rows_max), show_call)
        slot.end_window()
        return done


@dataclass(frozen=True)
class ColumnFunction(RowFunction):
    """Calls the function `function` of a Python text with columns of events. `used`: the fields of the schema `given` whose columns
    the function gets, by name.

    The function returns columns for the fields of `returned_schema` that are not `copied`; the fields that it leaves out are null.
    """

    text: str
    name: str
    modules: tuple[tuple[str, str], ...]
    snippets: tuple[tuple[str, str], ...]
    function: str
    used: tuple[str, ...]
    given: Schema
    returned_schema: Schema
    copied: frozenset[str]
    init: str
    transient: tuple[str, ...]
    limits: PythonLimits

    @classmethod
    def from_program_text(cls, text: ProgramText, given: Schema, made: Schema, copied: frozenset[str]) -> ColumnFunction:
        """Builds the function from a text that has been compiled before. `made`: the schema of the window; `copied`: fields that
        pass through.
        """
        script = text.script
        limits = PythonLimits(steps=script.limits.steps_max, kept_bytes=script.limits.state_bytes_max)
        texts = {use: tuple((each.name, each.code.text) for each in text.modules if each.use is use) for use in ModuleUse}
        used = script.use.chosen_names(given)
        return cls(
            text=script.code.text,
            name=text.name,
            modules=texts[ModuleUse.MODULE],
            snippets=texts[ModuleUse.SNIPPET],
            function=script.function,
            used=used,
            given=given,
            returned_schema=made,
            copied=copied,
            init=script.init,
            transient=script.transient,
            limits=limits,
        )

    @property
    def fields(self) -> tuple[str, ...]:
        return self.used

    @cached_property
    def picks(self) -> tuple[int, ...]:
        return tuple(self.given.index[name] if name in self.copied else -1 for name in self.returned_schema.names)

    @cached_property
    def _free(self) -> list[Interpreter]:
        """Idle interpreters. A call pops one, or opens a new one, and appends it afterwards; so threads share none."""
        return []

    @cached_property
    def _texts(self) -> tuple[PythonText, Mapping[str, PythonText], Mapping[str, PythonText]]:
        names = [name for name, _ in self.modules]
        modules = {name: PythonText.from_source(text, name, names, CallingConvention.WITH_COLUMNS) for name, text in self.modules}
        snippets = {
            name: PythonText.from_source(text, f"snippet {name}", names, CallingConvention.WITH_COLUMNS)
            for name, text in self.snippets
        }
        return PythonText.from_source(self.text, self.name, names, CallingConvention.WITH_COLUMNS), modules, snippets

    def open_interpreter(self) -> Interpreter:
        """Returns a new interpreter with the code loaded. Raises Unloadable."""
        main, modules, snippets = self._texts
        return Interpreter(main, modules, self.limits, snippets, init=self.init, transient=self.transient)

    def check(self) -> None:
        """Calls the function without rows; its path does not depend on rows. Raises CallFailure if the function would fail whatever
        the rows.
        """
        columns = {name: pa.nulls(0, ARROW_TYPE[self.given.fields[self.given.index[name]].type]) for name in self.used}
        self._called(self.open_interpreter(), columns, 0, [i for i, pick in enumerate(self.picks) if pick < 0])

    def evaluate(self, columns: Mapping[str, pa.Array], opcode: UInt8s) -> Evaluation:
        return self.evaluate_in_calls(columns, opcode, max(1, len(opcode)), lambda begin, end: None)

    def evaluate_in_calls(
        self, columns: Mapping[str, pa.Array], opcode: UInt8s, rows_max: int, show_call: Callable[[int, int], None]
    ) -> Evaluation:
        """Evaluates rows in calls of at most `rows_max` rows each. Calls `show_call` with the numbers of the first row and of the
        row after the last before each call of user code."""
        interpreter = self._free.pop() if self._free else self.open_interpreter()
        computed, count = [i for i, pick in enumerate(self.picks) if pick < 0], len(opcode)

        def attempt(first: int, begin: int, end: int) -> list[pa.Array]:
            piece = {name: column.slice(first + begin, end - begin) for name, column in columns.items()}
            show_call(first + begin, first + end)
            return self._called(interpreter, piece, end - begin, computed)

        parts = [
            part._replace(begin=first + part.begin)
            for first in range(0, count, rows_max)
            for part in halved(partial(attempt, first), min(rows_max, count - first), lambda error: isinstance(error, CallFailure))
        ]
        self._free.append(interpreter)
        types = [ARROW_TYPE[self.returned_schema.fields[i].type] for i in computed]
        pieces = [[pa.nulls(1, type_) for type_ in types] if part.result is None else part.result for part in parts]
        whole = {
            i: pieces[0][at] if len(pieces) == 1 else pa.concat_arrays([pa.nulls(0, types[at]), *(piece[at] for piece in pieces)])
            for at, i in enumerate(computed)
        }
        passes, failed = all_true(len(opcode)), [part for part in parts if part.error is not None]
        passes[[part.begin for part in failed]] = False
        return Evaluation(passes, whole, _refusals(self.function, [(part.begin, part.error) for part in failed], opcode))

    def _called(
        self, interpreter: Interpreter, columns: dict[str, pa.Array], count: int, computed: Sequence[int]
    ) -> list[pa.Array]:
        function = interpreter.function(self.function)
        if function is None:
            raise CallFailure(f"there is no function {self.function}")
        returned = interpreter.call_without_state(function, ({name: OpaqueColumn(values) for name, values in columns.items()},))
        if not isinstance(returned, dict):
            raise CallFailure(f"returns {describe_kind(returned)}, not a dict of columns")
        made = []
        for i in computed:
            field = self.returned_schema.fields[i]
            try:
                made.append(_fitted(dict.get(returned, field.name), field.type, count))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise CallFailure(f"field {field.name}: {str(error)[:200]}") from error
        return made


def _fitted(values: Any, type_: FieldType, count: int) -> pa.Array:
    """Returns returned values as an array of `ARROW_TYPE[type_]` with `count` values: a column, one value for all rows, or None for
    nulls. Raises Arrow's errors, TypeError, ValueError.
    """
    target = ARROW_TYPE[type_]
    if values is None:
        return pa.nulls(count, target)
    if type(values) is OpaqueColumn:
        values = opaque_values(values)
        return _cast(values, type_) if isinstance(values, pa.Array) else _of_list(list(values), type_)
    if isinstance(values, list | tuple | pa.Array) and not type_.is_array:
        raise TypeError("is a list or array that the code built; compute it from a column, or return one value for all rows")
    return _cast(pa.repeat(values if isinstance(values, pa.Scalar) else pa.scalar(values), count), type_)


def _of_list(values: list[Any], type_: FieldType) -> pa.Array:
    """Returns a list of one value per row as an array of `ARROW_TYPE[type_]`. Values of each kind are converted separately, since
    Arrow would first convert all of them to one type.
    """
    kinds = set(map(type, values)) - {type(None)}
    if type_ in _TEXTS or not kinds or (len(kinds) == 1 and kinds <= _UNIFORM):
        return _cast(pa.array(values, ARROW_TYPE[type_] if type_ in _TEXTS else None), type_)
    of_rows = list(map(_kind, values))
    made = [
        _cast(pa.array([value if of_row == kind else None for value, of_row in zip(values, of_rows, strict=True)]), type_)
        for kind in dict.fromkeys(of_rows)
    ]
    return pc.coalesce(*made)


def _kind(value: Any) -> Any:
    """Returns the kind of a value: Arrow gives two values of one kind the same type if each is converted alone."""
    if isinstance(value, pa.Scalar):
        return value.type
    if isinstance(value, list | tuple):
        return (list, frozenset(map(_kind, value)))
    if isinstance(value, Decimal):
        return (Decimal, len(value.as_tuple().digits), value.as_tuple().exponent)
    return (type(value), value.tzinfo) if isinstance(value, datetime) else type(value)


def _cast(values: pa.Array, type_: FieldType) -> pa.Array:
    target = ARROW_TYPE[type_]
    if values.type == target:
        if type_ in _TEXTS:
            values.validate(full=True)
        return values
    if type_ is FieldType.STRING and not (pa.types.is_large_string(values.type) or pa.types.is_null(values.type)):
        raise TypeError(f"{values.type} is not text; cast it")
    if pa.types.is_floating(values.type) and type_ is not FieldType.DOUBLE:
        values = with_nulls(values, np.flatnonzero(pc.is_nan(values).to_numpy(zero_copy_only=False)))
        values = pc.round(values, 4) if type_ is FieldType.MONEY else pc.trunc(values)
    if type_ in TIME_TYPES and not pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return values.cast(target)


def _sentence(function: str, error: Exception | None) -> str:
    line = getattr(error, "line", 0)
    return f"{function}: {f'line {line}: ' if line else ''}{getattr(error, 'text', '')}"


def _refusals(function: str, failed: Sequence[tuple[int, Exception | None]], opcode: UInt8s) -> Refusals:
    """Returns the refused rows, except deletes: the event that introduced their values was already reported."""
    told = [(row, error) for row, error in failed if not delete_mask(opcode[row : row + 1])[0]]
    if not told:
        return NOTHING_REFUSED
    causes = [
        (str(BadReason.CODE_LIMIT if isinstance(e, CallTooLarge) else BadReason.CODE), _sentence(function, e)) for _, e in told
    ]
    return Refusals.from_causes(np.array([row for row, _ in told], np.int64), np.arange(len(told)), causes)
