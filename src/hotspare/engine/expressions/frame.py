"""The rows that an expression is evaluated over, and the failures met on the way.

ANSI errors belong to a row: a kernel that fails marks the row and puts null in its place, and the other rows go on. The first
failure of a row, in order of evaluation, is the one reported; so what happens to a row never depends on its neighbours (law Cut).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from hotspare.engine.rows.bad_reasons import BadReason
from hotspare.engine.rows.elementwise import Rows, attempt_rows, true_rows, with_nulls

Value: TypeAlias = Any
"""A pyarrow Array of as many rows as the frame has, or a Scalar that stands for all of them."""
Kernel: TypeAlias = Callable[..., Value]
_NO_ROWS: Rows = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Failure:
    row: int
    reason: BadReason
    message: str


@dataclass(frozen=True, slots=True)
class Failures:
    """Rows that failed, rising, and for each the number of its cause among `causes`. As a sequence: one Failure per row."""

    rows: Rows
    cause: Rows
    causes: tuple[tuple[BadReason, str], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Failure]:
        return (Failure(row, *self.causes[cause]) for row, cause in zip(self.rows.tolist(), self.cause.tolist(), strict=True))


NO_FAILURES = Failures(_NO_ROWS, _NO_ROWS, ())


class Ledger:
    """Per row of a batch the first failure met: 0 for none, else 1 more than the number of its cause."""

    def __init__(self, length: int) -> None:
        self.first: Rows = np.zeros(length, np.int64)
        self.causes: list[tuple[BadReason, str]] = []

    def note(self, rows: Rows, reason: BadReason, message: str) -> None:
        cause = (reason, message)
        if cause not in self.causes:
            self.causes.append(cause)
        self.first[rows[self.first[rows] == 0]] = self.causes.index(cause) + 1

    @property
    def rows(self) -> Rows:
        return np.flatnonzero(self.first)


class Frame:
    """Columns by name, all of `length` rows, in which a sub-frame of chosen rows can be evaluated on its own."""

    def __init__(self, columns: Mapping[str, Value], length: int) -> None:
        self.length = length
        self.failures: Ledger | None = None
        self._columns = columns
        self._rows: Rows | None = None
        self._whole = self

    def column(self, name: str) -> Value:
        array = self._columns[name]
        if self._rows is None or isinstance(array, pa.Scalar):
            return array
        return array.take(pa.array(self._rows))

    def select(self, rows: Rows) -> Frame:
        """The frame of these rows of this frame; failures go to the same place."""
        frame = Frame(self._columns, len(rows))
        frame._rows = rows if self._rows is None else self._rows[rows]
        frame._whole = self._whole
        return frame

    def fail(self, rows: Rows, message: str, reason: BadReason = BadReason.EXPRESSION) -> None:
        """Mark rows of this frame; a row keeps its first failure."""
        if len(rows) == 0:
            return
        whole = self._whole
        if whole.failures is None:
            whole.failures = Ledger(whole.length)
        whole.failures.note(rows if self._rows is None else self._rows[rows], reason, message)

    def array(self, value: Value) -> Value:
        """The value as an array of this frame's length."""
        if isinstance(value, pa.Scalar):
            return pa.nulls(self.length, value.type) if not value.is_valid else pa.repeat(value, self.length)
        return value

    def refuse(self, value: Value, wrong: Value, message: str, reason: BadReason = BadReason.EXPRESSION) -> Value:
        """`value` with null where `wrong` (boolean) is true; those rows fail with `message`."""
        bad = true_rows(self.array(wrong))
        if len(bad) == 0:
            return value
        self.fail(bad, message, reason)
        return with_nulls(self.array(value), bad)

    def failed_rows(self) -> Rows:
        """Rows of the whole batch that failed so far, rising."""
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
        """`kernel(*arguments)`; rows for which it raises ArrowInvalid fail with `message` and are null.

        The kernel must be elementwise. Bad rows are found by halving, so good batches cost nothing extra. Where `wrong` tells them
        from the arguments, as arrays, all at once, each costs no more than a good one.
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
