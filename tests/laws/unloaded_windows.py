"""Projects with one window that holds many rows, the messages that fill it, and messages for later.

Rows arrive in an order that gives the page of each, so that a test can name the pages that an event needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.tuning import Tuning
from hotspare.stores.contract import Store
from tests.cases.case import Message
from tests.laws.unloaded_kit import in_one

SECOND = 1_000_000
SMALL_PAGES = Tuning(page_slots=64, key_filter_pages_min=2)
ROWS = 630
"""Rows for ten pages under `SMALL_PAGES`, the last of which is being filled."""
VALUES_EACH = 20
"""Values of each group of an aggregate."""


class Sent(NamedTuple):
    """A message, before a tick."""

    topic: str
    time_us: int
    rows: list[str]


@dataclass(frozen=True)
class Held:
    """A project with one query `q`, whose window `kept` holds rows."""

    windows: str
    edges: str
    fill: Callable[[int], Iterator[Sent]]
    """The messages that fill the window with a number of rows."""
    later: Callable[[np.random.Generator, int, int], Sent]
    """Message `at` after those that filled `rows` rows: (random, at, rows)."""
    tick_us: int = 0
    """The time from a message to its tick: with several topics, a row waits for a later time of the others."""

    def plan(self, rows: int = ROWS) -> Plan:
        return _plan(self.windows.replace("LIMIT", str(rows)), self.edges)

    def batch(self, at: int, sent: Sent, rows: int = ROWS) -> pa.RecordBatch:
        """Returns a message and its tick as the `at`-th batch."""
        return _batch(self.plan(rows), 10 * at, sent, self.tick_us)

    def stored(self, store: Store, rows: int = ROWS) -> Store:
        """Puts a confirmed snapshot `s` of group `g` into the store, and returns the store."""
        pipeline = Pipeline.fresh(self.plan(rows))
        for at, sent in enumerate(self.fill(rows)):
            pipeline.feed(self.batch(at, sent, rows))
        frozen = pipeline.freeze()
        store.write_candidate("g", "s", "e", 1, frozen.header, frozen.contents())
        store.confirm("g", "s")
        return store


@cache
def _plan(windows: str, edges: str) -> Plan:
    text = f"project: held\nqueries:\n  q:\n    windows:\n{windows}    edges: [{edges}]\n"
    return compile_plan(load_text(text).resolved)


def _batch(plan: Plan, offset: int, sent: Sent, tick_us: int) -> pa.RecordBatch:
    messages = [Message(sent.time_us, sent.topic, " | ".join(sent.rows)), Message(sent.time_us + tick_us, "", "")]
    return in_one(plan, offset, messages)


def _tenths(rows: int) -> Iterator[tuple[int, range]]:
    """Returns ten ranges of rows, each with its number."""
    edges = [rows * tenth // 10 for tenth in range(11)]
    return enumerate(range(begin, end) for begin, end in pairwise(edges))


def _upserts(keys: range | list[int], value: Callable[[int], object]) -> list[str]:
    return [f"P,N,{key},{value(key)}" for key in keys]


def _by_key(topic: str, value: Callable[[int], object]) -> Callable[[int], Iterator[Sent]]:
    return lambda rows: (Sent(topic, SECOND + at, _upserts(keys, value)) for at, keys in _tenths(rows))


def _any_keys(topic: str, value: Callable[[int], object]) -> Callable[[np.random.Generator, int, int], Sent]:
    def later(random: np.random.Generator, at: int, rows: int) -> Sent:
        return Sent(topic, 3 * SECOND + at, _upserts(random.integers(0, rows, 100).tolist(), value))

    return later


NUMBERS = '      numbers: {type: source, opcodes: any, index: empty, schema: "id*:int64,value:int64"}\n'
KEYED = Held(
    NUMBERS + "      kept: {type: copy, publish: true}\n",
    "numbers -> kept",
    _by_key("numbers", lambda key: key),
    _any_keys("numbers", lambda key: -key),
)
BY_ROOM = Held(
    '      numbers: {type: source, opcodes: any, index: empty, schema: "id*:int64,room:int64"}\n'
    "      kept: {type: copy, retention: {bycount_sliding: 4, by: [room], evict: before}, publish: true}\n",
    "numbers -> kept",
    _by_key("numbers", lambda key: key // 4),
    lambda random, at, rows: Sent(
        "numbers",
        3 * SECOND + at,
        [f"P,N,{key},{room}" for key, room in random.integers(0, (2 * rows, rows // 4), (100, 2)).tolist()],
    ),
)
"""Each room keeps its four newest rows, which are next to each other."""
BY_FLOOR_AND_ROOM = replace(
    BY_ROOM,
    windows=BY_ROOM.windows.replace("room:int64", "floor:int64,room:int64").replace("[room]", "[floor, room]"),
    fill=_by_key("numbers", lambda key: f"0,{key // 4}"),
)
"""The same rooms, all on one floor, which a partial event need not name."""
JOINED = Held(
    """      facts: {type: source, opcodes: any, index: empty, schema: "id*:int64,who:int64"}
      people: {type: source, opcodes: any, index: empty, schema: "id*:int64,team:int64"}
      kept: {type: join, kind: leftouter, conditions: {who: id}, outputs: {team: r_team}, publish: true}
