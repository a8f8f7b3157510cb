"""The rows over which an expression is evaluated, and the failures found while it is evaluated.

ANSI errors belong to a row: a kernel that fails marks the row and puts null in its place, and the other rows continue. The first
failure of a row, in order of evaluation, is the one reported; so a row's result never depends on its neighbours (law Cut).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.elementwise import Rows, attempt_rows, true_rows, with_nulls

Value: TypeAlias = Any
"""A pyarrow Array with one element per row of the frame, or a Scalar for all rows."""
Kernel: TypeAlias = Callable[..., Value]
_NO_ROWS: Rows = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Failure:
    row: int
    reason: BadReason
    message: str


@dataclass(frozen=True, slots=True)
class Failures:
    """The failed rows, ascending, and for each row the index of its cause in `causes`. Iteration yields one Failure per row."""

    rows: Rows
    cause_index: Rows
    causes: tuple[tuple[BadReason, str], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Failure]:
        return (Failure(row, *self.causes[cause]) for row, cause in zip(self.rows.tolist(), self.cause_index.tolist(), strict=True))


NO_FAILURES = Failures(_NO_ROWS, _NO_ROWS, ())


class FailureLedger:
    """The first failure of each row of a batch. `first` has one entry per row: 0 without failure, else the index in `causes` plus
    1.
    """

    def __init__(self, length: int) -> None:
        self.first: Rows = np.zeros(length, np.int64)
        self.causes: list[tuple[BadReason, str]] = []

    def record_row_failure(self, rows: Rows, reason: BadReason, message: str) -> None:
        cause = (reason, message)
        if cause not in self.causes:
            self.causes.append(cause)
        self.first[rows[self.first[rows] == 0]] = self.causes.index(cause) + 1

    @property
    def rows(self) -> Rows:
        return np.flatnonzero(self.first)


class Frame:
    """Columns by name, all of `length` rows. `select` returns a frame over chosen rows that records failures in the same ledger."""

    def __init__(self, columns: Mapping[str, Value], length: int, memo: dict[Any, Any] | None = None) -> None:
        """Wraps the columns. `memo`: a cache of results computed from texts, such as parsed documents; None begins an empty one."""
        self.length = length
        self.failures: FailureLedger | None = None
        self._columns = columns
        self._rows: Rows | None = None
        self._whole = self
        self._variables: dict[str, Value] = {}
        self.memo: dict[Any, Any] = {} if memo is None else memo

    def column(self, name: str) -> Value:
        return self._mine(self._columns[name])

    def variable(self, name: str) -> Value:
        """Returns the values of a variable of the running block, for the rows of this frame."""
        return self._mine(self._whole._variables[name])

    def assign(self, name: str, value: Value) -> None:
        """Assigns `value` to a variable of the running block, for the rows of this frame only."""
        variables = self._whole._variables
        if self._rows is None:
            variables[name] = self.array(value)
            return
        before = variables[name]
        place = np.arange(self._whole.length)
        place[self._rows] = self._whole.length + np.arange(self.length)
        variables[name] = pa.concat_arrays([before, self.array(value)]).take(pa.array(place))

    def nested(self, variables: Mapping[str, Value]) -> Frame:
        """Returns a frame of the same rows to run a block in. It has `variables` and a ledger of failures of its own."""
        inner = Frame(_Columns(self), self.length, self.memo)
        inner._variables = dict(variables)
        return inner

    def _mine(self, value: Value) -> Value:
        if self._rows is None or isinstance(value, pa.Scalar):
            return value
        return value.take(pa.array(self._rows))

    def select(self, rows: Rows) -> Frame:
        """Returns a frame over the rows of this frame at the indexes `rows`. It records failures in the same ledger."""
        frame = Frame(self._columns, len(rows), self.memo)
        frame._rows = rows if self._rows is None else self._rows[rows]
        frame._whole = self._whole
        return frame

    def fail(self, rows: Rows, message: str, reason: BadReason = BadReason.EXPRESSION) -> None:
        """Marks rows of this frame as failed; a row keeps its first failure."""
        if len(rows) == 0:
            return
        whole = self._whole
        if whole.failures is None:
            whole.failures = FailureLedger(whole.length)
        whole.failures.record_row_failure(rows if self._rows is None else self._rows[rows], reason, message)

    def fail_from(self, inner: Frame) -> None:
        """Copies the failures of a nested frame over the same rows to this frame."""
        if inner.failures is None:
            return
        for number, (reason, message) in enumerate(inner.failures.causes):
            self.fail(np.flatnonzero(inner.failures.first == number + 1), message, reason)

    def array(self, value: Value) -> Value:
        """Returns `value`, an array or a scalar, as an array of this frame's length."""
        if isinstance(value, pa.Scalar):
            return pa.nulls(self.length, value.type) if not value.is_valid else pa.repeat(value, self.length)
        return value

    def fail_where(self, value: Value, wrong: Value, message: str, reason: BadReason = BadReason.EXPRESSION) -> Value:
        """Returns `value` with null in the rows for which `wrong` (boolean) is true. Those rows fail with `message`."""
        bad = true_rows(self.array(wrong))
        if len(bad) == 0:
            return value
        self.fail(bad, message, reason)
        return with_nulls(self.array(value), bad)

    def failed_rows(self) -> Rows:
        """Returns the rows of the whole batch that failed so far, ascending."""
        return _NO_ROWS if self._whole.failures is None else self._whole.failures.rows

    def attempt(
        self,
        kernel: Kernel,
        arguments: Sequence[Value],
        message: str,
        type_: pa.DataType,
        reason: BadReason = BadReason.EXPRESSION,
        wrong: Callable[..., Rows] | None = None,
    ) -> Value:
        """Returns `kernel(*arguments)`. Rows for which the kernel raises ArrowInvalid fail with `message` and are null.

        The kernel must be elementwise. Failing rows are found by halving, so a batch without failures costs nothing extra. `wrong`,
        if given, computes all failing rows from the arguments at once, which avoids the halving.
        """
        try:
            return kernel(*arguments)
        except pa.ArrowInvalid:
            arrays = [self.array(a) for a in arguments]
        known = _NO_ROWS if wrong is None else wrong(*arrays)
        result, bad = attempt_rows(kernel, [with_nulls(array, known) for array in arrays], type_)
        self.fail(known, message, reason)
        self.fail(bad, message, reason)
        return result


class _Columns(Mapping[str, Value]):
    """The columns of a frame, restricted to its rows. Each column is computed at its first use and cached."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._made: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._made:
            self._made[name] = self._frame.column(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frame._columns)

    def __len__(self) -> int:
        return len(self._frame._columns)


class RowPieces:
    """Collects values of disjoint sets of rows. `joined` returns them in the order of rows; every row must have been added."""

    def __init__(self, length: int, type_: pa.DataType) -> None:
        self._length = length
        self._type = type_
        self._rows: list[Rows] = []
        self._values: list[pa.Array] = []

    def add(self, rows: Rows, values: pa.Array) -> None:
        self._rows.append(rows)
        self._values.append(values.cast(self._type))

    def joined(self) -> pa.Array:
        place = np.empty(self._length, np.int64)
        place[np.concatenate(self._rows)] = np.arange(self._length)
        return pa.concat_arrays(self._values).take(pa.array(place))
