"""Ticks on a broker that does not answer do not block the loop that sends them (SPEC E7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hotspare.base.errors import UnknownResult
from hotspare.bus.contract import TICK, Outgoing, Partition
from hotspare.bus.kafka.bus import open_kafka_bus
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers

pytestmark = pytest.mark.servers

IN = Partition("in")
TICKS = (TICK,)
PATIENCE_MS = 120_000
"""Five ticks that waited for it would take twice the time limit of a test."""


@pytest.fixture
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServers]:
    with KafkaServers.start(tmp_path_factory.mktemp("lone"), 1) as servers:
        yield servers


def test_a_tick_does_not_wait_for_a_broker_that_is_frozen(lone: KafkaServers) -> None:
    bus = open_kafka_bus(f"{lone.url}?timeout_ms={PATIENCE_MS}")
    bus.create_topic("in")
    assert bus.append(IN, [Outgoing(b"a")]) == 0
    wait_until(lambda: _ticked(bus.append) is not None, "a first tick is answered in time")
    lone.freeze(1)
    for _ in range(5):
        with pytest.raises(UnknownResult):
            bus.append(IN, TICKS)
    lone.thaw(1)
    wait_until(lambda: _ticked(bus.append) is not None, "ticks are answered again")
    found = bus.read(IN, 0, messages_max=1000, bytes_max=1 << 20)
    assert [message.is_tick for message in found] == [False, *[True] * (len(found) - 1)]
    assert len(found) > 2
    bus.close()


def _ticked(append: object) -> int | None:
    try:
        return append(IN, TICKS)  # type: ignore[operator,no-any-return]
    except UnknownResult:
        return None
