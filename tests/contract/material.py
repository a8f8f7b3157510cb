"""Helpers of the contract suites: a clock that only tests move, short functions to write and read, and child processes to kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hotspare.bus.contract import Bus, Message, Outgoing, OutputId, Partition, Progress
from hotspare.coordination.contract import Member

START_US = 1_700_000_000_000_000


@dataclass
class ManualClock:
    """A clock in microseconds that does not move until it is set."""

    now_us: int = START_US

    def __call__(self) -> int:
        return self.now_us


def outgoing(*values: str) -> list[Outgoing]:
    return [Outgoing(value.encode()) for value in values]


def read_all(bus: Bus, partition: Partition, offset: int = 0) -> list[Message]:
    found: list[Message] = []
    while batch := bus.read(partition, offset, messages_max=1000, bytes_max=1_000_000):
        found += batch
        offset = batch[-1].offset + 1
    return found


def values(bus: Bus, topic: str) -> list[str]:
    return [message.value.decode() for message in read_all(bus, Partition(topic))]


def progress(sequence: int, epoch: int, digest: int = 7) -> Progress:
    return Progress(sequence, OutputId(0, 0, sequence, 0, 0), digest, epoch)


def member(engine: str, **changed: object) -> Member:
    fields: dict[str, object] = {
        "engine": engine,
        "address": "127.0.0.1:4000",
        "process_id": 4711,
        "process_start": 1_700_000_000_123,
        "host": "here",
        "project_hash": "abc",
        "versions": "hotspare 0.1.0",
        "cpu": "avx2",
        "role": "standby",
        "sequences": {"q/w": 3},
        "detail": {"lag": "0"},
    }
    return Member(**{**fields, **changed})  # type: ignore[arg-type]


@contextmanager
def child(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Runs `script` in a Python process; kills it at the end of the block if it still runs."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join((str(root / "src"), str(root)))
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate()


class Page:
    """A `Content`; calls `before` when it is encoded."""

    def __init__(self, content: bytes, before: Callable[[], object] = lambda: None) -> None:
        self.store_key: object = None
        self.encoded = 0
        self._content, self._before = content, before

    def set_store_key(self, known: object) -> None:
        self.store_key = known

    def encode(self) -> bytes:
        self.encoded += 1
        self._before()
        return self._content
