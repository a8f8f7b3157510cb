"""Keeps development servers up: starts them, writes down what runs, waits for SIGTERM. Started by `dev_servers.bring_up` only."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hotspare.testing.dev_servers import DevKind, DevProcess, DevRecord, process_called, write_record


@contextmanager
def _servers(kind: DevKind, data: Path, count: int) -> Iterator[tuple[str, tuple[DevProcess, ...]]]:
    """Started, with their URL; ended when the block ends."""
    if kind is DevKind.ZOOKEEPER:
        from hotspare.testing.zookeeper_server import ZooKeeperServer

        with ZooKeeperServer.start(data) as server:
            yield server.url, (process_called("zookeeper", server.process.process_id),)
    else:
        from hotspare.testing.kafka_server import KafkaServers

        with KafkaServers.start(data, count) as servers:
            yield servers.url, tuple(process_called(f"broker {each.number}", each.process_id) for each in servers.brokers)


def _end(number: int, _frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def main(arguments: list[str]) -> None:
    """`arguments`: kind, folder, number of servers."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, _end)
    kind, folder, count = DevKind(arguments[0]), Path(arguments[1]), int(arguments[2])
    data = folder / kind.value / "data"
    data.mkdir(parents=True, exist_ok=True)
    with _servers(kind, data, count) as (url, servers):
        write_record(folder, kind, DevRecord(url, process_called("keeper", os.getpid()), servers))
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
