"""Common parts of the latency measurements: an even stream of events on a bus, and percentiles of their outputs."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hotspare.bus.contract import Bus, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.testing.kafka_server import KafkaServers

TOPIC = "events"
_STEP_S = 0.005


def now_us() -> int:
    return time.time_ns() // 1000


@functools.cache
def opened(url: str) -> Bus:
    """Opens a bus, once per process."""
    return open_bus(url)


@contextlib.contextmanager
def bus_url(kind: str, folder: Path) -> Iterator[str]:
    """Yields the URL of a fresh bus of the kind, which is deleted afterwards."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'bench.db'}"
        return
    with KafkaServers.start(folder) as servers:
        yield servers.url


def feed(url: str, rate: int, seconds: float, topic: str = TOPIC) -> None:
    """Appends `rate` events a second, one message each, `i,n,NUMBER,CREATED_US`, for `seconds`. Runs in a process of its own."""
    bus = open_bus(url)
    begin = time.monotonic()
    sent = 0
    while (passed := time.monotonic() - begin) < seconds:
        due = int(passed * rate)
        if due > sent:
            created = now_us()
            bus.append(Partition(topic), [Outgoing(b"i,n,%d,%d" % (i, created)) for i in range(sent, due)])
            sent = due
        time.sleep(_STEP_S)
    bus.close()


def start_feeder(url: str, rate: int, seconds: float, topic: str = TOPIC) -> subprocess.Popen[bytes]:
    code = "import sys; from benchmarks._latency import feed; feed(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])"
    return subprocess.Popen([sys.executable, "-c", code, url, str(rate), str(seconds), topic])


@dataclass(frozen=True, slots=True)
class Window:
    """Events created between these times, in microseconds since 1970 UTC, are counted."""

    begin_us: int
    end_us: int

    @classmethod
    def after(cls, warm_s: float, measured_s: float) -> Window:
        begin = now_us() + int(warm_s * 1e6)
        return cls(begin, begin + int(measured_s * 1e6))


class Latencies:
    """Collects (created, done) of events inside a window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._parts: list[npt.NDArray[np.int64]] = []
        self._batches = 0

    def add(self, created_us: npt.NDArray[np.int64], done_us: int) -> None:
        inside = (created_us >= self._window.begin_us) & (created_us < self._window.end_us)
        if inside.any():
            self._parts.append(done_us - created_us[inside])
            self._batches += 1

    def report(self, name: str) -> str:
        if not self._parts:
            return json.dumps({"name": name, "events": 0})
        latency_ms = np.concatenate(self._parts) / 1000
        p50, p99 = np.percentile(latency_ms, [50, 99])
        numbers = {"events": len(latency_ms), "batches": self._batches, "p50_ms": p50, "p99_ms": p99, "max_ms": latency_ms.max()}
        return json.dumps({"name": name, **{key: round(float(value)) for key, value in numbers.items()}})


def table(rows: Sequence[str]) -> str:
    """Returns the reports as aligned lines."""
    documents = [json.loads(row) for row in rows]
    width = max(len(d["name"]) for d in documents)
    lines = []
    for d in documents:
        numbers = "  ".join(f"{key} {d[key]}" for key in ("events", "batches", "p50_ms", "p99_ms", "max_ms") if key in d)
        lines.append(f"{d['name']:<{width}}  {numbers}")
    return "\n".join(lines)


def seconds_in_all(warm_s: float, measured_s: float) -> float:
    """Returns how long to feed, so that the last measured event has followers."""
    return math.ceil(warm_s + measured_s) + 1.0
