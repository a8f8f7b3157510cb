"""Random valid projects, for laws about projects and for any test that needs one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import assume
from hypothesis import strategies as st

from hotspare.model.connectors import CONNECTOR_PROPERTIES, NO_KEY_COLUMN, PROPERTY_VALUES, Support
from hotspare.model.delivery import BLOCKS
from hotspare.model.durations import DURATION_US_MAX
from hotspare.model.failover_rules import JUDGED
from hotspare.model.frontends.values import property_value
from hotspare.model.names import first_unprintable
from hotspare.model.project import (
    DEFAULT_EMISSION,
    EVERY_SLOT,
    PUBLICATIONS,
    AcceptedOpcodes,
    Connector,
    ConnectorDirection,
    ConnectorGroup,
    ContinuousQuery,
    Dialect,
    Edge,
    Emission,
    Emit,
    Eviction,
    Expression,
    IndexType,
    KeyOrigin,
    Project,
    Publication,
    Retention,
    RetentionKind,
    RetentionTracking,
    Singletons,
    Updates,
    Window,
)
from hotspare.model.quality import BUFFERED, COUNT_MAX, PRECISE, SIMPLE, TRIMMED, Quality, QualityKind
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.model.window_type import Newness, type_of
from hotspare.projects.analysis import analyse
from hotspare.windows.calculate.algorithms import SUMMARY_OUTPUTS, SUMMARY_TYPES
from hotspare.windows.calculate.declaration import CalculateWindow
from hotspare.windows.compute.declaration import ComputeWindow
from hotspare.windows.copy.declaration import CopyWindow
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.functional.declaration import FunctionalWindow
from hotspare.windows.source.declaration import SourceWindow

NAME_LETTERS = "abXY019_-"
names = st.text(NAME_LETTERS, min_size=1, max_size=6)
field_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True)

# Everything that a text can contain and that a careless writer breaks; no @, which properties would replace.
characters = st.one_of(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="@").filter(lambda c: not first_unprintable(c)),
    st.sampled_from("<>&'\"]:#-?|%{}[],\\ \t\n\r\x85\u2028\ufeff"),
)
texts = st.text(characters, max_size=12)
expression_texts = texts.map(str.strip).filter(bool)
property_values = texts.filter(lambda t: property_value(t) == t and not t.startswith(("'", '"')))
durations = st.one_of(st.integers(1, DURATION_US_MAX), st.integers(1, 90).map(lambda n: n * 1_000_000))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    drawn = draw(st.lists(field_names, min_size=1, max_size=6, unique=True))
    keys = draw(st.integers(1, len(drawn)))
    types = st.sampled_from(FieldType)
    of_keys = st.sampled_from([type_ for type_ in FieldType if not type_.is_array])
    fields = [Field(name, draw(of_keys), KeyRole.KEY) if i < keys else Field(name, draw(types)) for i, name in enumerate(drawn)]
    return Schema(tuple(draw(st.permutations(fields))))


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    return Expression(draw(expression_texts), draw(st.sampled_from(Dialect)))


def _evictions(time_field: str) -> st.SearchStrategy[Eviction]:
    """Draws the order of retention by time: by system time no event evicts."""
    return st.sampled_from(Eviction) if time_field else st.just(Eviction.AFTER)


@st.composite
def retentions(draw: st.DrawFn, schema: Schema) -> Retention:
    kind = draw(st.sampled_from(RetentionKind))
    if kind in (RetentionKind.BYCOUNT_SLIDING, RetentionKind.BYCOUNT_JUMPING):
        fields = [f.name for f in schema.fields if not f.type.is_array] if kind is RetentionKind.BYCOUNT_SLIDING else []
        by = draw(st.lists(st.sampled_from(fields), max_size=3, unique=True)) if fields else []
        return Retention(kind, draw(st.integers(1, 1_000_000_000)), by=tuple(by), eviction=draw(st.sampled_from(Eviction)))
    time_fields = [f.name for f in schema.fields if f.type in (FieldType.DATE, FieldType.STAMP)]
    unit_us = draw(durations) if kind is RetentionKind.BYTIME_JUMPING_LOOKBACK else 0
    time_field = draw(st.sampled_from(["", *time_fields]))
    return Retention(kind, draw(durations), time_field, unit_us, eviction=draw(_evictions(time_field)))


@st.composite
def connectors(draw: st.DrawFn, directions: tuple[ConnectorDirection, ...]) -> tuple[Connector, ...]:
    made = []
    failover = draw(st.sampled_from([{}, {"hotfailover": "true"}, {"hotfailover": "false"}]))
    for name in draw(st.lists(names, max_size=2, unique=True)):
        ways = [(kind, each) for kind in sorted(CONNECTOR_PROPERTIES) for each in CONNECTOR_PROPERTIES[kind] if each in directions]
        kind, direction = draw(st.sampled_from(ways))
        known = [
            n
            for n, s in CONNECTOR_PROPERTIES[kind][direction].items()
            if s is not Support.MISSING and n not in PROPERTY_VALUES and n not in {*JUDGED, NO_KEY_COLUMN, BLOCKS}
        ]
        properties = draw(st.dictionaries(st.one_of(st.sampled_from(known), st.just("no.such")), property_values, max_size=3))
        if kind == "kafka" and direction is ConnectorDirection.SUBSCRIBE:
            properties |= failover
        made.append(Connector(name, kind, direction, tuple(sorted(properties.items()))))
    return tuple(made)


def qualities() -> st.SearchStrategy[Quality]:
    counts, times_ms = st.integers(1, COUNT_MAX - 1), st.integers(1, 86_400_000)
    return st.one_of(
        st.sampled_from([PRECISE, SIMPLE, BUFFERED, TRIMMED]),
        st.builds(lambda n: Quality(QualityKind.BUFFERED, window_events=n), counts),
        st.builds(lambda ms: Quality(QualityKind.BUFFERED, window_ms=ms), times_ms),
        st.builds(
            lambda n, ms: Quality(QualityKind.TRIMMED, progress_events=n, progress_ms=ms), counts | st.just(COUNT_MAX), times_ms
        ),
    )


def emissions() -> st.SearchStrategy[Emission]:
    opcodes = st.sampled_from(AcceptedOpcodes)
    return st.builds(Emission, opcodes, opcodes, st.sampled_from(Updates), st.just(0) | durations)


def _common(draw: st.DrawFn, name: str, *directions: ConnectorDirection) -> dict[str, object]:
    connected = draw(connectors(directions)) if draw(st.integers(0, 3)) == 0 else ()
    return {
        "name": name,
        "index": draw(st.sampled_from(IndexType)),
        "connectors": connected,
        "quality": draw(st.none() | qualities()) if not connected else None,
        "splitter": draw(st.none() | expressions()),
        "publication": draw(st.sampled_from([Publication.DERIVED] * 4 + list(PUBLICATIONS.values()))),
        "emission": draw(st.just(DEFAULT_EMISSION) | emissions()),
        "text_bytes_max": draw(st.just(0) | st.integers(1, 999_999_999)),
        "description": draw(texts).strip(),
    }


def _source(draw: st.DrawFn, name: str) -> tuple[Window, Schema]:
    schema = draw(schemas())
    common = _common(draw, name, ConnectorDirection.PUBLISH, ConnectorDirection.SUBSCRIBE)
    keys = [schema.fields[i] for i in schema.key_indexes]
    accepts = draw(st.sampled_from(AcceptedOpcodes))
    may_generate = len(keys) == 1 and keys[0].type in (FieldType.INT64, FieldType.STRING) and accepts is AcceptedOpcodes.INSERT_ONLY
    retention = draw(st.none() | retentions(schema)) if common["index"] is not IndexType.EMPTY else None
    origin = draw(st.sampled_from(KeyOrigin)) if may_generate else KeyOrigin.GIVEN
    by = draw(st.sampled_from(["", *schema.names]))
    idle_us = draw(st.sampled_from([0, 0, 1, 10_000_000]))
    own = {"accepts": accepts, "key_origin": origin, "retention": retention, "partition_by": by, "idle_us": idle_us}
    return SourceWindow(**common, **own, schema=schema), schema  # type: ignore[arg-type]


def _passing(draw: st.DrawFn, schema: Schema, more: list[Field]) -> Schema:
    """Draws the input's keys, some of its other fields, and new ones, in any order."""
    kept = [f for f in schema.fields if f.is_key or draw(st.booleans())]
    new = [f for f in more if f.name not in schema.index]
    return Schema(tuple(draw(st.permutations(kept + new))))


