"""Random graphs of windows of every type, as projects in YAML, and random changelogs for them, invalid events among them.

All windows use the same five fields, so that any of them may follow any other one. A graph grows window by window; a window that
would be invalid at its place is left out, as the project is then refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any, TypeAlias

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.resolved import Resolved
from hotspare.model.types import KeyRole, Schema
from hotspare.projects.load import load_text
from tests.laws.any_expressions import (
    ANY_INDEX,
    BY_FIELD,
    CONDITIONS,
    CONDITIONS_OF_JOINS,
    LOGICS,
    LUA_CREATE,
    LUA_CUSTOM,
    LUA_FILTER,
    LUA_PATTERN,
    LUA_SHARED,
    NUMBERS,
    OF_ORDER,
    OVER_ROWS,
    PYTHON_COLUMNS,
    PYTHON_CREATE,
    PYTHON_FILTER,
    PYTHON_PATTERN,
)

SECOND = 1_000_000
FIELDS = "id*:int64,x:int64,d:double,s:string,at:stamp"
GROUPS = (["x"], ["d"], ["s"], ["s", "x"])
"""Fields by which a retention may count."""

Window: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """Windows by name, in an order in which each follows its inputs. Edges as text: from, to, and the rest."""

    windows: Mapping[str, Window] = field(default_factory=dict)
    edges: tuple[tuple[str, str, str], ...] = ()
    tracking: str = "off"
    traced: bool = False
    scale: int = 1
    """The factor by which it runs faster than it is written."""
    shown: str = "all"
    """The windows that are published: "all" or "leaves"."""

    @property
    def text(self) -> str:
        """The project. JSON is valid YAML."""
        hidden = {source for source, _, _ in self.edges} if self.shown == "leaves" else set()
        windows = "\n".join(
            f"      {name}: {json.dumps({**each, 'publish': name not in hidden})}" for name, each in self.windows.items()
        )
        edges = json.dumps([f"{source} -> {target}{more}" for source, target, more in self.edges])
        trace = f"    trace: {json.dumps(list(self.windows))}\n" if self.traced else ""
        beat = f"heartbeat: {1000 // self.scale} milliseconds\n" if self.scale > 1 else ""
        text = (
            f'project: p\n{beat}retention_tracking: "{self.tracking}"\nqueries:\n  q:\n{trace}    singletons: included\n'
            f"    windows:\n{windows}\n    edges: {edges}\n"
        )
        return text if self.scale == 1 else _SPAN.sub(lambda span: _scaled(span, self.scale), text)

    def resolved(self) -> Resolved:
        """Raises ProjectError."""
        return _resolved(self.text)

    def plan(self) -> Plan:
        """Raises ProjectError."""
        return _plan(self.text)

    @property
    def sources(self) -> list[Window]:
        """The source windows, in the order of their topics."""
        return [each for _, each in sorted(self.windows.items()) if each["type"] == "source"]

    def without(self, name: str) -> Graph:
        windows = {each: window for each, window in self.windows.items() if each != name}
        return replace(self, windows=windows, edges=tuple(edge for edge in self.edges if name not in edge[:2]))

    def with_window(self, name: str, window: Window, edges: Sequence[tuple[str, str, str]]) -> Graph:
        return replace(self, windows={**self.windows, name: window}, edges=(*self.edges, *edges))

    def inputs(self, name: str) -> list[tuple[str, str]]:
        """Returns the inputs of a window: the source, and the rest of the edge."""
        return [(source, more) for source, target, more in self.edges if target == name]


@lru_cache(64)
def _resolved(text: str) -> Resolved:
    """Caches the newest: a graph that grows is resolved once per window, and compiled again by each law that uses it."""
    return load_text(text).resolved


@lru_cache(64)
def _plan(text: str) -> Plan:
    return compile_plan(_resolved(text))


_SPAN = re.compile(r"\b(\d+) (seconds?|milliseconds)")


def _scaled(span: re.Match[str], scale: int) -> str:
    whole_ms = int(span[1]) * (1 if span[2] == "milliseconds" else 1000)
    return span[0] if whole_ms < 1000 else f"{whole_ms // scale} milliseconds"


@dataclass
class Draft:
    """The input of a maker: the random source, and the schemas of the existing windows."""

    random: Random
    schemas: Mapping[str, Schema]
    splits: frozenset[str]
    near: tuple[str, ...]
    """Windows that a new one may read."""
    rows_max: int = 4
    """The greatest number of rows that retention by count keeps."""

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.random.randrange(len(options))]

    def given(self) -> str:
        """Returns a window to read, mostly one of the newest."""
        return str(self.one([*self.near, *self.near[-3:]]))

    def text_of(self, schema: Schema, keys: Sequence[str] | None = None) -> str:
        """Returns the schema as written in a project, with these keys."""
        made = [
            f"{f.name}{'*' if (f.role is KeyRole.KEY if keys is None else f.name in keys) else ''}:{f.type.value}"
            for f in schema.fields
        ]
        return ",".join(made)

    def values(self, schema: Schema, by_field: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Returns an expression for each non-key field that has one of our names."""
        return {f.name: self.one(by_field[f.name]) for f in schema.fields if f.role is not KeyRole.KEY and f.name in by_field}

    def edge(self, source: str, target: str, role: str = "") -> tuple[str, str, str]:
        slot = f" slot {self.one([0, 1, 2, -1])}" if source in self.splits and self.random.random() < 0.7 else ""
        return source, target, f"{' as ' + role if role else ''}{slot}"


