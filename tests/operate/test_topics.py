"""The topics of a bus as a program lists them, with the positions of sources and readers (SPEC B9, B17, Z21)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hotspare.adapters.failover.source_position import source_prefix
from hotspare.base.errors import UsageError
from hotspare.bus.contract import SOURCE_HEADER, Bus, HeaderGuard, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.operate.topics import (
    ReaderPosition,
    TopicSource,
    delete_reader,
    delete_source,
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
