"""How an `ordered` runner ends when reading, the head or the callback fails: with the original error."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.base.errors import HotspareError, PositionLost, TopicMissing
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import BatchLimits, EndCause, HeadPlace, OnBatch, RunnerEnd, RunnerInput, SourceTopic
from tests.integration.spark.subject import head
from tests.spark_sessions import Lender

pytestmark = pytest.mark.spark

TOPICS = (SourceTopic("rows"),)


def run_to_its_end(lender: Lender, url: str, place: HeadPlace, on_batch: OnBatch, start: dict[tuple[int, int], int]) -> RunnerEnd:
    from hotspare.runners.spark.ordered import OrderedRunner

    ends: list[RunnerEnd] = []
    over = threading.Event()

    def on_end(end: RunnerEnd) -> None:
        ends.append(end)
        over.set()

    source = RunnerInput(url, TOPICS, head(), place, BatchLimits(messages_max=5))
    runner = OrderedRunner(source, on_batch, on_end, begin=lender.begin)
    runner.start(start)
    try:
        assert over.wait(120)
        assert runner.wait() == ends[0]
    finally:
        runner.stop()
    assert len(ends) == 1
    return ends[0]


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    bus = open_bus(url)
    bus.create_topic("rows")
    bus.append(Partition("rows"), [Outgoing(b"i,n,%d,1.5,a" % i) for i in range(20)])
    bus.close()
    return url


@pytest.mark.parametrize("place", list(HeadPlace))
def test_a_lost_position_ends_the_query_with_the_words_of_the_bus(lender: Lender, url: str, place: HeadPlace) -> None:
    """When the first batch is handed over, the second may have been read or not; the messages after it are deleted."""
    bus = open_bus(url)
    end = run_to_its_end(lender, url, place, lambda *_: bus.trim(Partition("rows"), 19), {})
    said = []
    for offset in (5, 10):
        with pytest.raises(PositionLost) as lost:
            bus.read(Partition("rows"), offset, messages_max=1, bytes_max=1)
        said.append(str(lost.value))
    bus.close()
    assert end.cause is EndCause.FAILED
    assert type(end.error) is PositionLost
    assert str(end.error) in said


def test_a_position_that_is_lost_or_not_there_yet_is_refused_before_spark_starts(lender: Lender, url: str) -> None:
    bus = open_bus(url)
    bus.trim(Partition("rows"), 9)
    bus.close()
    with pytest.raises(PositionLost, match="no longer holds offset 4"):
        run_to_its_end(lender, url, HeadPlace.DRIVER, lambda *_: None, {(0, 0): 4})
    with pytest.raises(PositionLost, match="ends before offset 21"):
        run_to_its_end(lender, url, HeadPlace.DRIVER, lambda *_: None, {(0, 0): 21})


def test_an_exception_of_the_callback_is_reported_as_it_is(lender: Lender, url: str) -> None:
    wrong = HotspareError("enough", hint="stop")

    def on_batch(_table: pa.Table, _next: NextInput) -> None:
        raise wrong

    end = run_to_its_end(lender, url, HeadPlace.DRIVER, on_batch, {})
    assert end == RunnerEnd(EndCause.FAILED, wrong)


def test_a_missing_topic_is_named_before_anything_runs(lender: Lender, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    open_bus(url).close()
    with pytest.raises(TopicMissing, match="rows"):
        run_to_its_end(lender, url, HeadPlace.DRIVER, lambda *_: None, {})