def _fresh(name: str, given: Schema) -> str:
    """Returns a field name that `given` does not have."""
    while name in given.index:
        name += "_"
    return name


def _derived(draw: st.DrawFn, name: str, given: Schema) -> tuple[Window, Schema]:
    """Draws a window that reads a stream of the schema `given`."""
    common = _common(draw, name, ConnectorDirection.SUBSCRIBE)
    numbers = [f.name for f in given.fields if f.type in SUMMARY_TYPES]
    kind = draw(st.sampled_from(["copy", "filter", "compute", "functional"] + ["calculate"] * bool(numbers)))
    if kind == "copy":
        retention = draw(st.none() | retentions(given)) if common["index"] is not IndexType.EMPTY else None
        written = draw(st.sampled_from([None, given]))
        return CopyWindow(**common, schema=written, retention=retention), given  # type: ignore[arg-type]
    if kind == "filter":
        return FilterWindow(**common, condition=draw(expressions())), given  # type: ignore[arg-type]
    if kind == "calculate":
        outputs = draw(st.lists(st.sampled_from(sorted(SUMMARY_OUTPUTS)), min_size=1, max_size=3, unique=True))
        new = {o: _fresh(o, given) for o in outputs}
        fields = [Field(name, draw(st.sampled_from(sorted(SUMMARY_TYPES, key=str)))) for name in new.values()]
        schema = _passing(draw, given, fields)
        return CalculateWindow(
            **common,  # type: ignore[arg-type]
            schema=schema,
            algorithm="Summary",
            parameters=draw(st.sampled_from([(), (("windowLength", "20"),)])),
            input_map=(("input", draw(st.sampled_from(numbers))),),
            output_map=tuple(sorted(new.items())),
        ), schema
    values = [f for f in draw(schemas()).fields if f.name not in given.index]
    schema = _passing(draw, given, [Field(f.name, f.type) for f in values])
    own = [f.name for f in schema.fields if not f.is_key]
    if kind == "compute":
        return ComputeWindow(**common, schema=schema, outputs=tuple(draw(expressions()) for _ in own)), schema  # type: ignore[arg-type]
    functions = [(n, draw(expressions())) for n in own if n not in given.index or draw(st.booleans())]
    return FunctionalWindow(**common, schema=schema, functions=tuple(functions)), schema  # type: ignore[arg-type]


