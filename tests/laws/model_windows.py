"""Windows in plain Python: one event at a time, one dictionary per index, and none of the engine's code.

A row is (id, x, s, at), None for null. An event is (opcode letters, flags, row), flags a set of "N", "P", "R"; an update block is
its new row, and then a delete with the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = tuple[Any, ...]
SECOND = 1_000_000
OPCODES = {1: "I", 2: "U", 3: "P", 4: "D", 5: "SD", 6: "UB"}


class Event(NamedTuple):
    opcode: str
    flags: frozenset[str]
    row: Row


class Refused(Exception):
    """The event is bad, for this reason; outputs that it made before remain."""

    def __init__(self, reason: str, *made: Event) -> None:
        super().__init__(reason)
        self.reason, self.made = reason, list(made)


@dataclass
class Limits:
    """A retention: `kind` and `limit` as in projects; `by_event`: time is the field `at`; `by`: columns of groups."""

    kind: str
    limit: int
    unit: int = 0
    by_event: bool = False
    by: tuple[int, ...] = ()
    evicts_first: bool = False

    def group(self, row: Row) -> Row:
        return tuple(row[column] for column in self.by)


@dataclass
class Index:
    """Rows by key, in order of arrival, each with its time; evicts by `limits`. `idle_us` after the append time `came_us` of the
    newest event that advances event time, event time advances at heartbeats; 0: it does not."""

    limits: Limits | None = None
    rows: dict[int, tuple[Row, int]] = field(default_factory=dict)
    newest: int | None = None
    boundary: int | None = None
    idle_us: int = 0
    came_us: int | None = None

    def take(self, event: Event, now: int) -> list[Event]:
        """Returns the resolved changes of an event, and the evictions that it causes."""
        if event.opcode not in ("D", "SD") and "R" not in event.flags and event.row[3:] not in ((), (None,)):
            self.came_us = now
        made = self._resolved(event, now)
        came = event.row[0] if made and made[0].opcode != "D" else None
        if came is None or self.limits is None:
            return made
        expelled = self._retained(came)
        if not self.limits.evicts_first:
            return made + expelled
        itself = [each for each in expelled if each.row[0] == came]
        return [each for each in expelled if each not in itself] + made + itself

    def _retained(self, came: int) -> list[Event]:
        assert self.limits is not None
        if self.limits.kind == "bycount_sliding":
            group = self.limits.group(self.rows[came][0])
            members = [k for k, (row, _) in self.rows.items() if self.limits.group(row) == group]
            return self._expelled(members[: max(0, len(members) - self.limits.limit)])
        if self.limits.kind == "bycount_jumping":
            return self._expelled([k for k in self.rows if k != came] if len(self.rows) > self.limits.limit else [])
        if self.limits.by_event:
            time = self.rows[came][1]
            self.newest = time if self.newest is None else max(self.newest, time)
            return self._by_time(self.newest, came)
        return []

    def beat(self, now: int) -> list[Event]:
        """Returns the evictions of a heartbeat."""
        if self.limits is None or self.limits.kind.startswith("bycount"):
            return []
        if not self.limits.by_event:
            return self._by_time(now, None)
        if not self.idle_us or self.newest is None or self.came_us is None or now - self.came_us <= self.idle_us:
            return []
        return self._by_time(self.newest + now - self.came_us - self.idle_us, None)

    def begin(self, now: int) -> None:
        """Sets the first boundary, at the first time of all."""
        if self.limits is not None and not self.limits.by_event and self.boundary is None and "jumping" in self.limits.kind:
            self._passed(now)

    def _resolved(self, event: Event, now: int) -> list[Event]:
        opcode, row, key = event.opcode, event.row, event.row[0]
        flags = event.flags - {"P"} or frozenset("N")
        if key is None:
            raise Refused("null-key")
        old = self.rows.get(key)
        if opcode in ("D", "SD"):
            if old is None and opcode == "D" and self.limits is None:
                raise Refused("key-unknown")
            return [] if old is None else [Event("D", flags, self.rows.pop(key)[0])]
        if opcode == "I" and old is not None:
            raise Refused("key-exists")
        if opcode == "U" and old is None:
            raise Refused("key-unknown")
        time = row[3] if self.limits is not None and self.limits.by_event else now
        if old is not None and "P" in event.flags:
            row = tuple(was if new is None else new for new, was in zip(row, old[0], strict=True))
            time = old[1] if time is None else time
        group = () if self.limits is None else self.limits.group(row)
        if time is None or None in group:
            gone = [] if opcode != "UB" or old is None else [Event("D", flags, self.rows.pop(key)[0])]
            raise Refused("null-time" if time is None else "null-group", *gone)
        moves = self.limits is not None and old is not None and self.limits.group(old[0]) != group
        if moves or (self.limits is not None and self.limits.kind.startswith("bytime")):
            self.rows.pop(key, None)
        self.rows[key] = (row, time)
        return [Event("I", flags, row)] if old is None else [Event("UB", flags, row), Event("D", flags, old[0])]

    def _by_time(self, now: int, came: int | None) -> list[Event]:
        assert self.limits is not None
        edge: int | None = now if self.limits.kind == "bytime_sliding" else self._passed(now)
        if edge is None:
            return []
        if self.limits.kind == "bytime_jumping":
            return self._expelled([k for k in self.rows if k != came])
        old = [k for k, (_, time) in self.rows.items() if edge - time >= self.limits.limit]
        return self._expelled(sorted(old, key=lambda k: self.rows[k][1]) if self.limits.by_event else old)

    def _passed(self, now: int) -> int | None:
        """Returns the last boundary of a jumping window that time passes by advancing to `now`."""
        assert self.limits is not None
        step = self.limits.unit or self.limits.limit
        if self.boundary is None:
            start = now - now % step if self.limits.kind == "bytime_jumping_lookback" or self.limits.by_event else now
            if self.limits.kind == "bytime_jumping":
                start = now
            self.boundary = start + step
            return None
        if now < self.boundary:
            return None
        passed = self.boundary + (now - self.boundary) // step * step
        self.boundary = passed + step
        return passed

    def _expelled(self, keys: Iterable[int]) -> list[Event]:
        return [Event("D", frozenset("R"), self.rows.pop(key)[0]) for key in keys]


Value = Callable[[Event, int], Any]
"""A function of an event and the number of counted events; raises ZeroDivisionError if it fails."""


def _div(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else int(a / b)


def _x(event: Event, _: int) -> Any:
    return event.row[1]


def _letters(event: Event) -> str:
    return "".join(letter for letter in "NPR" if letter in event.flags)


def _glued(*texts: str | None) -> str | None:
    return None if None in texts else "".join(str(text) for text in texts)


VALUES: dict[str, Value] = {
    "x": _x,
    "x + 1": lambda e, n: None if e.row[1] is None else e.row[1] + 1,
    "6 div x": lambda e, n: _div(6, e.row[1]),
    "coalesce(x, 7)": lambda e, n: 7 if e.row[1] is None else e.row[1],
    "10 * id": lambda e, n: 10 * e.row[0],
    "6 div (id - 2)": lambda e, n: _div(6, e.row[0] - 2),
    "if(ESP_OPCODE = 'I', x, -1)": lambda e, n: e.row[1] if e.opcode == "I" else -1,
    "eventCounter()": lambda e, n: n,
    "x + eventCounter()": lambda e, n: None if e.row[1] is None else e.row[1] + n,
    "s": lambda e, n: e.row[2],
    "concat(s, '!')": lambda e, n: _glued(e.row[2], "!"),
    "concat('k', cast(id as string))": lambda e, n: f"k{e.row[0]}",
    "ESP_OPCODE": lambda e, n: e.opcode,
    "concat(ESP_FLAGS, s)": lambda e, n: _glued(_letters(e), e.row[2]),
    "at": lambda e, n: e.row[3],
    "true": lambda e, n: True,
    "x > 1": lambda e, n: e.row[1] is not None and e.row[1] > 1,
    "6 div x > 2": lambda e, n: e.row[1] is not None and int(6 / e.row[1]) > 2,
    "s = 'a' or x is null": lambda e, n: e.row[2] == "a" or e.row[1] is None,
    "id % 2 = 1": lambda e, n: e.row[0] % 2 == 1,
    "ESP_OPCODE = 'I'": lambda e, n: e.opcode == "I",
    "x > 0 and ESP_OPCODE = 'I'": lambda e, n: e.opcode == "I" and e.row[1] is not None and e.row[1] > 0,
    "ESP_OPCODE <> 'D'": lambda e, n: e.opcode != "D",
    "ESP_FLAGS <> 'R'": lambda e, n: _letters(e) != "R",
    "ESP_FLAGS <> 'R' and x > 0": lambda e, n: _letters(e) != "R" and e.row[1] is not None and e.row[1] > 0,
}


@dataclass
class Work:
    """Makes a row of one event, or None to drop it. `condition` or `outputs`, by the texts of VALUES."""

    condition: str = ""
    outputs: tuple[str, str, str] | None = None
    count: int = 0

    def row(self, event: Event) -> Row | None:
        if self.outputs is None:
            return event.row if VALUES[self.condition](event, 0) else None
        return (event.row[0], *(VALUES[text](event, self.count) for text in self.outputs))


@dataclass
class Statistic:
    """The newest `length` observations, or all if it is 0."""

    name: str
    length: int
    seen: list[int | None] = field(default_factory=list)

    def after(self, value: int | None) -> int | None:
        self.seen = [*self.seen, value][-self.length :]
        known = [each for each in self.seen if each is not None]
        if self.name == "nOut":
            return len(known)
        return None if not known else sum(known) if self.name == "sumOut" else max(known)


@dataclass
class PlainWindow:
    """`given`: index of input rows, for published events; `table`: index of outputs; None without one. `work` and `statistic` may
    be missing."""

    given: Index | None = None
    table: Index | None = None
    work: Work | None = None
    statistic: Statistic | None = None
    bad: list[str] = field(default_factory=list)

    def begin(self, now: int) -> None:
        if self.table is not None:
            self.table.begin(now)

    def beat(self, now: int) -> list[Event]:
        return [] if self.table is None else self.table.beat(now)

    def take(self, events: list[Event], now: int) -> list[Event]:
        """Returns the outputs for the input events of one cause, an event or a heartbeat."""
        if self.given is not None:
            events = [made for event in events for made in self._asked(self.given, event, now)]
        made: list[Event] = []
        at = 0
        while at < len(events):
            old = events[at + 1] if events[at].opcode == "UB" else None
            made += self._one(events[at], old, now)
            at += 1 if old is None else 2
        return made

    def _asked(self, index: Index, event: Event, now: int) -> list[Event]:
        try:
            return index.take(event, now)
        except Refused as refused:
            self.bad.append(refused.reason)
            return refused.made

    def _one(self, event: Event, old: Event | None, now: int) -> list[Event]:
        if self.statistic is not None:
            return self._observed(event, now)
        if self.work is None:
            both = [event] if old is None else [event, old]
            return both if self.table is None else self._asked(self.table, event, now)
        if event.opcode not in ("D", "SD"):
            self.work.count += 1
        new = self._worked(event)
        was = None if old is None else self._worked(old)
        if self.table is None:
            return self._streamed(event, new, old, was)
        if event.opcode == "D":
            leaves = new is not None or self.work.outputs is not None
            return self._asked(self.table, event._replace(opcode="SD"), now) if leaves else []
        if new is not None:
            return self._asked(self.table, event._replace(row=new), now)
        leaves = old is not None and (was is not None or self.work.outputs is not None)
        return self._asked(self.table, event._replace(opcode="SD"), now) if leaves else []

    def _worked(self, event: Event) -> Row | None:
        assert self.work is not None
        try:
            return self.work.row(event)
        except ZeroDivisionError:
            if event.opcode not in ("D", "SD"):
                self.bad.append("expression")
            return None

    def _streamed(self, event: Event, new: Row | None, old: Event | None, was: Row | None) -> list[Event]:
        if old is None or (new is not None and was is not None):
            pairs = [(event, new), (old, was)]
            return [each._replace(row=row) for each, row in pairs if each is not None and row is not None]
        if new is not None:
            return [event._replace(opcode="I", row=new)]
        return [] if was is None else [old._replace(row=was)]

    def _observed(self, event: Event, now: int) -> list[Event]:
        assert self.statistic is not None
        if event.opcode in ("D", "SD"):
            assert self.table is not None
            return self._asked(self.table, event, now)
        key, x, *rest = event.row
        if self.table is not None:
            taken = self._asked(self.table, event, now)
            if not taken:
                return []
            event = taken[0]
            row = (key, self.statistic.after(x), *rest)
            self.table.rows[key] = (row, now)
            return [event._replace(row=row), *taken[1:]]
        return [event._replace(row=(key, self.statistic.after(x), *rest))]


def folded(rows: dict[int, Row], events: Iterable[Event]) -> None:
    """Applies the outputs of a table; every event must be possible, and a deleted row must equal the stored one."""
    replaced: Row | None = None
    for event in events:
        key = event.row[0]
        if event.opcode == "I":
            assert key not in rows, f"insert of {event.row}, where {rows[key]} is"
            rows[key] = event.row
        elif event.opcode == "UB":
            replaced, rows[key] = rows[key], event.row
        else:
            assert event.opcode == "D"
            was = rows.pop(key) if replaced is None else replaced
            assert was == event.row, f"{event.row} leaves, where {was} was"
            replaced = None
    assert replaced is None
