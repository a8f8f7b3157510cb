"""Patterns in plain Python: a list of open matches, each with a tree of objects; none of the engine's code but the parser of logic
texts.

An event is (source, fields by name, time); a condition is a function of the fields and the variables that earlier events have
bound: None if it is not true, else the variables that it binds. A bound variable keeps its value: `Match.show` requires it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotspare.windows.pattern.logic import Event, Logic, LogicOperator

Fields = Mapping[str, Any]
Condition = Callable[[Fields, Fields], "Fields | None"]


class Failed(Exception):
    """A condition fails on an event."""


class Node:
    """`value`: True, False, or None while it waits."""

    def __init__(self, logic: Logic) -> None:
        self.value: bool | None = None
        self.seen = 0
        self.deadline: int | None = None
        self.limit = 0 if isinstance(logic, Event) else logic.limit_us
        self.op = None if isinstance(logic, Event) else logic.operator
        self.event = logic.name if isinstance(logic, Event) else ""
        self.wanted = 1 if isinstance(logic, Event) else logic.count
        self.kids: list[Node] = []
        if not isinstance(logic, Event):
            inner = logic.operands[0]
            if isinstance(inner, Event) and self.op in (
                LogicOperator.IS,
                LogicOperator.SEEN,
                LogicOperator.NOTOCCUR,
                LogicOperator.NOT,
            ):
                self.event = inner.name
            else:
                self.kids = [Node(operand) for operand in logic.operands]

    def asked(self) -> list[Node]:
        """Operands that wait for an event."""
        waiting = [kid for kid in self.kids if kid.value is None]
        return waiting[:1] if self.op is LogicOperator.FBY else waiting

    def begin(self, now: int) -> None:
        """Starts to wait for it."""
        if self.value is not None:
            return
        if self.limit and self.deadline is None:
            self.deadline = now + self.limit
        for kid in self.asked():
            kid.begin(now)

    def show(self, is_event_of_interest: Callable[[str], bool]) -> None:
        """Shows an event, which may be several events of interest."""
        if self.kids:
            for kid in self.asked():
                kid.show(is_event_of_interest)
            self.judge()
            return
        came = is_event_of_interest(self.event)
        if self.op is LogicOperator.NOT:
            self.value = not came
        elif self.op is LogicOperator.NOTOCCUR:
            self.value = False if came else None
        elif came:
            self.seen += 1
            self.value = True if self.seen == self.wanted else None
        elif self.op is LogicOperator.IS:
            self.value = False

    def judge(self) -> None:
        values = [kid.value for kid in self.kids]
        if self.op is LogicOperator.NOT:
            self.value = None if values[0] is None else not values[0]
        elif self.op is LogicOperator.OR:
            self.value = True if True in values else False if set(values) == {False} else None
        elif False in values:
            self.value = False
        elif self.op is LogicOperator.FBY:
            self.value = True if set(values) == {True} else None
        else:
            others = {
                kid.value for kid in self.kids if not (kid.op is LogicOperator.NOTOCCUR and not kid.limit and kid.value is None)
            }
            self.value = True if others == {True} else None

    def expire(self, now: int, around: bool = False) -> None:
        """Ends limits up to now; `around`: the nearest limit around it has ended."""
        over = self.deadline <= now if self.deadline is not None else around
        if self.op is LogicOperator.NOTOCCUR:
            self.value = True if over else None
            return
        if self.kids:
            for kid in self.asked():
                kid.expire(now, over)
            self.judge()
        if self.value is None and self.deadline is not None and over:
            self.value = False

    def deadlines(self) -> Iterator[int]:
        if self.value is None:
            if self.deadline is not None:
                yield self.deadline
            for kid in self.asked():
                yield from kid.deadlines()

    def has_begun(self) -> bool:
        if self.op is LogicOperator.NOT:
            return self.value is True
        return self.value is True or self.seen > 0 or any(kid.has_begun() for kid in self.kids)


@dataclass
class Match:
    """`since`: the arrival number of its last change."""

    pattern: Pattern
    root: Node
    key: tuple[Any, ...]
    bound: dict[str, Any] = field(default_factory=dict)
    events: dict[str, Fields] = field(default_factory=dict)
    since: int = -1
    deadline: int | None = None

    def show(self, source: str, fields: Fields, failed: list[str]) -> bool:
        """Applies an event; returns whether it changes anything."""
        before, did = dict(self.bound), self._state()

        def is_event_of_interest(name: str) -> bool:
            event_source, condition = self.pattern.events[name]
            if event_source != source:
                return False
            try:
                binds = condition(fields, before)
            except Failed as error:
                failed.append(str(error))
                return False
            if binds is None or any(self.bound.get(n, value) != value for n, value in binds.items()):
                return False
            self.bound |= binds
            self.events[name] = fields
            return True

        self.root.show(is_event_of_interest)
        return self._state() != did

    def _state(self) -> list[Any]:
        def of(node: Node) -> list[Any]:
            return [node.value, node.seen, [of(kid) for kid in node.kids]]

        return of(self.root)


@dataclass(frozen=True)
class Pattern:
    """`events`: source and condition by name. `outputs`: events whose numbers are output."""

    logic: Logic
    events: dict[str, tuple[str, Condition]]
    index: tuple[str, ...]
    outputs: tuple[str, ...]
    skips: bool = False

    @property
    def sources(self) -> set[str]:
        return {source for source, _ in self.events.values()}


class Window:
    """`by_event`: the clock is the newest time of events, else heartbeats set it."""

    def __init__(self, patterns: list[Pattern], *, by_event: bool, idle_us: int = 0) -> None:
        self.patterns, self.idle_us, self.came_us = patterns, idle_us, 0
        self.by_event = by_event
        self.clock: int | None = None
        self.open: list[Match] = []
        self.arrivals = 0

    def take(self, source: str, fields: Fields, time: int) -> tuple[list[tuple[Any, ...]], list[str]]:
        """Returns outputs, and the failures of conditions."""
        made: list[tuple[Any, ...]] = []
        failed: list[str] = []
        if self.by_event:
            self.clock = time if self.clock is None else max(self.clock, time)
            made += self._due(self.clock)
        for pattern in self.patterns:
            if source not in pattern.sources:
                continue
            key, begun = tuple(fields[name] for name in pattern.index), self.arrivals
            there = [m for m in self.open if m.pattern is pattern and m.key == key and m.since < begun]
            for match in sorted(there, key=lambda match: match.since):
                if match.deadline is not None and match.deadline <= time:
                    continue
                if match.show(source, fields, failed):
                    found = self._settled(match, time)
                    made += found
                    if found and pattern.skips:
                        break
            else:
                made += self._begun(pattern, key, source, fields, time, failed)
        if self.by_event and self.clock is not None:
            made += self._due(self.clock)
        return made, failed

    def _begun(
        self, pattern: Pattern, key: tuple[Any, ...], source: str, fields: Fields, time: int, failed: list[str]
    ) -> list[tuple[Any, ...]]:
        """Returns the outputs of a match that the event may begin."""
        fresh = Match(pattern, Node(pattern.logic), key)
        fresh.root.begin(time)
        if not (fresh.show(source, fields, failed) and fresh.root.has_begun()):
            return []
        self.open.append(fresh)
        return self._settled(fresh, time)

    def beat(self, now: int) -> list[tuple[Any, ...]]:
        if not self.by_event:
            return self._due(now)
        over_us = now - self.came_us - self.idle_us
        return self._due(self.clock + over_us) if self.idle_us and self.clock is not None and over_us > 0 else []

    def end(self) -> list[tuple[Any, ...]]:
        """Ends all limits, at the end of the input."""
        return self._due(1 << 80)

    def _due(self, now: int) -> list[tuple[Any, ...]]:
        made: list[tuple[Any, ...]] = []
        while True:
            due = [m for m in self.open if m.deadline is not None and m.deadline <= now]
            if not due:
                return made
            match = min(due, key=lambda m: (m.deadline, m.since))
            deadline = match.deadline
            assert deadline is not None
            match.root.expire(deadline)
            made += self._settled(match, deadline)

    def _settled(self, match: Match, now: int) -> list[tuple[Any, ...]]:
        if match.root.value is None:
            match.root.begin(now)
            match.since, self.arrivals = self.arrivals, self.arrivals + 1
            match.deadline = min(match.root.deadlines(), default=None)
            return []
        self.open.remove(match)
        if not match.root.value:
            return []
        if match.pattern.skips:
            self.open = [m for m in self.open if m.pattern is not match.pattern or m.key != match.key]
        return [tuple(match.events[name]["n"] if name in match.events else None for name in match.pattern.outputs)]