""",
    "facts -> kept as left, people -> kept as right",
    lambda rows: (
        Sent(topic, SECOND + 10 * number + at, _upserts(keys, lambda key: key))
        for number, topic in enumerate(("people", "facts"))
        for at, keys in _tenths(rows)
    ),
    lambda random, at, rows: Sent(
        "people" if at % 3 == 0 else "facts",
        SECOND + 100 + 2 * at,
        [f"P,N,{a},{b}" for a, b in random.integers(0, rows, (100, 2)).tolist()],
    ),
    tick_us=1,
)
"""A fact for each person, person by person."""


def _retained(retention: str) -> Held:
    """Returns a window of rows whose values are their keys; `LIMIT` in `retention` is the number of rows."""
    return Held(
        '      numbers: {type: source, opcodes: any, index: empty, schema: "id*:int64,value:int64,at:stamp"}\n'
        f"      kept: {{type: copy, retention: {{{retention}}}, publish: true}}\n",
        "numbers -> kept",
        lambda rows: (Sent("numbers", SECOND + at, retained_rows(keys, SECOND + at)) for at, keys in _tenths(rows)),
        lambda random, at, rows: Sent(
            "numbers", 2 * SECOND + at, retained_rows(range(rows + 1_000 * at - 500, rows + 1_000 * at + 1_000), 2 * SECOND + at)
        ),
    )


def retained_rows(keys: range, time_us: int) -> list[str]:
    return [f"P,N,{key},{key},{time_us}" for key in keys]


RETAINED = {
    "count": _retained("bycount_sliding: LIMIT"),
    "time": _retained("bytime_sliding: 2 seconds"),
    "event time": _retained("bytime_sliding: 2 seconds, field: at"),
}


def _queued(retention: str) -> Held:
    return Held(
        '      numbers: {type: source, index: empty, opcodes: insert-only, keys: autogenerated, schema: "id*:string,value:int64"}\n'
        f"      kept: {{type: copy, retention: {{{retention}}}, publish: true}}\n",
        "numbers -> kept",
        lambda rows: (Sent("numbers", SECOND + at * SECOND // 5, [f"I,N,,{key}" for key in keys]) for at, keys in _tenths(rows)),
        lambda random, at, rows: Sent("numbers", 3 * SECOND + at, [f"I,N,,{at + each}" for each in range(1_700)]),
    )


QUEUED = {
    "count": _queued("bycount_sliding: LIMIT"),
    "jumping count": _queued("bycount_jumping: LIMIT00"),
    "time": _queued("bytime_sliding: 2 seconds"),
}
"""Rows that no event finds by a key; a tenth of them arrives every fifth of a second. With a jumping count they are never full."""
GROUPED = Held(
    """      numbers: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,value:int64"}
      kept: {type: aggregate, publish: true,
             schema: "value*:int64,n:int64,most:int64", outputs: {n: ESP_aCount(), most: ESP_aMax(id)}}
""",
    "numbers -> kept",
    lambda rows: (Sent("numbers", SECOND + at, [f"I,N,{key},{key}" for key in keys]) for at, keys in _tenths(rows)),
    lambda random, at, rows: Sent(
        "numbers",
        3 * SECOND + at,
        [f"I,N,{rows + 100 * at + i},{value}" for i, value in enumerate(random.integers(0, rows, 100).tolist())],
    ),
)
"""Groups of one row each."""


def values_of_groups(number: int, groups: range | list[int], each: int = VALUES_EACH) -> list[str]:
    """Returns `each` rows for each of these groups; the first key is `number` million."""
    return [f"I,N,{number * 1_000_000 + i * each + value},{g},{g + value}" for i, g in enumerate(groups) for value in range(each)]


VALUED = Held(
    """      numbers: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,g:int64,x:int64"}
      kept:
        type: aggregate
        schema: "g*:int64,middle:double,all:string"
        outputs: {middle: median(x), all: "ESP_aCat(x, ' ')"}
        publish: true
""",
    "numbers -> kept",
    lambda rows: (Sent("numbers", SECOND + at, values_of_groups(at, groups)) for at, groups in _tenths(rows * 2 // VALUES_EACH)),
    lambda random, at, rows: Sent(
        "numbers", 3 * SECOND + at, values_of_groups(100 + at, random.integers(0, rows * 2 // VALUES_EACH, 60).tolist(), 2)
    ),
)
"""Groups of `VALUES_EACH` values, group by group; twice as many values as rows."""
MATCHED = Held(
    """      calls: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,who:int64,what:int64"}
      kept:
        type: pattern
        index: empty
        schema: "n*:int64,first:int64,last:int64"
        patterns:
          answered:
            events: {asked: {source: calls, condition: "what = 1"}, told: {source: calls, condition: "what = 2"}}
            logic: "fby{100 seconds}(asked, told)"
            index: [who]
            outputs: {first: asked.id, last: told.id}
          silent:
            events: {asked: {source: calls, condition: "what = 1"}, any: {source: calls, condition: "what = 3"}}
            logic: "fby(asked, notoccur{50 seconds}(any))"
            index: [who]
            outputs: {first: asked.id, last: asked.id}
        publish: true
""",
    "calls -> kept",
    lambda rows: (Sent("calls", (at + 1) * SECOND, calls(callers, 1)) for at, callers in _tenths(rows // 2)),
    lambda random, at, rows: Sent(
        "calls", (11 + 2 * at) * SECOND, calls(random.integers(0, rows, 100).tolist(), int(random.integers(1, 4)))
    ),
)
"""Two open matches of each caller; a tenth of the callers call each second."""


def calls(who: range | list[int], what: int) -> list[str]:
    """Returns calls whose keys are their callers."""
    return [f"I,N,{each},{each},{what}" for each in who]


EVERY = {
    "keys": KEYED,
    "groups that keep rows": BY_ROOM,
    "joins": JOINED,
    **{f"retention by {name}": held for name, held in RETAINED.items()},
    **{f"queues by {name}": held for name, held in QUEUED.items()},
    "groups": GROUPED,
    "values of groups": VALUED,
    "patterns": MATCHED,
}
