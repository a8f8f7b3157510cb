"""The topics of a bus as a program lists, creates and empties them, with positions of sources and readers (SPEC B9, B17, Z21)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hotspare.adapters.failover.source_position import source_prefix
from hotspare.base.errors import UsageError
from hotspare.bus.contract import SOURCE_HEADER, Bus, HeaderGuard, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.coordination.contract import Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.operate.groups import UnseenEngines
from hotspare.operate.topics import (
    EmptiedPartition,
    ReaderPosition,
    TopicSource,
    create_topic,
    delete_reader,
    delete_source,
    empty_topic,
    reader_positions,
    source_positions,
    topic_report,
)

INBOUND, OUTBOUND = "p.shop.q.orders.I", "p.shop.q.sums.O"


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    with closing(open_bus(f"sqlite:///{tmp_path / 'demo.db'}")) as opened:
        opened.create_topic(INBOUND, 2)
        opened.create_topic(OUTBOUND)
        opened.producer("p.shop", [OUTBOUND]).close()
        guard = HeaderGuard(SOURCE_HEADER, source_prefix("orders"), 0)
        opened.append_guarded(Partition(INBOUND, 1), [Outgoing(b"i,n,1")], guard, b'{"position": 6, "check": ""}')
        yield opened


def test_each_partition_is_described(bus: Bus) -> None:
    found = topic_report(bus, "sqlite:///demo.db", "p.shop")
    facts = [(each.topic, each.kind, each.owner, each.partition, each.end_offset) for each in found.partitions]
    assert facts == [(INBOUND, "input", "", 0, 0), (INBOUND, "input", "", 1, 1), (OUTBOUND, "output", "p.shop", 0, 0)]
    assert [each.newest_time_us is None for each in found.partitions] == [True, False, True]
    assert topic_report(bus, "sqlite:///demo.db", "q.").partitions == ()


def test_positions_are_deleted_by_name(bus: Bus) -> None:
    bus.record_reader("r", {Partition(INBOUND, 1): 1, Partition(OUTBOUND): 0})
    assert reader_positions(bus, INBOUND) == (ReaderPosition(INBOUND, 1, "r", 1),)
    assert len(delete_reader(bus, "r")) == 2
    with pytest.raises(UsageError, match="keeps nothing for reader 'r'"):
        delete_reader(bus, "r")
    source = TopicSource(INBOUND, 1, "orders", 6)
    assert source_positions(bus) == (source,)
    with pytest.raises(UsageError, match="no topic has a record of source 'orders'"):
        delete_source(bus, "orders", "other.")
    assert delete_source(bus, "orders") == (source,)
    assert source_positions(bus) == ()


def test_a_topic_is_created_once(bus: Bus) -> None:
    for _ in range(2):
        create_topic(bus, "p.other.q.rows.I", 3)
    assert bus.topics()["p.other.q.rows.I"] == 3
    with pytest.raises(UsageError, match="exists with 3 partitions, 2 were requested"):
        create_topic(bus, "p.other.q.rows.I", 2)
    with pytest.raises(UsageError, match="the bus keeps its records there"):
        create_topic(bus, "p.progress", 1)


def test_a_topic_is_emptied_and_continues_at_its_next_offset(bus: Bus) -> None:
    service = MemoryCoordination().client()
    assert empty_topic(bus, service, INBOUND, UnseenEngines.UNKNOWN)[1] == EmptiedPartition(INBOUND, 1, 0, 1)
    assert bus.begin_offset(Partition(INBOUND, 1)) == bus.end_offset(Partition(INBOUND, 1)) == 1
    assert source_positions(bus) == (TopicSource(INBOUND, 1, "orders", 6),), "a source does not publish its rows again"
    with pytest.raises(UsageError, match="does not exist"):
        empty_topic(bus, service, "p.none", UnseenEngines.UNKNOWN)


def test_a_topic_in_use_is_not_emptied(bus: Bus) -> None:
    """Its reading and its writing group may have engines, and a snapshot on an embedded bus needs messages."""
    service, end = MemoryCoordination().client(), {INBOUND: 1, OUTBOUND: 0}
    service.refresh_member("p.shop", Member("e1", "", 1, 1, "far", "", "", "", "standby", {}, {}, process_space="far"))
    service.set_fact_once("p.shop", "origin", f'[["{INBOUND}", 1, 0]]'.encode())
    for topic in (INBOUND, OUTBOUND):
        with pytest.raises(UsageError, match="has engines on other machines: e1"):
            empty_topic(bus, service, topic, UnseenEngines.UNKNOWN)
        assert bus.end_offset(Partition(topic, end[topic])) - bus.begin_offset(Partition(topic, end[topic])) == end[topic]
    bus.record_reader("snapshot", {Partition(INBOUND, 1): 0})
    with pytest.raises(UsageError, match="reader 'snapshot' needs topic"):
        empty_topic(bus, service, INBOUND, UnseenEngines.GONE)
    delete_reader(bus, "snapshot")
    assert empty_topic(bus, service, INBOUND, UnseenEngines.GONE)[1].end_offset == 1
