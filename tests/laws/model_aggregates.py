"""Aggregate functions in plain Python, computed from all rows of a group each time, with fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.laws.model_windows import Event, Row

INT64_MAX = 2**63 - 1


class Unfit(Exception):
    """A sum does not fit its type."""


def nearest(value: Fraction) -> float:
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def odd(values: Sequence[float]) -> float:
    """Returns the sum of all values that are not finite; 0.0 without such values."""
    return sum((v for v in values if not math.isfinite(v)), 0.0)


def exact(values: Sequence[float]) -> float:
    """Returns their sum, rounded once."""
    strange = odd(values)
    return strange if strange != 0.0 else nearest(sum(map(Fraction, values), Fraction(0)))


def product(x: float, y: float) -> Any:
    if math.isfinite(x) and math.isfinite(y):
        return Fraction(x) * Fraction(y)
    return x * y


def of_products(pairs: Sequence[tuple[float, float]]) -> float:
    made = [product(x, y) for x, y in pairs]
    strange = odd([each for each in made if isinstance(each, float)])
    return strange if strange != 0.0 else nearest(sum(made, Fraction(0)))


def mean(values: Sequence[float]) -> float:
    total = exact(values)
    if math.isinf(total) and odd(values) == 0.0:
        return nearest(sum(map(Fraction, values), Fraction(0)) / 2**128) / len(values) * 2.0**128
    return total / len(values)


def css(values: Sequence[float]) -> float:
    if any(not math.isfinite(v) for v in values):
        return math.nan
    fractions = [Fraction(v) for v in values]
    return nearest(len(values) * sum(f * f for f in fractions) - sum(fractions) ** 2) / len(values)


def variance(values: Sequence[float]) -> float | None:
    return css(values) / (len(values) - 1) if len(values) > 1 else None


def deviation(values: Sequence[float]) -> float | None:
    found = variance(values)
    return None if found is None else math.sqrt(found)


def variation(values: Sequence[float]) -> float | None:
    std, average = deviation(values), mean(values)
    if std is None or average == 0.0:
        return None
    found = 100.0 * std / average
    return None if math.isinf(found) else found


def weighted(pairs: Sequence[tuple[float, float]]) -> float | None:
    weights = exact([w for _, w in pairs])
    return of_products(pairs) / weights if weights != 0.0 else None


def in_order(values: Sequence[Any]) -> list[Any]:
    """Returns values in order, with NaN last, and -0.0 as 0.0."""
    plain = [v + 0.0 if isinstance(v, float) else v for v in values]
    return sorted(plain, key=lambda v: (v != v, 0.0 if v != v else v.encode() if isinstance(v, str) else v))


def mode(values: Sequence[Any]) -> Any:
    counts: dict[Any, int] = {}
    names = ["nan" if v != v else v for v in in_order(values)]
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    best = next(name for name in names if counts[name] == max(counts.values()))
    return math.nan if best == "nan" and not isinstance(values[0], str) else best


def distinct(values: Sequence[Any]) -> int:
    return len({"nan" if v != v else v for v in values})


def percentile(values: Sequence[Any], share: float) -> float:
    ordered = [float(v) for v in in_order(values)]
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    a, b = ordered[low], ordered[high]
    return a if a == b or low == high else (high - place) * a + (place - low) * b


def whole_sum(values: Sequence[int]) -> int:
    total = sum(values)
    if not -INT64_MAX - 1 <= total <= INT64_MAX:
        raise Unfit
    return total


def some(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a function that gives None for an empty list."""
    return lambda values: function(values) if values else None


def known(rows: Sequence[Row], column: int) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


@dataclass
class Group:
    """Rows by their key, in order of arrival, where a changed row is a new arrival; and the history of its events."""

    rows: dict[Any, Row] = field(default_factory=dict)
    events: list[tuple[str, Row]] = field(default_factory=list)

    def take(self, opcode: str, new: Row | None, old: Row | None) -> None:
        if old is not None:
            self.rows.pop(old[0])
        if new is not None:
            self.rows[new[0]] = new
        last = new or old
        assert last is not None
        self.events.append((opcode, last))


def _is_evicted_by(event: Event, behind: Sequence[Event]) -> bool:
    """Whether the row of the next event, for which this one was evicted, enters the same group: they change the group at once."""
    if event.opcode != "D" or "R" not in event.flags or not behind or event.row[1] is None:
        return False
    came = behind[0]
    if came.opcode not in ("I", "UB") or "R" in came.flags or came.row[1] != event.row[1]:
        return False
    return came.opcode == "I" or behind[1].row[1] != came.row[1]


@dataclass
class Groups:
    """Groups of rows, identified by column 1."""

    groups: dict[Any, Group] = field(default_factory=dict)

    def take(self, events: Sequence[Event]) -> None:
        """Applies resolved events."""
        rest = list(events)
        while rest:
            event = rest.pop(0)
            if _is_evicted_by(event, rest):
                came = rest.pop(0)
                if came.opcode == "UB":
                    self._change("D", None, rest.pop(0).row)
                self.groups[event.row[1]].take("D", None, event.row)
                self._change("I", came.row, None)
            elif event.opcode == "UB":
                old = rest.pop(0).row
                if old[1] == event.row[1]:
                    self._change("U", event.row, old)
                else:
                    self._change("D", None, old)
                    self._change("I", event.row, None)
            elif event.opcode == "D":
                self._change("D", None, event.row)
            else:
                self._change("I", event.row, None)

    def _change(self, opcode: str, new: Row | None, old: Row | None) -> None:
        key = (new or old or ())[1]
        if key is None:
            return
        group = self.groups.setdefault(key, Group())
        group.take(opcode, new, old)
        if not group.rows:
            del self.groups[key]
