"""A source is published once in its life, also after retention has deleted its messages (SPEC E8, I5, I7)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.adapters.files.publisher import PublishOptions, PublishProgress, publish_file
from hotspare.bus.contract import TICK, Bus, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import SqliteBus
from hotspare.projects.load import load_text
from hotspare.telemetry.log import Log
from hotspare.testing.cluster import wait_until
from tests.adapters.test_connectors import PROJECT
from tests.adapters.test_sockets import Client, publisher

IN = Partition("p.project.cq.source.I")
ROWS = [b"i,n,%d,1" % number for number in range(10)]


@pytest.fixture(params=["memory", "sqlite"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bus]:
    opened: Bus = MemoryBus().client("c") if request.param == "memory" else SqliteBus(tmp_path / "bus.db")
    opened.create_topic(IN.topic)
    yield opened
    opened.close()


def file_of(folder: Path, rows: list[bytes], mode: str = "wb") -> Path:
    with (folder / "in.csv").open(mode) as file:
        file.write(b"".join(row + b"\n" for row in rows))
    return folder / "in.csv"


def publish(bus: Bus, path: Path, **options: object) -> PublishProgress:
    return publish_file(bus, IN, path, PublishOptions(**{"source_name": "s", **options}), threading.Event())  # type: ignore[arg-type]


def kept_rows(bus: Bus) -> list[bytes]:
    messages = bus.read(IN, bus.begin_offset(IN), messages_max=10_000, bytes_max=1 << 24)
    return [row for message in messages if not message.is_tick for row in message.value.split(b"\n")]


def forget_all_but_ticks(bus: Bus) -> None:
    """Trims the topic as retention does in time: it is never empty, since the active engine ticks it."""
    bus.append(IN, [TICK] * 3)
    bus.trim(IN, bus.end_offset(IN) - 1)


def test_a_file_is_not_published_again_after_retention_took_its_messages(bus: Bus, tmp_path: Path) -> None:
    path = file_of(tmp_path, ROWS)
    assert publish(bus, path).events == 10
    forget_all_but_ticks(bus)
    assert publish(bus, path).events == 0
    file_of(tmp_path, [b"i,n,77,1"], "ab")
    assert publish(bus, path).events == 1
    assert kept_rows(bus) == [b"i,n,77,1"]


def test_a_connector_that_starts_again_does_not_publish_its_file_again(bus: Bus, tmp_path: Path) -> None:
    """SPEC I12: a promotion or a restart, after days with only ticks."""
    file_of(tmp_path, ROWS)
    bus.create_topic("p.project.cq.window.O")
    for expected in (ROWS, []):
        connectors = ConnectorSet(load_text(PROJECT, "project.yaml").resolved, bus, "p", tmp_path, Log())
        connectors.start()
        wait_until(lambda c=connectors: c.states()["cq/source/reader"] is ConnectorState.FINISHED, "the reader")  # type: ignore[misc]
        connectors.stop()
        assert kept_rows(bus) == expected
        forget_all_but_ticks(bus)


def test_a_client_of_a_socket_is_told_where_it_was(bus: Bus) -> None:
    with publisher(bus) as port, Client(port) as client:
        client.send(b"source s\n" + b"".join(row + b"\n" for row in ROWS))
        client.until(b"at 10\n")
    forget_all_but_ticks(bus)
    with publisher(bus) as port, Client(port) as client:
        client.send(b"source s\n")
        assert client.line() == b"at 10\n"


def test_a_new_source_begins_at_0(bus: Bus, tmp_path: Path) -> None:
    publish(bus, file_of(tmp_path, ROWS))
    forget_all_but_ticks(bus)
    assert publish(bus, file_of(tmp_path, ROWS[:3]), source_name="another").events == 3
