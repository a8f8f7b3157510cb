"""Law of relations: the outputs of a window are those of a plain model of it, event by event; folded, they are the window's rows.

Random projects of all window types, index kinds and retentions, and random changelogs: every opcode, partial updates, unknown keys,
nulls, duplicates, ticks. Invalid projects are refused, and no others are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import event as note
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import ProjectError
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.project import (
    AcceptedOpcodes,
    ContinuousQuery,
    Dialect,
    Edge,
    Eviction,
    Expression,
    IndexType,
    KeyOrigin,
    Project,
    Publication,
    Retention,
    RetentionKind,
    Window,
)
from hotspare.projects.resolve import resolve
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.windows.calculate.declaration import CalculateWindow
from hotspare.windows.compute.declaration import ComputeWindow
from hotspare.windows.copy.declaration import CopyWindow
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.functional.declaration import FunctionalWindow
from hotspare.windows.shared import keyed
from hotspare.windows.source.declaration import SourceWindow
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws.model_windows import OPCODES, SECOND, Event, Index, Limits, PlainWindow, Statistic, Work, folded
from tests.strategies_projects import ROW, running_projects
from tests.tunings import tunings

pytestmark = pytest.mark.law

OF_KEYS = ("true", "id % 2 = 1", "10 * id", "6 div (id - 2)", "concat('k', cast(id as string))")
ONLY_INSERTS = ("ESP_OPCODE = 'I'", "x > 0 and ESP_OPCODE = 'I'")
EVENT_WORDS = ("ESP_OPCODE", "ESP_FLAGS", "eventCounter")


def _limits(retention: Retention | None) -> Limits | None:
    if retention is None:
        return None
    by = tuple(ROW.index[name] for name in retention.by)
    evicts_first = retention.eviction is Eviction.BEFORE
    return Limits(retention.kind.value, retention.limit, retention.unit_us, bool(retention.time_field), by, evicts_first)


def _texts(window: Window) -> list[str]:
    """Returns the expressions of a window, without fields that pass by name."""
    if isinstance(window, FilterWindow):
        return [window.condition.text]
    if isinstance(window, ComputeWindow):
        return [e.text for e, field in zip(window.outputs, ("x", "s", "at"), strict=True) if e.text != field]
    return [e.text for _, e in window.functions if e.text != "x"] if isinstance(window, FunctionalWindow) else []


@dataclass
class Kinds:
    """The changelog that leaves each window, "published" events, "inserts" or the "changes" of a table, and the invalid windows."""

    leaving: dict[str, str] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, project: Project) -> Kinds:
        kinds = cls()
        above = {edge.target: edge.source for edge in project.queries[0].edges}
        for window in project.queries[0].windows:
            if isinstance(window, SourceWindow):
                given = "inserts" if window.accepts is AcceptedOpcodes.INSERT_ONLY else "published"
            else:
                given = kinds.leaving[above[window.name]]
            forgets = isinstance(window, SourceWindow | CopyWindow) and window.retention is not None
            is_table = window.index is not IndexType.EMPTY
            kinds.leaving[window.name] = given if not is_table or (given == "inserts" and not forgets) else "changes"
            if isinstance(window, FilterWindow) and window.condition.text in ONLY_INSERTS:
                kinds.leaving[window.name] = "inserts"
            if not is_table and _has_to_know(window, given):
                kinds.wrong.add(window.name)
                kinds.leaving[window.name] = "inserts"  # the windows downstream are not judged
        return kinds


def _has_to_know(window: Window, given: str) -> bool:
    """Whether a window that keeps nothing would need earlier values."""
    if isinstance(window, SourceWindow | CopyWindow) or (
        isinstance(window, FilterWindow) and window.condition.text in ONLY_INSERTS
    ):
        return False
    texts = _texts(window)
    decode_columns = any(word in text for text in texts for word in EVENT_WORDS)
    if given == "published":
        return isinstance(window, CalculateWindow) or not all(text in OF_KEYS for text in texts)
    return given == "changes" and (isinstance(window, CalculateWindow) or (decode_columns and not isinstance(window, FilterWindow)))


def _plain(window: Window, given: str) -> PlainWindow:
    limits = _limits(window.retention) if isinstance(window, SourceWindow | CopyWindow) else None
    table = None if window.index is IndexType.EMPTY else Index(limits)
    if isinstance(window, SourceWindow | CopyWindow):
        return PlainWindow(table=table)
    by_input = Index() if table is not None and given == "published" else None
    if isinstance(window, CalculateWindow):
        length = int(dict(window.parameters).get("windowLength", "0"))
        return PlainWindow(by_input, table, statistic=Statistic(window.output_map[0][0], length))
    if isinstance(window, FilterWindow):
        return PlainWindow(by_input, table, Work(window.condition.text))
    if isinstance(window, ComputeWindow):
        number, text, at = (e.text for e in window.outputs)
        return PlainWindow(by_input, table, Work(outputs=(number, text, at)))
    assert isinstance(window, FunctionalWindow)
    return PlainWindow(by_input, table, Work(outputs=(window.functions[0][1].text, "s", "at")))


class PlainProject:
    """The plain windows of a project; `take` and `tick` return the outputs of each, by name, and bad events as (reason, window)."""

    def __init__(self, project: Project) -> None:
        query = project.queries[0]
        kinds = Kinds.of(project).leaving
        self.above = {edge.target: edge.source for edge in query.edges}
        self.windows = {w.name: _plain(w, kinds.get(self.above.get(w.name, ""), "")) for w in query.windows}
        source = query.windows[0]
        assert isinstance(source, SourceWindow)
        for window in self.windows.values():
            if window.table is not None:
                window.table.idle_us = source.idle_us
        self._source = source
        self._keys = 0
        self._interval = project.heartbeat_interval_us
        self._beat: int | None = None
        self._now = 0

    def take(self, time: int, event: Event) -> tuple[dict[str, list[Event]], list[tuple[str, str]]]:
        self._start(time)
        reason = self._refused(event)
        if reason:
            return {}, [(reason, "w0")]
        if self._source.key_origin is KeyOrigin.AUTOGENERATED:
            event = event._replace(row=(self._keys, *event.row[1:]))
            self._keys += 1
        return self._through([event])

    def tick(self, time: int) -> tuple[dict[str, list[Event]], list[tuple[str, str]]]:
        self._start(time)
        if self._beat is not None and self._now // self._interval == self._beat // self._interval:
            return {}, []
        self._beat = self._now
        return self._through([], beats=True)

    def _start(self, time: int) -> None:
        self._now = max(self._now, time)
        for window in self.windows.values():
            window.begin(self._now)

    def _refused(self, event: Event) -> str:
        if self._source.accepts is AcceptedOpcodes.INSERT_ONLY and event.opcode != "I":
            return "not-insert"
        keyless = event.row[0] is None and self._source.index is IndexType.EMPTY
        return "null-key" if keyless and self._source.key_origin is KeyOrigin.GIVEN else ""

    def _through(self, events: list[Event], *, beats: bool = False) -> tuple[dict[str, list[Event]], list[tuple[str, str]]]:
        made: dict[str, list[Event]] = {}
        bad: list[tuple[str, str]] = []
        for name, window in self.windows.items():
            given = made[self.above[name]] if name in self.above else events
            made[name] = window.take(given, self._now) + (window.beat(self._now) if beats else [])
            bad += [(reason, name) for reason in window.bad]
            window.bad.clear()
        return {name: found for name, found in made.items() if found}, bad


Given = tuple[int, list[Event]]
"""Append time, and the events of a message; an empty list is a tick."""


@st.composite
def scripts(draw: st.DrawFn) -> list[Given]:
    row = st.tuples(
        st.sampled_from([1, 1, 2, 2, 3, None]),
        st.sampled_from([None, 0, 1, 2, 3, 4]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, *(i * SECOND // 2 for i in range(1, 12))]),
    )
    flags = st.sampled_from([frozenset("N")] * 4 + [frozenset("P"), frozenset("NP"), frozenset("R")])
    events = st.builds(Event, st.sampled_from(["I", "I", "P", "P", "U", "U", "D", "SD"]), flags, row)
    script, time = [], SECOND
    for _ in range(draw(st.integers(1, 15))):
        time += draw(st.sampled_from([0, 1, 400_000, 900_000, 2_600_000, -300_000]))
        script.append((max(time, 0), draw(st.one_of(st.just([]), st.lists(events, min_size=1, max_size=3)))))
    return [*script, (time + 9 * SECOND, [])]


def as_text(event: Event) -> str:
    values = ["" if value is None else str(value) for value in event.row]
    return ",".join([event.opcode, "".join(sorted(event.flags)), *values])


Made = dict[tuple[int, int], dict[str, list[Event]]]


def run(plan: Plan, script: list[Given]) -> tuple[Made, dict[tuple[int, int], list[tuple[str, str]]]]:
    """Returns outputs by position and window, and bad events as (reason, window) by position."""
    messages = tuple(Message(time, "w0" if events else "", " | ".join(map(as_text, events))) for time, events in script)
    outputs = Pipeline.fresh(plan).feed(Head.from_plan(plan).decode(pa.concat_batches(raw_batches(Case(plan, messages, ())))))
    made: Made = {}
    bad: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for stream, batch in outputs.items():
        if stream == "bad":
            for row in batch.to_pylist():
                where = (row["hs:offset"], row["hs:index"])
                bad.setdefault(where, []).append((row["reason"], row["window"].removeprefix("q/")))
            continue
        columns = {name: batch.column(name) for name in batch.schema.names}
        columns["at"] = columns["at"].cast(pa.int64())
        names = ("hs:offset", "hs:index", "hs:opcode", "hs:flags", "id", "x", "s", "at")
        for offset, index, opcode, flags, *values in zip(*(columns[name].to_pylist() for name in names), strict=True):
            letters = frozenset(letter for bit, letter in ((1, "N"), (2, "P"), (4, "R")) if flags & bit)
            event = Event(OPCODES[opcode], letters, tuple(values))
            made.setdefault((offset, index), {}).setdefault(stream.removeprefix("q/"), []).append(event)
    return made, bad


def check(plan: Plan, project: Project, script: list[Given]) -> None:
    plain = PlainProject(project)
    made, bad = run(plan, script)
    tables = {w.name: {} for w in project.queries[0].windows if w.index is not IndexType.EMPTY}  # type: dict[str, dict[int, Row]]
    for offset, (time, events) in enumerate(script):
        for index, event in enumerate(events or [None]):
            expected, wrong = plain.tick(time) if event is None else plain.take(time, event)
            assert made.get((offset, index), {}) == expected, f"message {offset}, event {index}: {event}"
            assert bad.get((offset, index), []) == wrong
            for name, rows in tables.items():
                folded(rows, expected.get(name, []))
                index_rows = plain.windows[name].table
                assert index_rows is not None
                assert rows == {key: row for key, (row, _) in index_rows.rows.items()}, name


@examples(3)
@given(running_projects(), scripts())
def test_relations(project: Project, script: list[Given]) -> None:
    """SPEC A10-A16, A19-A26: outputs, bad events, and the rows of tables, after every event."""
    wrong = Kinds.of(project).wrong
    try:
        plan = compile_plan(resolve(project))
    except ProjectError as error:
        note("refused")
        assert {mistake.message.split()[1] for mistake in error.mistakes} == {f"q/{name}" for name in wrong}
        return
    assert not wrong
    check(plan, project, script)


RETENTIONS = st.builds(
    lambda kind, limit, time_field: Retention(kind, limit if kind.is_by_count else limit * SECOND, time_field=time_field),
    st.sampled_from([RetentionKind.BYTIME_SLIDING, RetentionKind.BYTIME_JUMPING]),
    st.integers(1, 4),
    st.sampled_from(["", "", "at"]),
) | st.builds(Retention, st.sampled_from([RetentionKind.BYCOUNT_SLIDING, RetentionKind.BYCOUNT_JUMPING]), st.integers(1, 4))
RETENTIONS |= st.builds(
    lambda limit, by: Retention(RetentionKind.BYCOUNT_SLIDING, limit, by=by),
    st.integers(1, 2),
    st.sampled_from([("x",), ("id", "s")]),
)
RETENTIONS |= RETENTIONS.map(lambda each: replace(each, eviction=Eviction.BEFORE) if each.is_by_events else each)


@st.composite
def forgetting_projects(draw: st.DrawFn) -> Project:
    """Draws projects with windows that evict inserts, and downstream windows that see this, drop some, or fail on some."""
    origin = draw(st.sampled_from(KeyOrigin))
    windows: list[Window] = [
        SourceWindow(name="w0", schema=ROW, index=IndexType.EMPTY, accepts=AcceptedOpcodes.INSERT_ONLY, key_origin=origin),
        CopyWindow(name="w1", retention=draw(RETENTIONS), publication=Publication.PUBLISHED),
    ]
    for number in range(2, 2 + draw(st.integers(1, 3))):
        condition = draw(st.sampled_from(["x > 1", "6 div (x - 2) > 0", "ESP_OPCODE = 'I' or x > 1", "ESP_FLAGS = 'N' or x > 2"]))
        number_text = draw(st.sampled_from(["eventCounter()", "x", "6 div (x - 2)"]))
        window: Window = draw(
            st.sampled_from(
                [
                    FilterWindow(name="w", condition=Expression(condition, Dialect.SPARK_SQL)),
                    FunctionalWindow(name="w", schema=ROW, functions=(("x", Expression(number_text, Dialect.SPARK_SQL)),)),
                    CopyWindow(name="w", retention=draw(RETENTIONS)),
                    CopyWindow(name="w"),
                ]
            )
        )
        windows.append(replace(window, name=f"w{number}", publication=Publication.PUBLISHED))
    edges = tuple(Edge(f"w{i}", f"w{i + 1}") for i in range(len(windows) - 1))
    return Project("p", (ContinuousQuery("q", tuple(windows), edges),))


@st.composite
def inserts(draw: st.DrawFn) -> list[Given]:
    row = st.tuples(
        st.integers(0, 6), st.sampled_from([None, 1, 2, 3]), st.just("a"), st.integers(0, 12).map(lambda n: n * SECOND // 2)
    )
    script, time = [], SECOND
    for _ in range(draw(st.integers(3, 20))):
        time += draw(st.sampled_from([0, 400_000, 1_500_000]))
        events = [Event("I", frozenset("N"), each) for each in draw(st.lists(row, max_size=3))]
        script.append((time, events))
    return [*script, (time + 9 * SECOND, [])]


@examples(2)
@given(forgetting_projects(), inserts(), tunings(late_index_rows_max=0))
def test_what_is_known_of_deletes_decides_nothing(project: Project, script: list[Given], tuning: Tuning) -> None:
    """If rows are evicted in order, a window finds them without an index: the result is the same as with one."""
    try:
        plan = compile_plan(resolve(project))
    except ProjectError:
        note("refused")
        return
    found = run(plan, script)
    with tuning_override(tuning), pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "has_fifo_deletes", lambda *_: False)
        assert run(plan, script) == found


def _computing(text: str) -> Project:
    """Returns a project with published events and a compute window with an index."""
    outputs = tuple(Expression(each, Dialect.SPARK_SQL) for each in (text, "s", "at"))
    windows = (
        SourceWindow(name="w0", schema=ROW, index=IndexType.EMPTY, publication=Publication.PUBLISHED),
        ComputeWindow(name="w1", schema=ROW, outputs=outputs, publication=Publication.PUBLISHED),
    )
    return Project("p", (ContinuousQuery("q", windows, (Edge("w0", "w1"),)),))


@pytest.mark.parametrize(
    ("text", "forgotten"),
    [("coalesce(x, 7)", "given"), ("if(ESP_OPCODE = 'I', x, -1)", "given"), ("if(ESP_OPCODE = 'I', x, -1)", "rows")],
)
def test_the_law_bites(text: str, forgotten: str) -> None:
    """A window that does not resolve published events is found, and one that computes its deletes again."""
    from hotspare.windows.shared import rowwise

    indexes_of, project = rowwise.indexes_of, _computing(text)
    script = [(SECOND, [Event("P", frozenset("N"), (1, 2, "a", 0))]), (SECOND, [Event("D", frozenset("N"), (1, None, None, None))])]
    check(compile_plan(resolve(project)), project, script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowwise, "indexes_of", lambda *given: replace(indexes_of(*given), **{forgotten: None}))
        broken = compile_plan(resolve(project))
    with pytest.raises(AssertionError):
        check(broken, project, script)