Made: TypeAlias = tuple[Window, list[tuple[str, str, str]]]
Maker: TypeAlias = Callable[[Draft, str], Made]


EVICTIONS = ("before", "after")


def _retention(draft: Draft) -> Window:
    kind = draft.one(["bycount_sliding", "bycount_jumping", "bytime_sliding", "bytime_jumping", "bytime_jumping_lookback"])
    if kind.startswith("bycount"):
        groups = {"by": draft.one(GROUPS)} if kind == "bycount_sliding" and draft.random.random() < 0.5 else {}
        limit = draft.random.randint(1, draft.rows_max)
        return {kind: limit, **groups, "evict": EVICTIONS[limit % 2]}
    made: Window = {kind: draft.one(["1 second", "2500 milliseconds", "2 seconds"])}
    if draft.random.random() < 0.4:
        made |= {"field": "at", "evict": EVICTIONS[made[kind] == "2 seconds"]}
    if kind.endswith("lookback"):
        made["unit"] = draft.one(["second", "minute"])
    return made


def _source(draft: Draft, name: str) -> Made:
    made: Window = {"type": "source", "schema": FIELDS, "index": draft.one(["hash", "hash", "rbtree", "empty"])}
    made["opcodes"] = "any"
    if draft.random.random() < 0.35:
        made["opcodes"] = "insert-only"
        if draft.random.random() < 0.5:
            made["keys"] = "autogenerated"
    if made["index"] != "empty" and draft.random.random() < 0.3:
        made["retention"] = _retention(draft)
    return made, []


def _copy(draft: Draft, name: str) -> Made:
    made: Window = {"type": "copy", "index": draft.one(ANY_INDEX)}
    if made["index"] != "empty" and draft.random.random() < 0.7:
        made["retention"] = _retention(draft)
    return made, [draft.edge(draft.given(), name)]


