"""The logic of a pattern as text: which events must arrive, in which order, within which time (SPEC A30).

    logic   = EVENT | OPERATOR [":" COUNT] ["{" DURATION "}"] "(" logic {"," logic} ")"

    fby(a, b, c)   a, later b, later c; events in between do not matter
    and(a, b)      both, in any order
    or(a, b)       one of them
    not(a)         the next event is not a; for other logic: that logic becomes false
    notoccur(a)    no a arrives while the operator around notoccur waits, or within the limit of notoccur
    is:n(a)        the next n events are all a
    seen:n(a)      n events are a; others in between do not matter

Operators are case-insensitive. A limit counts from the time at which its operator begins to wait: from the first event of the
match, or, as a later operand of a fby, from the completion of the previous one. An operator that is incomplete at its limit is
false, except that an event that must not occur has then not occurred.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from hotspare.model.durations import format_duration, parse_duration
from hotspare.model.names import nearest_names_hint

DEPTH_MAX = 50
NODES_MAX = 240
"""Limits of one pattern: on the depth of nesting, and on the number of events and operators together."""
COUNT_MAX = 1_000_000


class LogicOperator(Enum):
    FBY = "fby"
    AND = "and"
    OR = "or"
    NOT = "not"
    NOTOCCUR = "notoccur"
    IS = "is"
    SEEN = "seen"


OPERATORS = {each.value: each for each in LogicOperator}
COUNTING = frozenset({LogicOperator.IS, LogicOperator.SEEN})
"""Operators that have a count, such as `seen:3(a)`."""
OF_AN_EVENT = frozenset({LogicOperator.IS, LogicOperator.SEEN, LogicOperator.NOTOCCUR})
"""Operators whose operand is an event of interest, not other logic."""


@dataclass(frozen=True, slots=True)
class Event:
    """A leaf of the logic: the event of interest called `name`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with its operands. `limit_us`: its time limit in microseconds, 0 for none; `count`: 1 if it takes none."""

    operator: LogicOperator
    operands: tuple[Logic, ...]
    limit_us: int = 0
    count: int = 1

    def __str__(self) -> str:
        count = f":{self.count}" if self.operator in COUNTING else ""
        limit = f"{{{format_duration(self.limit_us)}}}" if self.limit_us else ""
        return f"{self.operator.value}{count}{limit}({', '.join(map(str, self.operands))})"


Logic: TypeAlias = Event | Operation


class LogicRefused(Exception):
    """Raised for a logic that is not valid; `hint` has what to write instead."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


_TOKEN = re.compile(
    r"\s*(?:(?P<limit>\{[^{}]*\})|(?P<count>:\s*[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>[(),])|(?P<end>$))"
)
_EXAMPLE = "write it as fby{1 minute}(a, b)"


