"""Columns as user code sees them. Code cannot see a single row, nor the number of rows, so a row has the same result in any batch.

| code | result |
|---|---|
| a function of `pyarrow.compute` that works row by row | a column |
| `[f(x) for x in column]`, also over `zip(column, column)` | a column. `f` sees one row, and nothing that another could change |
| anything else with a column | TypeError |

So the path of the code does not depend on the rows, except for errors: an error of any row ends the call, even if the code catches
it.
"""

from __future__ import annotations

import builtins
import datetime
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from types import FunctionType
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from hotspare.scripting.python.namespaces import Namespace, is_own_class
from hotspare.scripting.python.plain_values import has_only_parts, plain_value

CHANGES_VARIABLES = "the function changes module variables, which one over columns cannot keep"
_HIDDEN = "a function over columns cannot see single rows, nor how many there are"
_PLAIN = (bool, int, float, str, bytes, type(None))
_VALUES = (*_PLAIN, Decimal, datetime.date, datetime.time, datetime.timedelta, pa.Scalar)
"""The immutable types that a comprehension over a column may return for a row."""
_Result = TypeVar("_Result")


class Zipped:
    """Columns that code iterates together. Each iteration begins at the first row and yields one tuple per row."""

    def __init__(self, columns: Sequence[Iterable[Any]]) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return builtins.zip(*self._columns, strict=True)


class OpaqueColumn:
    """A column of a batch as user code sees it. Its rows and their number are hidden. `_values`: an Arrow array, or the values that
    the code computed for each row.
    """

    __slots__ = ("_values",)

    def __init__(self, values: pa.Array | list[Any] | Zipped) -> None:
        self._values = values

    def __repr__(self) -> str:
        return "<column>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(f"{_HIDDEN}; use a function of pyarrow.compute, or [f(x) for x in column]")

    __len__ = __iter__ = __getitem__ = __contains__ = __bool__ = __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]


OpaqueColumn.__name__ = "column"


def opaque_values(column: OpaqueColumn) -> pa.Array | list[Any] | Zipped:
    """Returns the values of a column, for the engine."""
    return column._values


