"""Law 4, Runner, shard by shard, over every case of tests/cases whose project may be divided, and over random graphs (SPEC K1).

Each shard is read as a task of the `partitioned` runner reads it, and restarted after every message. It gives the outputs of
`local` over that shard's rows alone, and all shards together give those of the case.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cache
from itertools import count, product
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.files.row_routing import RowRouting
from hotspare.base.errors import ProjectError
from hotspare.bus.sqlite import SqliteBus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.model.partitioning import KEY_TYPES, obstacles, partition_fields, refused_shards
from hotspare.model.project import Project, WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.window_type import type_of
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import MessageFormat
from hotspare.rows.routing import routing_of
from hotspare.runners.contract import BatchLimits, HeadPlace, RunnerInput, SourceTopic
from hotspare.runners.local import read_recorded
from hotspare.windows.shared.contract import Clock
from hotspare.windows.source.declaration import SourceWindow
from tests.cases.case import CASES, ROW_SEPARATOR, Case, Message, expected_by_cause, outputs_by_cause, raw_batches, read_case
from tests.cases.test_cases import filled_in
from tests.examples import examples
from tests.laws.any_changelogs import changelogs
from tests.laws.any_graphs import graphs
from tests.laws.test_runner_cases import Outputs, Recorded, restarted, written

pytestmark = [pytest.mark.law]

SHARDS = 3
DEPENDS = {
    "copy_system_time_jumping": "periods begin with the first time that the shard sees",
    "pattern_next_event": "generated keys carry the shard",
    "transpose_wide": "that keys are unique is seen within a shard only",
}
"""Cases in which the results of a key depend on the shards, as docs/shards.md describes."""
_ALSO_DIVIDED = ("compute_today", "aggregate_retention", "join_in_shards", "python_columns", "union_diamond")
DIVIDED = tuple(path for path in CASES if path.stem in (*DEPENDS, *_ALSO_DIVIDED))
"""A few of the cases that can be divided: they have windows of as many types as all of these, and shards matter in some."""
WINDOWS_MAX = 4
"""The size of a random graph: one in twelve of that size can be divided, of larger ones fewer."""
OFTEN_DIVIDED = {
    *("source", "copy", "compute", "filter", "functional", "transpose", "aggregate", "join", "pattern", "union", "python-columns"),
}


def partitioned_by(project: Project, fields: Mapping[WindowId, str]) -> Project:
    """Returns the project, with the fields of its source windows by which it is divided."""
    queries = []
    for query in project.queries:
        named = {window: fields.get(WindowId(query.name, window.name), "") for window in query.windows}
        windows = (replace(w, partition_by=field) if field and isinstance(w, SourceWindow) else w for w, field in named.items())
        queries.append(replace(query, windows=tuple(windows)))
    return replace(project, queries=tuple(queries))


def divided(resolved: Resolved) -> Resolved | None:
    """Returns the project divided by the first fields that allow it, None if it cannot be divided."""
    if refused_shards(resolved, SHARDS) is None:
        return resolved
    schemas = [resolved.schema(source) for source in resolved.sources]
    choices = [[field.name for field in schema.fields if field.type in KEY_TYPES] or [""] for schema in schemas]
    for chosen in product(*choices):
        fields = dict(zip(resolved.sources, chosen, strict=True))
        if not obstacles(resolved, fields):
            try:
                return resolve(partitioned_by(resolved.project, fields))
            except ProjectError:
                continue
    return None


class Shared:
    """A case with rows in the right partitions: `parts[k]` is the input of shard k, and `origins[k]` has the number of the case's
    message for each of its messages."""

    def __init__(self, path: Path, case: Case) -> None:
        self.case, self.url = case, f"sqlite:///{path}"
        resolved = case.plan.resolved
        self.topics = [str(source).replace("/", ".") for source in resolved.sources]
        self._routings: dict[str, RowRouting] = {}
        for source in resolved.sources:
            routing = routing_of(resolved, source, SHARDS)
            assert routing is not None
            self._routings[source.window] = RowRouting(resolved.schema(source), routing)
        self.parts: list[list[Message]] = [[] for _ in range(SHARDS)]
        self.origins: list[list[int]] = [[] for _ in range(SHARDS)]
        for number, message in enumerate(case.messages):
            for shard, part in self._split(message):
                self.parts[shard].append(part)
                self.origins[shard].append(number)
        names = {source.window: name for source, name in zip(resolved.sources, self.topics, strict=True)}
        self.ends = written(path, names, self.parts)

    def _split(self, message: Message) -> Iterable[tuple[int, Message]]:
        if not message.source:
            return [(shard, message) for shard in range(SHARDS)]
        rows = message.value.split(ROW_SEPARATOR)
        places = self._routings[message.source].partitions([row.encode() for row in rows], MessageFormat.CSV).tolist()
        own = {place: [row for row, there in zip(rows, places, strict=True) if there == place] for place in sorted(set(places))}
        return [(place, replace(message, value=ROW_SEPARATOR.join(some))) for place, some in own.items()]

    def input(self, shard: int) -> RunnerInput:
        topics = tuple(SourceTopic(name, SHARDS, shard=shard) for name in self.topics)
        head = Head.from_plan(self.case.plan, shards=SHARDS)
        return RunnerInput(self.url, topics, head, HeadPlace.DRIVER, BatchLimits(1, wait_ms=0))

    def restarted(self, shard: int) -> Outputs:
        """Returns the outputs of a shard whose runner and engine restart after every message."""
        ends = {place: end for place, end in self.ends.items() if place[1] == shard}
        return restarted(self.case.plan, self.input(shard), ends, shard)

    def alone(self, shard: int) -> Case:
        """Returns the input of this shard, as a case of the undivided project."""
        messages = tuple(self.parts[shard])
        return Case(self.case.plan, messages, ((),) * len(messages))


def local(path: Path, case: Case, shard: int) -> Outputs:
    recorded, pipeline = Recorded(path, case), Pipeline.fresh(case.plan, shard=shard)
    with closing(SqliteBus(path)) as bus:
        tables = read_recorded(bus, recorded.topics, Head.from_plan(case.plan), BatchLimits(50, wait_ms=0))
        return [item for table in tables for item in pipeline.feed(table).items()]


def by_message(
    case: Case, outputs: Mapping[tuple[int, int], Mapping[str, list[str]]], origins: list[int]
) -> Counter[tuple[int, str, str]]:
    """Counts outputs, in any order, by the message of the whole case that caused them."""
    first = [(batch.column("topic")[0].as_py(), batch.column("offset")[0].as_py()) for batch in raw_batches(case)]
    number = dict(zip(first, origins, strict=True))
    return Counter((number[cause], stream, line) for cause, of in outputs.items() for stream, lines in of.items() for line in lines)


def checked(shared: Shared, shard: int, folder: Path) -> tuple[Case, Mapping[tuple[int, int], Mapping[str, list[str]]]]:
    """Returns the input of a shard, and its outputs, which must equal those of `local` over that input alone."""
    alone = shared.alone(shard)
    found = outputs_by_cause(shared.restarted(shard))
    assert found == outputs_by_cause(local(folder / f"{shard}.db", alone, shard)), f"shard {shard}"
    return alone, found


@cache
def divided_case(path: Path) -> Resolved | None:
    """Divides the project of a case, once per process."""
    return divided(read_case(path).plan.resolved)


@pytest.mark.parametrize("path", DIVIDED, ids=lambda path: path.stem)
def test_every_shard_restarted_after_every_message(path: Path, tmp_path: Path) -> None:
    resolved = divided_case(path)
    assert resolved is not None
    case = replace(read_case(path), plan=compile_plan(resolved))
    shared, together = Shared(tmp_path / "shards.db", case), Counter[tuple[int, str, str]]()
    for shard in range(SHARDS):
        alone, found = checked(shared, shard, tmp_path)
        together += by_message(alone, found, shared.origins[shard])
    if all(node.operator.clock is not Clock.EVENT_TIME for node in case.plan.nodes):
        wanted = by_message(case, filled_in(expected_by_cause(case)), list(range(len(case.messages))))
        assert (together == wanted) is (path.stem not in DEPENDS)


def test_many_cases_can_be_divided() -> None:
    """Each is divided by a field that its project may name; those that are run have windows of as many types. Others are
    refused."""
    every = {path: made for path in CASES if (made := divided_case(path)) is not None}
    assert len(every) >= 50
    types = {path: {type_of(window.window).name for window in made.windows} for path, made in every.items()}
    assert set().union(*types.values()) == set().union(*(types[path] for path in DIVIDED)) >= OFTEN_DIVIDED
    assert all(all(partition_fields(made).values()) for made in every.values())
    assert all(refused_shards(read_case(path).plan.resolved, SHARDS) is not None for path in CASES if path not in every)


def any_divided(first: int) -> tuple[int, Case]:
    """Returns the first seed from `first` on whose random graph can be divided, and its changelogs as a case."""
    for seed in count(first):
        random = Random(seed)
        graph = graphs(random, WINDOWS_MAX)
        if (resolved := divided(graph.resolved())) is not None:
            names = [source.window for source in resolved.sources]
            messages = (as_message(given.time_us, given.topic, given.rows, names) for given in changelogs(random, graph.sources))
            known = tuple(message for message in messages if message is not None)
            return seed, Case(compile_plan(resolved), known, ((),) * len(known))
    raise AssertionError


def as_message(time_us: int, topic: int, rows: tuple[bytes, ...], names: list[str]) -> Message | None:
    """Returns a message; ticks are for all topics. None for bytes that a case cannot express."""
    if topic < 0 or not rows:
        return Message(time_us, "", "")
    try:
        texts = [row.decode() for row in rows]
    except UnicodeDecodeError:
        return None
    hard = any("\n" in text or "\0" in text or ROW_SEPARATOR in text for text in texts)
    return None if hard else Message(time_us, names[topic], ROW_SEPARATOR.join(texts))


@examples(0.3)
@given(first=st.integers(0, 1 << 40))
def test_every_shard_of_any_graph_restarted_after_every_message(first: int) -> None:
    seed, case = any_divided(first)
    with tempfile.TemporaryDirectory() as folder:
        shared = Shared(Path(folder) / "shards.db", case)
        found = [checked(shared, shard, Path(folder)) for shard in range(SHARDS)]
    assert sum(len(alone.messages) for alone, _ in found) >= len(case.messages), f"seed {seed}"