def parse_logic(text: str) -> Logic:
    """Parses the text of a logic. Raises LogicRefused if the text is not valid."""
    reader = _Reader(text)
    logic = reader.logic(0)
    kind, rest = reader.next_token()
    if kind != "end":
        raise LogicRefused(f"{rest!r} follows the end of the logic", _EXAMPLE)
    return logic


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nodes = 0

    def next_token(self) -> tuple[str, str]:
        """Returns kind and text of the next token, and moves past it. Raises LogicRefused if the text is not a token."""
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise LogicRefused(f"{self._text[self._at :].strip()[:20]!r} is not understood", _EXAMPLE)
        self._at = match.end()
        return match.lastgroup, match[match.lastgroup]

    def _next_is(self, kind: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        return match is not None and match.lastgroup == kind

    def logic(self, depth: int) -> Logic:
        self._nodes += 1
        if depth > DEPTH_MAX or self._nodes > NODES_MAX:
            raise LogicRefused(
                f"it is nested more than {DEPTH_MAX} deep, or has more than {NODES_MAX} events and operators",
                "split it over several windows",
            )
        kind, name = self.next_token()
        if kind != "name":
            raise LogicRefused("an event or operator is missing" + (f" before {name!r}" if name else ""), _EXAMPLE)
        operator = OPERATORS.get(name.lower())
        count, limit_us = self._suffixes()
        if not self._next_is("sign") or self._text[self._at :].lstrip()[0] != "(":
            if count or limit_us:
                raise LogicRefused(f"{name} has a count or a limit, but no operands", "counts and limits belong to operators")
            return Event(name)
        if operator is None:
            raise LogicRefused(f"operator {name!r} does not exist", nearest_names_hint(name, OPERATORS))
        self.next_token()
        operands = [self.logic(depth + 1)]
        while (sign := self.next_token()[1]) == ",":
            operands.append(self.logic(depth + 1))
        if sign != ")":
            raise LogicRefused(f"a parenthesis of {name} is not closed", _EXAMPLE)
        return _operation(operator, tuple(operands), limit_us, count)

    def _suffixes(self) -> tuple[int, int]:
        """Parses the optional count and limit of an operator. Returns both, each 0 if missing. Raises LogicRefused for invalid or
        repeated ones.
        """
        count = limit_us = 0
        while self._next_is("count") or self._next_is("limit"):
            kind, text = self.next_token()
            if (count if kind == "count" else limit_us) != 0:
                raise LogicRefused(f"{text} is the second {kind} of one operator", "leave one of them out")
            if kind == "count":
                count = int(text.removeprefix(":"))
                if not 1 <= count <= COUNT_MAX:
                    raise LogicRefused(f"a count is {count}", f"use one from 1 to {COUNT_MAX}")
            else:
                try:
                    limit_us = parse_duration(text[1:-1])
                except ValueError as error:
                    raise LogicRefused(str(error), "write a number and a unit, such as {30 seconds}") from None
        return count, limit_us


def _operation(operator: LogicOperator, operands: tuple[Logic, ...], limit_us: int, count: int) -> Operation:
    name = operator.value
    if count and operator not in COUNTING:
        raise LogicRefused(f"{name} takes no count", "is and seen do")
    wanted = "two or more" if operator in (LogicOperator.FBY, LogicOperator.AND, LogicOperator.OR) else "one"
    if (len(operands) < 2) is (wanted != "one"):
        raise LogicRefused(f"{name} has {len(operands)} operand{'s' * (len(operands) != 1)}, not {wanted}", _EXAMPLE)
    if operator in OF_AN_EVENT and not isinstance(operands[0], Event):
        raise LogicRefused(f"{name} takes an event of interest, not {operands[0]}", f"write {name}(a) for each event")
    return Operation(operator, operands, limit_us, count or 1)


def events_in(logic: Logic) -> Iterator[str]:
    """Yields the names of the events in the logic, once per occurrence."""
    if isinstance(logic, Event):
        yield logic.name
    else:
        for operand in logic.operands:
            yield from events_in(operand)


def limits_in(logic: Logic) -> Iterator[int]:
    """Yields all time limits in the logic, in microseconds."""
    if isinstance(logic, Operation):
        if logic.limit_us:
            yield logic.limit_us
        for operand in logic.operands:
            yield from limits_in(operand)


def certain_events(logic: Logic) -> frozenset[str]:
    """Returns the names of the events that every match of the logic contains."""
    if isinstance(logic, Event):
        return frozenset([logic.name])
    operands, operator = logic.operands, logic.operator
    if operator is LogicOperator.NOT:
        inner = operands[0]
        is_twice = isinstance(inner, Operation) and inner.operator is LogicOperator.NOT
        return certain_events(inner.operands[0]) if isinstance(inner, Operation) and is_twice else frozenset()
    found = [certain_events(operand) for operand in operands] if operator is not LogicOperator.NOTOCCUR else [frozenset()]
    return frozenset.intersection(*found) if operator is LogicOperator.OR else frozenset().union(*found)


def is_strict(logic: Logic) -> bool:
    """Whether the very next event matters to the logic, even if that event is not an event of interest."""
    if isinstance(logic, Event):
        return False
    if logic.operator is LogicOperator.IS or (logic.operator is LogicOperator.NOT and isinstance(logic.operands[0], Event)):
        return True
    return any(map(is_strict, logic.operands))


def is_guard(logic: Logic) -> bool:
    """Whether `logic` is a `notoccur` without a limit, whose event must not occur while other operands are awaited."""
    return isinstance(logic, Operation) and logic.operator is LogicOperator.NOTOCCUR and not logic.limit_us


class Begun(Enum):
    """When a match began, relative to a part of its logic."""

    BY_IT = "by it"
    """The match begins with the first event of the part, so the part does not wait for that event."""
    BEFORE = "before"
    """The match began with an earlier event, so the part also waits for its first event."""


_BEGINS_WITH = (LogicOperator.FBY, LogicOperator.IS, LogicOperator.SEEN)
"""Operators that begin with the first event of their first operand."""


def open_us_max(logic: Logic, *, after: Begun = Begun.BY_IT) -> int | None:
    """Returns the most microseconds for which a match may wait for the logic; None if the time has no bound. `after`: when the
    match began.
    """
    if isinstance(logic, Event):
        return 0 if after is Begun.BY_IT else None
    operator = logic.operator
    if operator is LogicOperator.OR and after is Begun.BY_IT and all(open_us_max(each) == 0 for each in logic.operands):
        return 0
    operands = [each for each in logic.operands if operator is not LogicOperator.AND or not is_guard(each)]
    spans = [
        open_us_max(each, after=after if operator in _BEGINS_WITH and place == 0 and logic.count == 1 else Begun.BEFORE)
        for place, each in enumerate(operands)
    ]
    known = [span for span in spans if span is not None]
    inner: int | None = None
    if len(known) == len(spans):  # an and keeps waiting for its other operands
        inner = sum(known) if operator is LogicOperator.FBY else max(known, default=None)
    limits = [each for each in (logic.limit_us or None, inner) if each is not None]
    return min(limits, default=None)


def check_logic(logic: Logic, names: Sequence[str]) -> None:
    """Raises LogicRefused if an event is not in `names`, if no event begins a match, or if a match is never complete."""
    for name in events_in(logic):
        if name not in names:
            raise LogicRefused(f"{name} is not an event of interest", nearest_names_hint(name, names))
    if not _begins(logic):
        raise LogicRefused(
            f"no event begins {logic}", "put an event that must occur before it, as in fby(a, notoccur{10 seconds}(b))"
        )
    undecided = _undecided(logic, 0)
    if undecided is not None:
        raise LogicRefused(
            f"{undecided} is never complete: at no time is it known that the event will not come",
            "give it a limit, as in notoccur{30 seconds}(a), or combine it with one that must occur, as in and(b, notoccur(a))",
        )


def _begins(logic: Logic) -> bool:
    if isinstance(logic, Event):
        return True
    if logic.operator is LogicOperator.FBY:
        return _begins(logic.operands[0])
    return logic.operator is not LogicOperator.NOTOCCUR and any(map(_begins, logic.operands))


def _undecided(logic: Logic, around_us: int) -> Logic | None:
    """Returns the first part of the logic that can never be complete, or None. `around_us`: the time limit of the operator around
    it, 0 for none.
    """
    if isinstance(logic, Event):
        return None
    limit_us = logic.limit_us or around_us
    operands, operator = logic.operands, logic.operator
    if operator is LogicOperator.NOTOCCUR:
        return None if limit_us else logic
    if operator is LogicOperator.FBY:
        found = [*(_undecided(operand, 0) for operand in operands[:-1]), _undecided(operands[-1], limit_us)]
        return next((each for each in found if each is not None), None)
    if operator is LogicOperator.AND:
        others = [operand for operand in operands if not is_guard(operand)]
        if not others:
            return None if limit_us else logic
        return next((each for each in (_undecided(operand, limit_us) for operand in others) if each is not None), None)
    if operator is LogicOperator.OR:
        found = [_undecided(operand, limit_us) for operand in operands]
        return found[0] if all(each is not None for each in found) else None
    return None
