"""Columns as user code sees them. It cannot see a single row, nor the number of rows, so a row has the same result in any batch.

| code | result |
|---|---|
| a function of `pyarrow.compute` that works row by row | a column |
| `[f(x) for x in column]`, also over `zip(column, column)` | a column. `f` sees one row, and nothing that another could change |
| anything else with a column | TypeError |

So the path of the code does not depend on the rows, except for errors: an error of some row ends the call, even if it is caught.
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
from hotspare.scripting.python.plain_values import holds_only, plain_value

CHANGES = "the function changes module variables, which one over columns cannot keep"
_HIDDEN = "a function over columns cannot see single rows, nor how many there are"
_PLAIN = (bool, int, float, str, bytes, type(None))
_VALUES = (*_PLAIN, Decimal, datetime.date, datetime.time, datetime.timedelta, pa.Scalar)
"""The immutable types that the result of a row may have."""
_Result = TypeVar("_Result")


class Zipped:
    """Columns that are iterated together. Each iteration begins at the first row."""

    def __init__(self, columns: Sequence[Iterable[Any]]) -> None:
        self._columns = columns

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return builtins.zip(*self._columns, strict=True)


class SeenColumn:
    """A column of a batch. `_values`: an Arrow array, or an iterable of the values that the code computed for each row."""

    __slots__ = ("_values",)

    def __init__(self, values: pa.Array | list[Any] | Zipped) -> None:
        self._values = values

    def __repr__(self) -> str:
        return "<column>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise TypeError(f"{_HIDDEN}; use a function of pyarrow.compute, or [f(x) for x in column]")

    __len__ = __iter__ = __getitem__ = __contains__ = __bool__ = __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]


SeenColumn.__name__ = "column"


def values_of(column: SeenColumn) -> pa.Array | list[Any] | Zipped:
    """Returns the values of a column, for the engine."""
    return column._values


class RowByRow:
    """The guards for columns of one instance of a program."""

    def __init__(self) -> None:
        self._failed: Exception | None = None
        self._is_changed: Callable[[], bool] = bool
        self._may_bind = False

    def watch(self, is_changed: Callable[[], bool], rebound: Collection[str]) -> None:
        """Sets the check for changes. `is_changed`: whether module variables are changed. `rebound`: those that some function may
        bind, and bind back.
        """
        self._is_changed, self._may_bind = is_changed, bool(rebound)

    def begin(self) -> None:
        """Begins a call."""
        self._failed = None

    def check(self) -> None:
        """Raises the first error of a row in this call, even if the code caught it: without that row the code would take another
        path.
        """
        if self._failed is not None:
            raise self._failed

    def of_rows(self, work: Callable[[], _Result]) -> _Result:
        """Returns the result of `work`, which may fail because of a single row."""
        try:
            return work()
        except Exception as error:
            self._failed = self._failed or error
            raise

    def each(self, values: Any, comprehension: FunctionType) -> Any:
        """Returns the comprehension over `values`; over a column it is another column."""
        if type(values) is not SeenColumn:
            return comprehension(values)
        return self.of_rows(lambda: SeenColumn(self._made(values_of(values), comprehension)))

    def _made(self, rows: Iterable[Any], comprehension: FunctionType) -> list[Any]:
        for name, cell in builtins.zip(comprehension.__code__.co_freevars, comprehension.__closure__ or (), strict=True):
            if not holds_only(cell.cell_contents, _fixed_parts):
                hint = "make it a module variable, or make it in a function that the comprehension calls"
                raise TypeError(f"the local variable {name}, which a comprehension over a column uses, could change: {hint}")
        made: list[Any] = comprehension(self._unchanged(rows) if self._may_bind else rows)
        if set(map(type, made)).issubset(_PLAIN):
            return made
        return [_row_value(each) for each in made]

    def _unchanged(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Raises TypeError if module variables were changed before a row, or with it."""
        for row in rows:
            if self._is_changed():
                break
            yield row
        if self._is_changed():
            raise TypeError(CHANGES)

    def zip(self, *columns: Any, strict: Any = None) -> Any:
        """Returns `zip(...)`, over columns a column."""
        kinds = set(map(type, columns))
        if SeenColumn not in kinds:
            return builtins.zip(*columns, strict=bool(strict))
        if kinds != {SeenColumn}:
            raise TypeError(f"{_HIDDEN}: zip a column with columns alone")
        return SeenColumn(Zipped(list(map(values_of, columns))))

    def function(self, function: Callable[..., Any], arity: Any) -> Callable[..., Any]:
        """Returns an Arrow function that works row by row, for columns. `arity`: the number of leading arguments that may be
        columns, `...` for any number.
        """

        def call(*arguments: Any, **options: Any) -> Any:
            if SeenColumn not in set(map(type, (*arguments, *options.values()))):
                return function(*arguments, **options)
            count = len(arguments) if arity is ... else arity
            others = arguments[count:]
            if SeenColumn in set(map(type, (*others, *options.values()))):
                raise TypeError(f"an option of {call.__name__} is a column: it must be the same for all rows")
            return self.of_rows(lambda: SeenColumn(function(*map(_argument, arguments[:count]), *others, **options)))

        call.__name__ = function.__name__
        return call

    def array(self, values: Any, type: Any = None) -> Any:
        """Returns `pyarrow.array(...)`; of a column, a column of the type."""
        if not isinstance(values, SeenColumn):
            return pa.array(values, type)
        if not isinstance(type, pa.DataType):
            raise TypeError("the type of a column must not depend on its rows: give it, as in array(column, pyarrow.float64())")
        found = values_of(values)
        return self.of_rows(lambda: SeenColumn(found.cast(type) if isinstance(found, pa.Array) else pa.array(list(found), type)))


def _argument(value: Any) -> Any:
    """Returns an argument for Arrow: a column's array, else a scalar, because Arrow would take a list for a column with rows of its
    own.
    """
    if type(value) is not SeenColumn:
        return value if isinstance(value, pa.Scalar) else pa.scalar(plain_value(value))
    found = values_of(value)
    if not isinstance(found, pa.Array):
        raise TypeError("what a comprehension makes has no type yet: give it one, as in array(column, pyarrow.float64())")
    return found


def _fixed_parts(value: Any) -> tuple[Any, ...] | None:
    """Returns the parts of an immutable value; None if it is mutable. A column has no visible parts."""
    if type(value) is tuple:
        return value
    is_fixed = isinstance(value, (*_VALUES, SeenColumn, Namespace, pa.DataType)) and not is_own_class(type(value))
    return () if is_fixed else None


def _row_value(value: Any) -> Any:
    """Returns a value for a field of an event, or a list of such values. Raises TypeError for any other object, because code in it
    could see later rows."""
    made = plain_value(value)
    if isinstance(made, list | tuple):
        return [_row_value(each) for each in made]
    if not isinstance(made, _VALUES) or is_own_class(type(made)):
        raise TypeError(f"a comprehension over a column makes an object of type {type(made).__name__}: make values of fields")
    return made
