"""A file whose rows go to several partitions: each row once, in order, in its partition, wherever the publisher was stopped
(SPEC I5)."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotspare.adapters.failover.partition_count_check import PartitionCountCheck
from hotspare.adapters.failover.spread_source import SpreadSource
from hotspare.adapters.files.publisher import PublishOptions, PublishProgress, publish_file
from hotspare.adapters.files.row_file import Growth
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.base.errors import UsageError
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.routing import Routing
from tests.adapters.test_file_publisher import StopsAfter
from tests.rows.test_routing import plain_murmur2

COUNT = 3
TOPIC = "p.project.cq.source.I"
SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("text", FieldType.STRING)))
ROUTING = RowRouting(SCHEMA, Routing(0, FieldType.INT64, COUNT))


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("publisher")
    bus.create_topic(TOPIC, COUNT)
    return bus


def values(bus: MemoryBusClient, number: int) -> list[bytes]:
    messages = bus.read(Partition(TOPIC, number), 0, messages_max=100_000, bytes_max=1 << 30)
    return [row for message in messages for row in message.value.split(b"\n")]


def place(row: bytes) -> int:
    """Returns the partition of a row. One that is not a row of the schema goes to the first."""
    key = row.split(b",")[2]
    return (plain_murmur2(key) & 0x7FFFFFFF) % COUNT if key.isdigit() else 0


def expected(rows: list[bytes]) -> list[list[bytes]]:
    return [[row for row in rows if place(row) == number] for number in range(COUNT)]


def publish(bus: MemoryBusClient, path: Path, **options: object) -> PublishProgress:
    made = PublishOptions(**options)  # type: ignore[arg-type]
    return publish_file(bus, Partition(TOPIC), path, made, threading.Event(), routing=ROUTING)


ROWS = st.lists(st.builds(b"i,n,%d,%d".__mod__, st.tuples(st.integers(0, 9), st.integers(0, 9))) | st.just(b"i,n,?,x"), max_size=14)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), max_size=5), st.integers(0, 2), st.integers(0, 20))
def test_rows_go_where_they_belong_once_through_any_number_of_kills(
    tmp_path: Path, rows: list[bytes], kills: list[tuple[int, int]], repeats: int, events_max: int
) -> None:
    """SPEC K4, I5."""
    path, bus = tmp_path / "in.csv", new_bus()
    path.write_bytes(b"".join(row + b"\n" for row in rows))
    options = {"block_rows": 2, "repeats": repeats, "events_max": events_max}
    for appends, after in kills:
        with contextlib.suppress(StopsAfter.Killed):
            publish(StopsAfter(bus, appends, after=after), path, **options)  # type: ignore[arg-type]
    publish(bus, path, **options)
    wanted = rows * (repeats + 1)
    wanted = wanted[:events_max] if events_max else wanted
    assert [values(bus, number) for number in range(COUNT)] == expected(wanted)


@pytest.mark.parametrize("begins", ["before", "during"])
def test_a_publisher_ends_if_an_engine_adds_partitions_that_it_does_not_know(tmp_path: Path, begins: str) -> None:
    """Its rows would go to wrong partitions; started again it divides them."""
    path, store = tmp_path / "in.csv", MemoryBus()
    path.write_bytes(b"i,n,1,a\ni,n,2,b\ni,n,3,c\n")
    bus = store.client("publisher")
    bus.create_topic(TOPIC)
    count = PartitionCountCheck(bus, TOPIC, 1)
    if begins == "before":
        bus.grow_unused(TOPIC, COUNT)
    given: MemoryBusClient = bus if begins == "before" else GrowsAtAppend(bus)  # type: ignore[assignment]
    with pytest.raises(UsageError, match="has 3 partitions now, and had 1 when this publisher started"):
        publish_file(given, Partition(TOPIC), path, PublishOptions(), threading.Event(), count=count)
    written = [b"i,n,1,a", b"i,n,2,b", b"i,n,3,c"] if begins == "during" else []
    assert values(bus, 0) == written
    if not written:
        publish(bus, path)
        assert [values(bus, number) for number in range(COUNT)] == expected([b"i,n,1,a", b"i,n,2,b", b"i,n,3,c"])


class GrowsAtAppend:
    """An engine adds partitions between the publisher's check and its append, as it can on Kafka."""

    def __init__(self, bus: MemoryBusClient) -> None:
        self._bus = bus

    def __getattr__(self, name: str) -> object:
        if name == "append_guarded":
            self._bus.grow_unused(TOPIC, COUNT)
        return getattr(self._bus, name)


def told(bus: MemoryBusClient, path: Path) -> int:
    """Returns the bytes of the file that are published according to the topic."""
    return (
        SpreadSource(bus, [Partition(TOPIC, number) for number in range(COUNT)], str(path)).read_source_position().published_bytes
    )


def test_a_file_that_is_published_is_not_published_again(tmp_path: Path) -> None:
    path, bus = tmp_path / "in.csv", new_bus()
    path.write_bytes(b"i,n,1,a\n" * 5)
    assert publish(bus, path).events == 5
    assert (told(bus, path), publish(bus, path).events) == (40, 0)
    path.write_bytes(b"i,n,1,a\n" * 5 + b"i,n,2,b\n")
    assert publish(bus, path).events == 1


@pytest.mark.parametrize("key", range(6))
@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("appends", range(4))
def test_what_is_reported_is_published_wherever_the_publisher_dies(tmp_path: Path, key: int, after: int, appends: int) -> None:
    """The rows have one key, so that only one partition gets rows. A successor begins no earlier than the reported position."""
    path, bus, stop, reports = tmp_path / "in.csv", new_bus(), threading.Event(), [0]
    path.write_bytes(b"i,n,%d,a\n" % key * 9)
    dying = StopsAfter(bus, appends, after=after)
    options = PublishOptions(growth=Growth.GROWING, rate=1e6)

    def report(now: PublishProgress) -> None:
        reports.append(now.bytes_published)
        if now.bytes_published == 72:
            stop.set()

    with contextlib.suppress(StopsAfter.Killed):
        publish_file(dying, Partition(TOPIC), path, options, stop, report, routing=ROUTING)  # type: ignore[arg-type]
    assert told(bus, path) >= reports[-1]
    publish(bus, path)
    assert [values(bus, number) for number in range(COUNT)] == expected([b"i,n,%d,a" % key] * 9)