class ColumnGuards:
    """The guards for columns of one instance of a program, with the first error of a row in the current call."""

    def __init__(self) -> None:
        self._failed: Exception | None = None
        self._is_changed: Callable[[], bool] = bool
        self._may_bind = False

    def set_change_check(self, has_kept_changes: Callable[[], bool], rebound: Collection[str]) -> None:
        """Sets how changes of module variables are detected. `has_kept_changes`: returns whether any is changed. `rebound`: the
        variables that functions may bind, and could bind back unnoticed.
        """
        self._is_changed, self._may_bind = has_kept_changes, bool(rebound)

    def begin_call(self) -> None:
        """Begins a call: clears the error of the previous call."""
        self._failed = None

    def raise_row_error(self) -> None:
        """Raises the first error of a row in this call, even if the code caught that error, because without the row the code would
        take another path."""
        if self._failed is not None:
            raise self._failed

    def run_rowwise(self, work: Callable[[], _Result]) -> _Result:
        """Returns the result of `work`. An error may come from a single row, so it is recorded for `raise_row_error` and raised."""
        try:
            return work()
        except Exception as error:
            self._failed = self._failed or error
            raise

    def map_column(self, values: Any, comprehension: FunctionType) -> Any:
        """Returns the result of the comprehension over `values`. If `values` is a column, the comprehension runs once per row and
        the result is a column.
        """
        if type(values) is not OpaqueColumn:
            return comprehension(values)
        return self.run_rowwise(lambda: OpaqueColumn(self._map_rows(opaque_values(values), comprehension)))

    def _map_rows(self, rows: Iterable[Any], comprehension: FunctionType) -> list[Any]:
        for name, cell in builtins.zip(comprehension.__code__.co_freevars, comprehension.__closure__ or (), strict=True):
            if not has_only_parts(cell.cell_contents, _fixed_parts):
                hint = "make it a module variable, or make it in a function that the comprehension calls"
                raise TypeError(f"the local variable {name}, which a comprehension over a column uses, could change: {hint}")
        made: list[Any] = comprehension(self._refuse_changes(rows) if self._may_bind else rows)
        if set(map(type, made)).issubset(_PLAIN):
            return made
        return [_row_value(each) for each in made]

    def _refuse_changes(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yields the rows. Raises TypeError if module variables were changed before a row, or while the code computed it."""
        for row in rows:
            if self._is_changed():
                break
            yield row
        if self._is_changed():
            raise TypeError(CHANGES_VARIABLES)

    def zip(self, *columns: Any, strict: Any = None) -> Any:
        """Implements `zip` of user code. If all arguments are columns, returns a column of tuples. Raises TypeError if only some
        are columns.
        """
        kinds = set(map(type, columns))
        if OpaqueColumn not in kinds:
            return builtins.zip(*columns, strict=bool(strict))
        if kinds != {OpaqueColumn}:
            raise TypeError(f"{_HIDDEN}: zip a column with columns alone")
        return OpaqueColumn(Zipped(list(map(opaque_values, columns))))

    def column_function(self, function: Callable[..., Any], arity: Any) -> Callable[..., Any]:
        """Returns `function`, an Arrow function that works row by row, for columns. `arity`: the number of leading arguments that
        may be columns, `...` for all. Raises TypeError for a column elsewhere.
        """

        def call(*arguments: Any, **options: Any) -> Any:
            if OpaqueColumn not in set(map(type, (*arguments, *options.values()))):
                return function(*arguments, **options)
            count = len(arguments) if arity is ... else arity
            others = arguments[count:]
            if OpaqueColumn in set(map(type, (*others, *options.values()))):
                raise TypeError(f"an option of {call.__name__} is a column: it must be the same for all rows")
            return self.run_rowwise(lambda: OpaqueColumn(function(*map(_argument, arguments[:count]), *others, **options)))

        call.__name__ = function.__name__
        return call

    def array(self, values: Any, type: Any = None) -> Any:
        """Implements `pyarrow.array` of user code. For a column, returns a column of `type`. Raises TypeError if the code gives a
        column without a type.
        """
        if not isinstance(values, OpaqueColumn):
            return pa.array(values, type)
        if not isinstance(type, pa.DataType):
            raise TypeError("the type of a column must not depend on its rows: give it, as in array(column, pyarrow.float64())")
        found = opaque_values(values)
        return self.run_rowwise(
            lambda: OpaqueColumn(found.cast(type) if isinstance(found, pa.Array) else pa.array(list(found), type))
        )


def _argument(value: Any) -> Any:
    """Returns an argument for an Arrow function: the array of a column, or a scalar. A list becomes one scalar, because Arrow would
    take it for a column with rows of its own.
    """
    if type(value) is not OpaqueColumn:
        return value if isinstance(value, pa.Scalar) else pa.scalar(plain_value(value))
    found = opaque_values(value)
    if not isinstance(found, pa.Array):
        raise TypeError("what a comprehension makes has no type yet: give it one, as in array(column, pyarrow.float64())")
    return found


def _fixed_parts(value: Any) -> tuple[Any, ...] | None:
    """Returns the parts of an immutable value, and None for a mutable one. A column counts as immutable without parts."""
    if type(value) is tuple:
        return value
    is_fixed = isinstance(value, (*_VALUES, OpaqueColumn, Namespace, pa.DataType)) and not is_own_class(type(value))
    return () if is_fixed else None


def _row_value(value: Any) -> Any:
    """Returns the value of a row as a value for a field, or a list of such values. Raises TypeError for any other object, because
    code in that object could see later rows.
    """
    made = plain_value(value)
    if isinstance(made, list | tuple):
        return [_row_value(each) for each in made]
    if not isinstance(made, _VALUES) or is_own_class(type(made)):
        raise TypeError(f"a comprehension over a column makes an object of type {type(made).__name__}: make values of fields")
    return made