@st.composite
def queries(draw: st.DrawFn, name: str) -> ContinuousQuery:
    windows: list[Window] = []
    outputs: list[Schema] = []
    edges: list[Edge] = []
    for window_name in draw(st.lists(names, min_size=1, max_size=5, unique=True)):
        if not windows or draw(st.integers(0, 4)) == 0:
            window, schema = _source(draw, window_name)
        else:
            at = draw(st.integers(0, len(windows) - 1))
            window, schema = _derived(draw, window_name, outputs[at])
            slot = draw(st.sampled_from([EVERY_SLOT, 0, 7]))
            edges.append(Edge(windows[at].name, window_name, draw(st.sampled_from(["", "data"])), slot))
        if type_of(window).newness is not Newness.NONE and draw(st.booleans()):
            window = replace(window, emission=replace(window.emission, emit=Emit.NEW))
        windows.append(window)
        outputs.append(schema)
    return ContinuousQuery(
        name,
        tuple(draw(st.permutations(windows))),
        tuple(draw(st.permutations(edges))),
        tuple(w.name for w in windows if draw(st.booleans())),
        draw(st.sampled_from(Singletons)),
    )


@st.composite
def connector_groups(draw: st.DrawFn) -> tuple[ConnectorGroup, ...]:
    """Draws groups without connectors, each of which may start after some of those before it."""
    found: list[ConnectorGroup] = []
    for name in draw(st.lists(names, max_size=3, unique=True)):
        before = [group.name for group in found]
        after = draw(st.lists(st.sampled_from(before), unique=True)) if before else []
        found.append(ConnectorGroup(name, (), tuple(after)))
    return tuple(found)


