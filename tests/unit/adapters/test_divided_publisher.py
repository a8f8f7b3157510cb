"""A file whose rows go to several partitions: each row once, in order, where it belongs, wherever the publisher was stopped
(DESIGN section 10, SPEC I5)."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotspare.adapters.failover.source_position import PublishedSource
from hotspare.adapters.files import publisher
from hotspare.adapters.files.csv_file import Growth
from hotspare.adapters.files.publisher import PublishOptions, PublishProgress, publish_file
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.engine.routing import Routing
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from tests.unit.adapters.test_file_publisher import StopsAfter
from tests.unit.engine.test_routing import plain_murmur2

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
    """What is no row of the schema goes to the first partition."""
    key = row.split(b",")[2]
    return (plain_murmur2(key) & 0x7FFFFFFF) % COUNT if key.isdigit() else 0


def expected(rows: list[bytes]) -> list[list[bytes]]:
    return [[row for row in rows if place(row) == number] for number in range(COUNT)]


def publish(bus: MemoryBusClient, path: Path, **options: object) -> PublishProgress:
    made = PublishOptions(**options)  # type: ignore[arg-type]
    return publish_file(bus, Partition(TOPIC), path, made, threading.Event(), routing=ROUTING)


ROWS = st.lists(st.builds(b"i,n,%d,%d".__mod__, st.tuples(st.integers(0, 9), st.integers(0, 9))) | st.just(b"i,n,?,x"), max_size=14)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
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


def test_every_partition_knows_at_the_end_that_the_file_is_published(tmp_path: Path) -> None:
    path, bus = tmp_path / "in.csv", new_bus()
    path.write_bytes(b"i,n,1,a\n" * 5)
    assert publish(bus, path).events == 5
    known = [PublishedSource(bus, Partition(TOPIC, number), str(path)).look().published_bytes for number in range(COUNT)]
    assert known == [40] * COUNT
    path.write_bytes(b"i,n,1,a\n" * 5 + b"i,n,2,b\n")
    assert publish(bus, path).events == 1


def test_a_partition_without_rows_is_not_left_far_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that is killed would read all of that again."""
    monkeypatch.setattr(publisher, "_LAG_BYTES_MAX", 8)
    path, bus = tmp_path / "in.csv", new_bus()
    path.write_bytes(b"i,n,1,a\n" * 9)
    stop = threading.Event()
    publish_file(bus, Partition(TOPIC), path, PublishOptions(growth=Growth.GROWING), stop, lambda _: stop.set(), routing=ROUTING)
    known = [PublishedSource(bus, Partition(TOPIC, number), str(path)).look().published_bytes for number in range(COUNT)]
    assert known == [72] * COUNT
