"""Law 4, Runner, over cases that have windows of all types: if the messages of a case are on a bus, every runner gives its outputs.
This holds with the runner and the engine restarted after every message, too.

tests/cases/test_cases.py runs every case over the pipeline, restarted too; tests/laws/test_runner_shards.py runs random graphs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from hotspare.bus.contract import FORMAT_HEADER, TICK, Outgoing, Partition
from hotspare.bus.sqlite import SqliteBus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan
from hotspare.rows.batch import MessageFormat, NextInput
from hotspare.runners.contract import BatchLimits, EndCause, HeadPlace, RunnerEnd, RunnerInput, SourceTopic
from hotspare.runners.local import LocalRunner
from tests.cases.case import OF_EVERY_TYPE, ROW_SEPARATOR, Case, Message, expected_by_cause, outputs_by_cause, read_case
from tests.cases.test_cases import filled_in

if TYPE_CHECKING:
    from hotspare.runners.spark.ordered import OrderedRunner
    from tests.spark_sessions import Lender

pytestmark = [pytest.mark.law]

TIMEOUT_S = 120
Ends = dict[tuple[int, int], int]
Outputs = list[tuple[str, pa.RecordBatch]]


def written(path: Path, topics: Mapping[str, str], parts: Sequence[Sequence[Message]]) -> Ends:
    """Writes messages to a new bus, each at its time: `parts[k]` to partition k of the topics, by source window. Returns the end
    offsets, by (number of the topic, partition)."""
    now = [0]
    with closing(SqliteBus(path, clock=lambda: now[0])) as bus:
        for topic in topics.values():
            bus.create_topic(topic, len(parts))
        for number, messages in enumerate(parts):
            now[0] = 0
            for message in messages:
                now[0] = message.time_us
                value = message.value.replace(ROW_SEPARATOR, "\n").encode()
                sent = Outgoing(value, ((FORMAT_HEADER, MessageFormat.CSV.header),)) if message.source else TICK
                for topic in [topics[message.source]] if message.source else topics.values():
                    bus.append(Partition(topic, number), [sent])
        places = [(i, Partition(topic, n)) for i, topic in enumerate(topics.values()) for n in range(len(parts))]
        return {(i, place.number): bus.end_offset(place) for i, place in places}


class Recorded:
    """A case on its own bus: each message at its time in the case."""

    def __init__(self, path: Path, case: Case) -> None:
        self.case, self.url = case, f"sqlite:///{path}"
        self.topics = tuple(SourceTopic(str(source).replace("/", ".")) for source in case.plan.resolved.sources)
        names = {source.window: topic.name for source, topic in zip(case.plan.resolved.sources, self.topics, strict=True)}
        self.ends = written(path, names, [case.messages])

    def input(self, messages_max: int, place: HeadPlace = HeadPlace.DRIVER) -> RunnerInput:
        return RunnerInput(self.url, self.topics, Head.from_plan(self.case.plan), place, BatchLimits(messages_max, wait_ms=0))


class Taken:
    """The messages that a runner delivered to an engine, up to `wanted`, or all."""

    def __init__(self, pipeline: Pipeline, ends: Ends, wanted: int = 0) -> None:
        self._pipeline, self._ends, self._left = pipeline, dict(ends), wanted
        self.outputs: list[tuple[str, pa.RecordBatch]] = []
        self.complete = threading.Event()
        self.end: RunnerEnd | None = None

    @property
    def is_all(self) -> bool:
        return not self._ends

    def take(self, table: pa.Table, _: NextInput = NextInput.AWAITED) -> None:
        if self.complete.is_set():
            return
        self.outputs += self._pipeline.feed(table).items()
        where = zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
        came = {(topic, number): offset + 1 for topic, number, offset in where}
        self._left -= 1
        self._ends = {key: end for key, end in self._ends.items() if came.get(key, 0) < end}
        if not self._left or not self._ends:
            self.complete.set()

    def ended(self, end: RunnerEnd) -> None:
        self.end = end
        self.complete.set()


def brought(runner: LocalRunner | OrderedRunner, taken: Taken, start: Mapping[tuple[int, int], int]) -> None:
    runner.start(start)
    came = taken.complete.wait(TIMEOUT_S)
    runner.stop()
    assert came
    assert taken.end == RunnerEnd(EndCause.STOPPED)


def restarted(plan: Plan, source: RunnerInput, ends: Ends, shard: int = 0) -> Outputs:
    """Returns the outputs if runner and engine end after each batch, of at most one message of each topic, and restart from the
    snapshot. Rows that wait for another topic are not state and are read again, in a larger batch."""
    pipeline, outputs = Pipeline.fresh(plan, shard=shard), list[tuple[str, pa.RecordBatch]]()
    start, wanted = dict[tuple[int, int], int](), 1
    while left := {place: end for place, end in ends.items() if start.get(place, 0) < end}:
        pipeline.set_partitions(ends)
        taken = Taken(pipeline, left, wanted)
        brought(LocalRunner(source, taken.take, taken.ended), taken, start)
        outputs += taken.outputs
        frozen = pipeline.freeze()
        pipeline = Pipeline.restore(plan, frozen.header, dict(frozen.pages()))
        following = {place: offset for place, offset in pipeline.next_offsets.items() if place in ends}
        if start == following and taken.is_all:
            break
        wanted = wanted + 1 if start == following else 1
        start = following
    return outputs


@pytest.mark.parametrize("path", OF_EVERY_TYPE, ids=lambda path: path.stem)
def test_local_restarted_after_every_message(path: Path, tmp_path: Path) -> None:
    """Also law Crash."""
    recorded = Recorded(tmp_path / "bus.db", read_case(path))
    outputs = restarted(recorded.case.plan, recorded.input(messages_max=1), recorded.ends)
    assert outputs_by_cause(outputs) == filled_in(expected_by_cause(recorded.case))


@pytest.mark.spark
@pytest.mark.parametrize("path", OF_EVERY_TYPE, ids=lambda path: path.stem)
def test_ordered(path: Path, lender: Lender, tmp_path: Path) -> None:
    from hotspare.runners.spark.ordered import OrderedRunner

    recorded = Recorded(tmp_path / "bus.db", read_case(path))
    taken = Taken(Pipeline.fresh(recorded.case.plan), recorded.ends)
    source = recorded.input(5, HeadPlace.WORKERS)
    brought(OrderedRunner(source, taken.take, taken.ended, begin=lender.begin), taken, {})
    assert outputs_by_cause(taken.outputs) == filled_in(expected_by_cause(recorded.case))