@st.composite
def projects(draw: st.DrawFn) -> Project:
    """Draws a project without mistakes (its expressions are any text)."""
    project = Project(
        name=draw(names),
        queries=tuple(draw(queries(name)) for name in draw(st.lists(names, min_size=1, max_size=2, unique=True))),
        heartbeat_interval_us=draw(st.one_of(st.just(1_000_000), st.integers(1_000, 86_400_000_000))),
        retention_tracking=draw(st.sampled_from(RetentionTracking)),
        restore=draw(st.sampled_from(("", "/shared/failover", "file:///shared#time:2026-01-31T08:00"))),
        properties=tuple(sorted(draw(st.dictionaries(names, property_values, max_size=2)).items())),
        connector_groups=draw(connector_groups()),
        metadata=tuple(sorted(draw(st.dictionaries(names, texts, max_size=2)).items())),
        description=draw(texts).strip(),
    )
    found = analyse(project).found
    assume([m.message for m in found.mistakes] != [f"project {project.name} publishes nothing"])
    assert not found, found.mistakes  # only projects that publish nothing are drawn in vain
    return project


ROW = Schema(
    (
        Field("id", FieldType.INT64, KeyRole.KEY),
        Field("x", FieldType.INT64),
        Field("s", FieldType.STRING),
        Field("at", FieldType.STAMP),
    )
)
"""The fields of every window of `running_projects`."""
CONDITIONS = (
    "true",
    "x > 1",
    "6 div x > 2",
    "s = 'a' or x is null",
    "id % 2 = 1",
    "ESP_OPCODE = 'I'",
    "x > 0 and ESP_OPCODE = 'I'",
    "ESP_OPCODE <> 'D'",
    "ESP_FLAGS <> 'R'",
    "ESP_FLAGS <> 'R' and x > 0",
)
NUMBERS = ("x", "x + 1", "6 div x", "coalesce(x, 7)", "10 * id", "6 div (id - 2)", "if(ESP_OPCODE = 'I', x, -1)")
TEXTS = ("s", "concat(s, '!')", "concat('k', cast(id as string))", "ESP_OPCODE", "concat(ESP_FLAGS, s)")
COUNTS = ("eventCounter()", "x + eventCounter()")
STATISTICS = ("sumOut", "nOut", "maxOut")


def _sql(text: str) -> Expression:
    return Expression(text, Dialect.SPARK_SQL)


@st.composite
def short_retentions(draw: st.DrawFn) -> Retention:
    """Draws retentions so short that a script of some seconds reaches them."""
    kind = draw(st.sampled_from(RetentionKind))
    if kind in (RetentionKind.BYCOUNT_SLIDING, RetentionKind.BYCOUNT_JUMPING):
        groups = [(), ("s",), ("x",), ("at", "s")] if kind is RetentionKind.BYCOUNT_SLIDING else [()]
        return Retention(kind, draw(st.integers(1, 3)), by=draw(st.sampled_from(groups)), eviction=draw(st.sampled_from(Eviction)))
    unit_us = 2_000_000 if kind is RetentionKind.BYTIME_JUMPING_LOOKBACK else 0
    limit, time_field = draw(st.sampled_from([1_000_000, 2_500_000])), draw(st.sampled_from(["", "at"]))
    return Retention(kind, limit, time_field, unit_us, eviction=draw(_evictions(time_field)))


