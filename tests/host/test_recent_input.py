"""Two whole engines in one process, without Spark: the second rebuilds its state from recent input, and continues when the first
one stops (SPEC F11). With processes that are killed: tests/e2e/test_recent_input.py."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hotspare.base.choices import JoinFrom, RunnerKind, SpareKind
from hotspare.base.errors import UsageError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.naming import group_name, inbound_topic, outbound_topic
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.formats.arrow_block import decode
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host import process
from hotspare.host.options import EngineOptions
from hotspare.testing.cluster import reported_orders, wait_until

PROJECT = """
project: p
queries:
  cq:
    windows:
      given: {type: source, schema: "id*:int64,v:double", opcodes: insert-only, index: empty}
      kept: {type: copy, retention: {bytime_sliding: 1 seconds}, publish: true}
    edges: [given -> kept]
"""
GIVEN = Partition(inbound_topic("hotspare", "p", "cq", "given"))
KEPT = Partition(outbound_topic("hotspare", "p", "cq", "kept"))
SKEW_MS = 1_000
SPAN_US = 2 * (1_000_000 + 3 * 3_000_000) + 2 * SKEW_MS * 1_000
"""Twice the retention, heartbeats and gaps between ticks of two windows and once more, and twice the accepted skew of a clock."""


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Collects the functions that stop the engines, in the order of their start; signals work only in main threads."""
    found: list[Callable[[], None]] = []

    @contextmanager
    def stop_asked(stop: Callable[[], None]) -> Iterator[None]:
        found.append(stop)
        yield

    monkeypatch.setattr(process, "stop_on_signals", stop_asked)
    return found


class Site:
    def __init__(self, folder: Path) -> None:
        self.project, path = folder / "p.yaml", folder / "b.db"
        self.project.write_text(PROJECT)
        self.url = f"sqlite:///{path}"
        self.bus = SqliteBus(path)
        self.bus.create_topic(GIVEN.topic)
        self.coordination = open_coordination(default_coordination_url(self.url))
        self.threads: list[threading.Thread] = []
        self.count = 0

    def options(self, engine: str, **more: Any) -> EngineOptions:
        settings = GroupSettings(lease_ms=10_000, heartbeat_ms=250, skew_max_ms=SKEW_MS, snapshot_interval_ms=0)
        made = EngineOptions(self.project, self.url, engine=engine, runner=RunnerKind.LOCAL, settings=settings)
        return replace(made, **more)

    def start(self, engine: str, **more: Any) -> None:
        self.threads.append(threading.Thread(target=process.run_engine, args=(self.options(engine, **more),)))
        self.threads[-1].start()

    def role(self, engine: str) -> str:
        return next((m.role for m in self.coordination.members(group_name("hotspare", "p")) if m.engine == engine), "")

    def order(self, engine: str) -> int:
        """Returns how far the engine has read, as it reported."""
        return reported_orders(self.coordination.members(group_name("hotspare", "p"))).get(engine, -1)

    def publish(self, count: int) -> None:
        rows = [Outgoing(f"i,n,{number},{number}.1".encode()) for number in range(self.count, self.count + count)]
        self.bus.append(GIVEN, rows)
        self.count += count

    def put_out(self) -> dict[str, list[int]]:
        """Returns the ids of inserted and of deleted outputs."""
        found: dict[str, list[int]] = {"inserted": [], "deleted": []}
        if KEPT.topic in self.bus.topics():
            for message in self.bus.read(KEPT, 0, messages_max=100_000, bytes_max=1 << 26):
                rows = decode(message.value)
                for opcode, number in zip(rows.column("hs:opcode").to_pylist(), rows.column("id").to_pylist(), strict=True):
                    found["inserted" if opcode == 1 else "deleted"].append(number)
        return found

    def is_done(self) -> bool:
        return all(len(numbers) == self.count for numbers in self.put_out().values())

    def history_us(self) -> int:
        first, last = (self.bus.read(GIVEN, at, messages_max=1, bytes_max=1 << 20) for at in (0, self.bus.end_offset(GIVEN) - 1))
        return last[0].append_time_us - first[0].append_time_us


def test_it_goes_on_where_the_other_one_stops(tmp_path: Path, stops: list[Callable[[], None]]) -> None:
    """It has no snapshot, and no older input."""
    site = Site(tmp_path)
    try:
        site.start("one")
        wait_until(lambda: site.role("one") == "active", "an active engine")
        site.publish(40)
        wait_until(site.is_done, "all rows have come and gone")
        wait_until(lambda: site.history_us() > SPAN_US, "input from before what matters")
        site.start("two", join=JoinFrom.RECENT)
        wait_until(lambda: site.role("two") == "warming", "a state that nothing proves yet")
        while site.role("two") != "standby" and site.count < 400:
            site.publish(2)
            wait_until(site.is_done, "these, too")
        assert site.role("two") == "standby"
        end = site.bus.end_offset(GIVEN)
        wait_until(lambda: site.order("two") >= end, "the spare has read what is there")
        site.bus.trim(GIVEN, end - 1)
        stops[0]()
        wait_until(lambda: site.role("two") == "active", "the spare has the role")
        site.publish(20)
        wait_until(site.is_done, "what came under the second one")
        everything = list(range(site.count))
        assert site.put_out() == {"inserted": everything, "deleted": everything}
    finally:
        for stop in stops:
            stop()
        for thread in site.threads:
            thread.join()
        site.coordination.close()
        site.bus.close()


@pytest.mark.parametrize(
    ("more", "text", "why"),
    [
        ({"spare": SpareKind.COLD}, PROJECT, "--spare cold and --join recent exclude each other"),
        ({"restore": "somewhere"}, PROJECT, "a snapshot to restore and --join recent exclude each other"),
        ({}, PROJECT.replace("bytime_sliding: 1 seconds", "bycount_sliding: 9"), "window cq/kept holds 9 rows"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, more: dict[str, Any], text: str, why: str) -> None:
    site = Site(tmp_path)
    site.project.write_text(text)
    with pytest.raises(UsageError) as refused:
        process.run_engine(site.options("one", join=JoinFrom.RECENT, **more))
    assert why in str(refused.value)
    site.coordination.close()
    site.bus.close()