def _copy_of_groups(draft: Draft, name: str) -> Made:
    """Returns a copy window in which each group keeps its newest rows."""
    retention = {"bycount_sliding": draft.one([1, 2, draft.rows_max // 2]), "by": draft.one([["x"], ["s"], ["s", "x"], ["s", "x"]])}
    return {"type": "copy", "retention": retention}, [draft.edge(draft.given(), name)]


def _copy_by_event_time(draft: Draft, name: str) -> Made:
    kind = draft.one(["bytime_sliding", "bytime_sliding", "bytime_jumping", "bytime_jumping_lookback"])
    retention: Window = {kind: draft.one(["1 second", "2500 milliseconds"]), "field": "at", "evict": draft.one(EVICTIONS)}
    if kind.endswith("lookback"):
        retention["unit"] = "second"
    return {"type": "copy", "retention": retention}, [draft.edge(draft.given(), name)]


def _filter(draft: Draft, name: str) -> Made:
    return {"type": "filter", "index": draft.one(ANY_INDEX), "condition": draft.one(CONDITIONS)}, [draft.edge(draft.given(), name)]


def _code_filter(draft: Draft, name: str) -> Made:
    made = draft.one(
        [
            {"type": "filter", "use": ["x"], "code": LUA_FILTER},
            {"type": "filter", "language": "python", "function": "keep", "use": ["s"], "code": PYTHON_FILTER},
        ]
    )
    return {**made, "index": draft.one(ANY_INDEX)}, [draft.edge(draft.given(), name)]


def _compute(draft: Draft, name: str) -> Made:
    given = draft.given()
    schema = draft.schemas[given]
    made = {"type": "compute", "schema": draft.text_of(schema), "outputs": draft.values(schema, BY_FIELD)}
    return {**made, "index": draft.one(ANY_INDEX)}, [draft.edge(given, name)]


def _functional(draft: Draft, name: str) -> Made:
    given = draft.given()
    schema = draft.schemas[given]
    made: Window = {"type": "functional", "schema": draft.text_of(schema), "index": draft.one(ANY_INDEX)}
    if draft.random.random() < 0.5:
        made["functions"] = {"x": draft.one(["eventCounter()", "x + eventCounter()", *NUMBERS])}
    else:
        made["functions"] = {"id": {"functions": "sum(product($id, 10), eventNumber())"}, "x": {"functions": "eventNumber()"}}
        made["loops"] = [
            {
                "name": "parts",
                "regex": "[a-z]",
                "text": {"functions": "$s"},
                "data": "part",
                "functions": {"s": {"functions": "$part"}, "id": {"functions": "sum(product($id, 10), eventNumber())"}},
            }
        ]
        if draft.random.random() < 0.5:
            made["generate"] = {"functions": "gt($x, 1)"}
        if draft.random.random() < 0.3:
            made["opcode"] = {"functions": "if(gt($x, 0), 'upsert', null)"}
    return made, [draft.edge(given, name)]


def _calculate(draft: Draft, name: str) -> Made:
    given = draft.given()
    made: Window = {"type": "calculate", "algorithm": "Summary", "schema": draft.text_of(draft.schemas[given])}
    made |= {"inputs": {"input": draft.one(["x", "d"])}, "index": draft.one(ANY_INDEX)}
    made["outputs"] = draft.one([{"sumOut": "d"}, {"nOut": "x"}, {"maxOut": "d", "nOut": "x"}, {"cssOut": "d"}, {"stdOut": "d"}])
    if draft.random.random() < 0.7:
        made["parameters"] = {"windowLength": str(draft.random.randint(1, 3))}
    return made, [draft.edge(given, name)]


def _union(draft: Draft, name: str) -> Made:
    first = draft.given()
    alike = sorted({other for other in draft.near if draft.schemas[other] == draft.schemas[first]})
    inputs = draft.random.sample(alike, min(len(alike), draft.random.randint(2, 3)))
    made = {"type": "union", "index": draft.one(ANY_INDEX), "merging": draft.one(["strict", "loose"])}
    return made, [draft.edge(each, name) for each in inputs]


def _join(draft: Draft, name: str) -> Made:
    left = draft.given()
    right = draft.one([each for each in draft.near if each != left] or draft.near)
    kind = draft.one(["inner", "inner", "leftouter", "rightouter", "fullouter"])
    conditions = {"id": "id"} if draft.random.random() < 0.4 else draft.one(CONDITIONS_OF_JOINS)
    keys = [[f.name for f in draft.schemas[each].fields if f.role is KeyRole.KEY] for each in (left, right)]
    if draft.random.random() < 0.5 and len(keys[0]) == len(keys[1]):
        conditions = dict(zip(*keys, strict=True))
    outputs = {each: draft.one([f"l_{each}", f"r_{each}"]) for each in ("id", "x", "d", "s", "at")}
    for each in keys[0] if kind != "rightouter" else keys[1]:
        outputs.pop(each, None)
    if draft.random.random() < 0.5:
        outputs["y:int64"] = "6 div coalesce(l_x, 1) + coalesce(r_x, 0)"
    made: Window = {"type": "join", "kind": kind, "conditions": conditions, "outputs": outputs}
    more = draft.one([{}, {}, {"regenerates": "never"}, {"streaming": "left"}, {"streaming": "right"}])
    if draft.random.random() < 0.15:
        more["index"] = "empty"
    edges = [draft.edge(left, name, "left"), draft.edge(right, name, "right")]
    draft.random.shuffle(edges)
    return {**made, **more}, edges


def _aggregate(draft: Draft, name: str) -> Made:
    given = draft.given()
    schema = draft.schemas[given]
    own = [f.name for f in schema.fields if f.name in BY_FIELD]
    keys = draft.one([["x"], ["x"], ["s"], ["s"], ["d"], ["x", "s"], ["id"]])
    chosen = [f for f in schema.fields if f.name in own]
    text = ",".join(f"{f.name}{'*' if f.name in keys else ''}:{f.type.value}" for f in chosen)
    outputs = {}
    for each in chosen:
        if each.name not in keys:
            options = OVER_ROWS[each.name]
            if draft.random.random() < 0.3:
                options = OF_ORDER.get(each.name, OF_ORDER["x"])
            outputs[each.name] = draft.one(options)
    return {"type": "aggregate", "schema": text, "outputs": outputs}, [draft.edge(given, name)]


def _pattern(draft: Draft, name: str) -> Made:
    first = draft.given()
    other = draft.given() if draft.random.random() < 0.5 else first
    logic = draft.one(LOGICS)
    pattern: Window = {
        "events": {
            "a": {"source": first, **draft.one([{}, {"condition": "u = x"}, {"condition": "x > 0 and u = s"}])},
            "b": {"source": other, **draft.one([{}, {"condition": "x > 1"}])},
        },
        "logic": logic,
        "outputs": {"x": "a.x", "d": draft.one(["b.d", "a.d"]), "s": {"a": "concat(s, '!')"}, "at": "a.at"},
    }
    condition = str(pattern["events"]["a"].get("condition", ""))
    if "u = x" in condition and draft.random.random() < 0.7:
        pattern["events"]["b"]["condition"] = "u = x and d > 0"
    if draft.random.random() < 0.3:
        events = {name: {"source": event["source"], "function": f"is_{name}"} for name, event in pattern["events"].items()}
        pattern = {"events": events, "logic": logic, **draft.one([{"code": LUA_PATTERN}, PYTHON_PATTERN])}
    if draft.random.random() < 0.4:
        pattern["index"] = [draft.one(["s", "x"])]
    if draft.random.random() < 0.3:
        pattern["timefields"] = {first: "at", other: "at"}
    made = {"type": "pattern", "index": draft.one(ANY_INDEX), "schema": FIELDS, "patterns": {"one": pattern}}
    return made, [draft.edge(each, name) for each in dict.fromkeys((first, other))]


def _remove_state(draft: Draft, name: str) -> Made:
    what = ["updates", "deletes", "retentionUpdates", "retentionDeletes"]
    made: Window = {"type": "remove-state", "remove": draft.random.sample(what, draft.random.randint(0, 4))}
    if draft.random.random() < 0.4:
        made["log_fields"] = "added"
    return {**made, "index": draft.one(ANY_INDEX)}, [draft.edge(draft.given(), name)]


def _statedb_writer(draft: Draft, name: str) -> Made:
    made: Window = {"type": "statedb-writer", "server": "redis://localhost/0", "prefix": name, "index": draft.one(ANY_INDEX)}
    return made, [draft.edge(draft.given(), name)]


def _counter(draft: Draft, name: str) -> Made:
    inputs = {draft.given() for _ in range(draft.random.randint(1, 2))}
    made: Window = {"type": "counter", "index": draft.one(ANY_INDEX), "count_interval": draft.one(["1 second", "2 seconds"])}
    if draft.random.random() < 0.5:
        made["clear_interval"] = "3 seconds"
    return made, [draft.edge(each, name) for each in sorted(inputs)]


def _transpose(draft: Draft, name: str) -> Made:
    given = draft.given()
    wide = [f.name for f in draft.schemas[given].fields if f.name.startswith("a_")]
    made: Window = {"type": "transpose", "mode": "wide", "tag": "s", "tags": ["a", "b"]}
    if wide:
        made |= {"mode": "long", "values": [each.removeprefix("a_") for each in wide]}
    else:
        made["values"] = draft.one([["x"], ["d", "at"], ["x", "d"]])
        if draft.random.random() < 0.5:
            made["group_by"] = [draft.one(["id", "at"])]
        if draft.random.random() < 0.4:
            made["clear_timeout"] = "2 seconds"
    return {**made, "index": draft.one(ANY_INDEX)}, [draft.edge(given, name)]


def _geofence(draft: Draft, name: str) -> Made:
    position, geometry = draft.given(), draft.given()
    made = {
        "type": "geofence",
        "index": draft.one(ANY_INDEX),
        "geometry": draft.one([{"x": "d", "y": "d", "radius_field": "d"}, {"x": "d", "y": "d", "radius": 2}]),
        "position": {"x": "d", "y": "d"},
        "results": draft.one(["all", "one"]),
        "order": draft.one(["distance", "arrival"]),
        "outputs": {"id": "area", "distance": "far", "number": "n"},
    }
    return made, [draft.edge(position, name, "position"), draft.edge(geometry, name, "geometry")]


CUSTOM = {
    "type": "custom",
    "inputs": {"number": "x", "name": "s"},
    "outputs": {"number": "x", "text": "s"},
    "settings": {"limit": "3"},
}


def _code(draft: Draft, name: str) -> Made:
    made = draft.one(
        [
            {"type": "lua", "events": "create", "code": LUA_CREATE},
            {"type": "lua", "events": "create", "init": "began", "code": LUA_SHARED},
            {**CUSTOM, "code": LUA_CUSTOM},
            {"type": "python", "events": "create", "code": PYTHON_CREATE},
            {"type": "python-columns", "events": "scale", "use": ["x", "d"], "copy-except": ["x", "d"], "code": PYTHON_COLUMNS},
        ]
    )
    several = draft.one([1, 1, 2, 3]) if made["type"] in ("lua", "python") else 1
    given = list(dict.fromkeys(draft.given() for _ in range(several)))
    edges = [draft.edge(each, name) for each in given]
    return {**made, "schema": draft.text_of(draft.schemas[given[0]]), "index": draft.one(ANY_INDEX)}, edges


MAKERS: tuple[Maker, ...] = (
    *(_copy, _filter, _code_filter, _compute, _functional, _calculate, _union, _join, _join, _join, _aggregate, _aggregate),
    *(_pattern, _remove_state, _statedb_writer, _counter, _transpose, _geofence, _code),
)


def _with_extras(draft: Draft, window: Window) -> Window:
    """Adds options that any window may have for its outputs."""
    chance, made = draft.random.random(), dict(window)
    if chance < 0.1:
        made["pulse"] = draft.one(["1 second", "3 seconds"])
    elif chance < 0.14:
        made["updates"] = "collapsed"
    elif chance < 0.17:
        made["output"] = "insert-only"
    elif chance < 0.19:
        made["produces"] = "insert-only"
    elif chance > 0.9:
        made["emit"] = "new"
    if draft.random.random() < 0.12:
        made["splitter"] = draft.one(["x", "id % 3", "6 div x", "case when s = 'a' then -1 else x end", "d > 0"])
    return made


def _grown(graph: Graph, random: Random, makers: Sequence[Maker], near: Sequence[str] = (), rows_max: int = 4) -> Graph:
    """Returns the graph with one more window from any of the makers; unchanged if none is valid after some tries."""
    try:
        schemas = {each.id.window: each.schema for each in graph.resolved().windows} if graph.windows else {}
    except ProjectError:
        schemas = {}
    splits = frozenset(name for name, each in graph.windows.items() if "splitter" in each)
    draft, name = Draft(random, schemas, splits, tuple(near) or tuple(schemas), rows_max), f"w{len(graph.windows)}"
    for _ in range(6):
        window, edges = draft.one(makers)(draft, name)
        for each in (_with_extras(draft, window), window):
            grown = graph.with_window(name, each, edges)
            try:
                grown.plan()
                return grown
            except ProjectError:
                continue
    return graph


def _started(random: Random, sources: int) -> Graph:
    graph = Graph(tracking="on" if random.random() < 0.2 else "off")
    for _ in range(sources):
        graph = _grown(graph, random, [_source])
    return graph


def graphs(random: Random, windows_max: int = 11, sources: int = 0) -> Graph:
    """Returns a graph with `sources` source windows; 0: with any number."""
    graph = _started(random, sources or random.randint(1, 3))
    makers = random.sample(MAKERS, random.randint(2, 6))  # a few types meet each other more often than all would
    for _ in range(random.randint(3, max(3, windows_max - 2))):
        graph = _grown(graph, random, makers)
    return graph


def _with_idle_sources(graph: Graph) -> Graph:
    sources = {name: {**each, "idle": "1 second"} for name, each in graph.windows.items() if each["type"] == "source"}
    return replace(graph, windows={**graph.windows, **sources})


def idle(random: Random, sources: int = 0) -> Graph:
    """Returns a graph whose windows use event time, which advances while no event arrives; `sources` as in `graphs`."""
    graph = _started(random, sources or random.randint(1, 2))
    graph = _with_idle_sources(graph)
    for _ in range(random.randint(2, 5)):
        graph = _grown(graph, random, (_copy_by_event_time, _copy_by_event_time, _aggregate, _filter, _union, _pattern))
    return graph


KEEPERS: tuple[tuple[Maker, ...], ...] = (
    (_copy,),
    (_copy,),
    (_copy_of_groups, _copy),
    (_join,),
    (_aggregate,),
    (_pattern,),
    (_transpose, _geofence, _geofence),
    (_copy, _join, _aggregate, _pattern),
)
"""The sets of makers of one graph: windows that keep rows, or state derived from rows."""
STREAM = {"opcodes": "insert-only", "keys": "autogenerated", "index": "empty"}
"""The settings of a source window whose rows arrive once, and are evicted in order."""


def keepers(random: Random, rows_max: int) -> Graph:
    """Returns a graph of windows that keep many rows, at most `rows_max` if retention counts them."""
    graph = _started(random, 2)
    if random.random() < 0.3:
        streams = {name: {"type": "source", "schema": FIELDS, **STREAM} for name in graph.windows}
        graph = replace(graph, windows=streams)
    makers, sources = random.choice(KEEPERS), list(graph.windows)
    for _ in range(random.randint(3, 6)):
        graph = _grown(graph, random, makers, sources if random.random() < 0.8 else (), rows_max)
    return _with_idle_sources(graph) if len(graph.windows) % 3 == 0 else graph


def diamonds(random: Random, sources: int = 1) -> Graph:
    """Returns a graph in which events reach a join or a union by two paths, with windows after it."""
    graph, ends = _started(random, sources), ["w0", "w0"]
    for way in (0, 1):
        for _ in range(random.randint(1 - way, 2)):
            grown = _grown(graph, random, (_copy, _filter, _compute, _compute, _aggregate, _functional, _code), [ends[way]])
            if len(grown.windows) > len(graph.windows):
                graph, ends[way] = grown, list(grown.windows)[-1]
    graph = _grown(graph, random, (_join, _join, _join, _union), ends)
    for _ in range(random.randint(0, 2)):
        graph = _grown(graph, random, MAKERS, [list(graph.windows)[-1]])
    return graph