def _running_source(draw: st.DrawFn) -> SourceWindow:
    index = draw(st.sampled_from([IndexType.EMPTY, IndexType.EMPTY, IndexType.HASH, IndexType.RBTREE]))
    accepts = draw(st.sampled_from(AcceptedOpcodes))
    origin = draw(st.sampled_from(KeyOrigin)) if accepts is AcceptedOpcodes.INSERT_ONLY else KeyOrigin.GIVEN
    retention = draw(st.none() | short_retentions()) if index is not IndexType.EMPTY else None
    idle_us = draw(st.sampled_from([0, 0, 1, 1_000_000]))
    return SourceWindow(
        name="w0", schema=ROW, index=index, accepts=accepts, key_origin=origin, retention=retention, idle_us=idle_us
    )


def _running_window(draw: st.DrawFn, name: str) -> Window:
    index = draw(st.sampled_from([IndexType.HASH, IndexType.LN_HASH, IndexType.EMPTY]))
    return _running_kind(draw, name, index, draw(st.sampled_from(["copy", "filter", "compute", "functional", "calculate"])))


def _running_kind(draw: st.DrawFn, name: str, index: IndexType, kind: str) -> Window:
    if kind == "copy":
        retention = draw(st.none() | short_retentions()) if index is not IndexType.EMPTY else None
        return CopyWindow(name=name, index=index, retention=retention)
    if kind == "filter":
        return FilterWindow(name=name, index=index, condition=_sql(draw(st.sampled_from(CONDITIONS))))
    if kind == "compute":
        outputs = (_sql(draw(st.sampled_from(NUMBERS))), _sql(draw(st.sampled_from(TEXTS))), _sql("at"))
        return ComputeWindow(name=name, schema=ROW, index=index, outputs=outputs)
    if kind == "functional":
        functions = (("x", _sql(draw(st.sampled_from(NUMBERS + COUNTS)))),)
        return FunctionalWindow(name=name, schema=ROW, index=index, functions=functions)
    return CalculateWindow(
        name=name,
        schema=ROW,
        index=index,
        algorithm="Summary",
        parameters=draw(st.sampled_from([(), (("windowLength", "2"),)])),
        input_map=(("input", "x"),),
        output_map=((draw(st.sampled_from(STATISTICS)), "x"),),
    )


@st.composite
def running_projects(draw: st.DrawFn) -> Project:
    """Draws a source and up to five windows behind it, in any tree, all published, whose expressions can run. The project may be
    invalid."""
    windows: list[Window] = [_running_source(draw)]
    edges: list[Edge] = []
    for i in range(draw(st.integers(1, 5))):
        edges.append(Edge(windows[draw(st.integers(max(0, i - 2), i))].name, f"w{i + 1}"))
        windows.append(_running_window(draw, f"w{i + 1}"))
    published = tuple(replace(window, publication=Publication.PUBLISHED) for window in windows)
    return Project("p", (ContinuousQuery("q", published, tuple(edges)),))


@st.composite
def stateless_chains(draw: st.DrawFn) -> Project:
    """Draws a source and a line of stateless windows that the head can run, and a copy that may forget."""
    accepts = draw(st.sampled_from([AcceptedOpcodes.INSERT_ONLY, AcceptedOpcodes.INSERT_ONLY, AcceptedOpcodes.ANY]))
    windows: list[Window] = [SourceWindow(name="w0", schema=ROW, index=IndexType.EMPTY, accepts=accepts)]
    for i in range(draw(st.integers(1, 3))):
        windows.append(_running_kind(draw, f"w{i + 1}", IndexType.EMPTY, draw(st.sampled_from(["filter", "compute"]))))
    windows.append(CopyWindow(name="end", retention=draw(st.none() | short_retentions())))
    edges = tuple(Edge(before.name, after.name) for before, after in pairwise(windows))
    return Project("p", (ContinuousQuery("q", tuple(windows), edges),))
