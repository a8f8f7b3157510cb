"""Law 4, Runner, over a real Kafka broker: transactions leave holes in the offsets, and every runner gives the same."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from hotspare.base.errors import UnknownResult
from hotspare.bus.contract import TICK, HeaderGuard, Partition
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.projects.resolve import resolve
from hotspare.runners.contract import BatchLimits, HeadPlace, RunnerInput, SourceTopic
from hotspare.runners.local import LocalRunner, read_recorded
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.contract.material import read_all
from tests.laws.test_runner import MESSAGES, PROJECT, Collected, check, message, run

if TYPE_CHECKING:
    from tests.spark_sessions import Lender

pytestmark = [pytest.mark.law, pytest.mark.spark]

TOPICS = (SourceTopic("law.keyed", 2), SourceTopic("law.plain"))
KEYS = ((0, 0), (1, 0), (0, 1))
GUARD = HeaderGuard("hotspare-source", b"nobody", 0)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_plan(resolve(load_text(PROJECT).project))


@pytest.fixture(scope="module")
def url(kafka: KafkaServers) -> str:
    """Records the input of the law on SQLite, partly written in transactions."""
    bus = open_bus(kafka.url)
    for topic in TOPICS:
        bus.create_topic(topic.name, topic.partitions)
    where = [Partition(TOPICS[topic].name, number) for topic, number in KEYS]
    per_partition = [[message(i) for i in range(MESSAGES) if i % 3 == k] for k in range(3)]
    for first in range(0, MESSAGES // 3, 5):
        for partition, messages in zip(where, per_partition, strict=True):
            if first % 15:
                bus.append(partition, messages[first : first + 5])
            else:
                bus.append_guarded(partition, messages[first : first + 5], GUARD)
    for partition in where:
        # a transaction's marker may be written a moment after its commit: after the tick, it would be the last offset instead
        wait_until(lambda partition=partition: len(read_all(bus, partition)) == MESSAGES // 3, "all of it")  # type: ignore[misc]
        end = bus.end_offset(partition)
        with suppress(UnknownResult):  # the wait for a tick is short
            bus.append(partition, [TICK])
        wait_until(lambda partition=partition, end=end: bus.end_offset(partition) > end, "a tick")  # type: ignore[misc]
    bus.close()
    return kafka.url


@pytest.fixture(scope="module")
def last_offsets(url: str) -> dict[tuple[int, int], int]:
    bus = open_bus(url)
    ends = {key: bus.end_offset(Partition(TOPICS[key[0]].name, key[1])) - 1 for key in KEYS}
    bus.close()
    return ends


@pytest.fixture(scope="module")
def reference(plan: Plan, url: str, last_offsets: dict[tuple[int, int], int]) -> Collected:
    collected = Collected(plan, last_offsets)
    bus = open_bus(url)
    for table in read_recorded(bus, TOPICS, Head.from_plan(plan), BatchLimits()):
        collected.take(table)
    bus.close()
    return collected


def test_the_reference_has_all_and_holes(reference: Collected, last_offsets: dict[tuple[int, int], int]) -> None:
    assert set(reference.tables()) == {"q/keyed", "q/summed", "bad"}
    assert all(offset > MESSAGES // 3 for offset in last_offsets.values())
    assert sum(len({row["offset"] for row in rows}) for rows in reference.rows.values()) == MESSAGES + 3


def test_local(plan: Plan, url: str, reference: Collected, last_offsets: dict[tuple[int, int], int]) -> None:
    collected = Collected(plan, last_offsets)
    source = RunnerInput(url, TOPICS, Head.from_plan(plan), limits=BatchLimits(messages_max=7))
    runner = LocalRunner(source, collected.take, collected.ended)
    run(runner.start, runner.stop, collected)
    check(collected, reference)


@pytest.mark.parametrize("place", list(HeadPlace))
def test_ordered(
    plan: Plan,
    url: str,
    reference: Collected,
    last_offsets: dict[tuple[int, int], int],
    place: HeadPlace,
    lender: Lender,
) -> None:
    from hotspare.runners.spark.ordered import OrderedRunner

    collected = Collected(plan, last_offsets)
    source = RunnerInput(url, TOPICS, Head.from_plan(plan), place, BatchLimits(messages_max=20))
    runner = OrderedRunner(source, collected.take, collected.ended, begin=lender.begin)
    run(runner.start, runner.stop, collected)
    check(collected, reference)
    assert collected.batches > MESSAGES / 20
