"""At start-up, and in `hotspare validate`, the bus's own retention is compared with what the project needs (SPEC H9, H10, Z7)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotspare.base.errors import BusError
from hotspare.bus.memory import BusFault, BusOperation, MemoryBus, MemoryBusClient
from hotspare.cli.main import app
from hotspare.flow.plan import compile_plan
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host.retention import check_at_start, check_newest_snapshot, topic_retentions
from hotspare.model.project import WindowId
from hotspare.projects.load import load_text
from hotspare.stores.memory import MemoryStore
from hotspare.telemetry.log import Log, LogEvent

TEXT = """
project: shop
queries:
  cq:
    windows:
      orders: {type: source, opcodes: any, index: empty, schema: "id*:int64"}
      clicks: {type: source, opcodes: any, index: empty, schema: "id*:int64"}
      kept: {type: copy, retention: {bytime_sliding: 30 minutes}}
      seen: {type: copy, index: empty}
    edges: [orders -> kept, clicks -> seen]
"""
PLAN = compile_plan(load_text(TEXT).resolved)
RESOLVED = PLAN.resolved
ORDERS = "p.shop.cq.orders.I"
SECOND_US = 1_000_000


class Unavailable:
    def at(self, client: str, operation: BusOperation) -> BusFault:
        return BusFault.UNAVAILABLE


@pytest.fixture
def bus() -> MemoryBus:
    bus = MemoryBus()
    bus.client().create_topic(ORDERS)
    return bus


def started(bus: MemoryBusClient, lines: io.StringIO, store: MemoryStore | None = None, interval_ms: int = 5_000) -> list[str]:
    """What an engine that starts would log."""
    settings = GroupSettings(snapshot_interval_ms=interval_ms)
    check_at_start(bus, store or MemoryStore(), "p", PLAN, settings, Log(), ["p.shop"])
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert {line["event"] for line in logged} <= {LogEvent.RETENTION_WARNING.label}
    return [line["message"] for line in logged]


def test_only_topics_that_exist_and_forget_are_told(bus: MemoryBus) -> None:
    assert topic_retentions(bus.client(), "p", RESOLVED) == {}
    bus.retentions_ms = {ORDERS: 30_000, "p.shop.cq.clicks.I": 1, "other": 2}
    assert topic_retentions(bus.client(), "p", RESOLVED) == {WindowId("cq", "orders"): 30_000}


def test_an_engine_warns_of_a_topic_that_is_shorter_than_its_window(bus: MemoryBus, lines: io.StringIO) -> None:
    bus.retentions_ms[ORDERS] = 30_000
    (message,) = started(bus.client(), lines)
    assert "keeps messages for 30 seconds, but window cq/kept holds rows for 30 minutes" in message
    assert "retention.ms to 1800000" in message


def test_an_engine_says_nothing_where_all_is_well(bus: MemoryBus, lines: io.StringIO) -> None:
    bus.retentions_ms[ORDERS] = 1_800_000
    assert started(bus.client(), lines) == []


def test_an_engine_does_not_start_where_no_snapshot_could_be_replayed(bus: MemoryBus, lines: io.StringIO) -> None:
    bus.retentions_ms[ORDERS] = 4_000
    with pytest.raises(BusError, match="keeps messages for 4 seconds, a snapshot is taken every 5 seconds"):
        started(bus.client(), lines)


def test_a_bus_that_does_not_answer_stops_nobody(lines: io.StringIO) -> None:
    (message,) = started(MemoryBus(faults=Unavailable()).client(), lines)
    assert "not compared" in message


def test_only_a_snapshot_that_may_be_restored_counts_and_its_age_is_told() -> None:
    store = MemoryStore()
    store.put("p.shop", "s", "e", 1, b"", [])
    (candidate,) = store.list("p.shop")
    retentions = {WindowId("cq", "orders"): 60_000}
    late_us = candidate.written_time_us + 45 * SECOND_US
    assert check_newest_snapshot(store, "p.shop", retentions, late_us) == ()
    store.confirm("p.shop", "s")
    (finding,) = check_newest_snapshot(store, "p.shop", retentions, late_us)
    assert "written 45 seconds ago" in finding.message
    assert "forgotten in 15 seconds" in finding.message
    assert check_newest_snapshot(store, "p.shop", {}, late_us) == ()


def test_validate_compares_with_the_bus(tmp_path: Path, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "p.yaml"
    project.write_text(TEXT)
    monkeypatch.setattr("hotspare.bus.open.open_bus", lambda _url: bus.client())
    command = ["validate", str(project), "--prefix", "p", "--bus", "memory://v"]
    quiet = CliRunner().invoke(app(), command)
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    bus.retentions_ms[ORDERS] = 30_000
    told = CliRunner().invoke(app(), command)
    assert told.exit_code == 0
    assert "window cq/kept holds rows for 30 minutes" in told.stderr
    assert "no mistakes and 1 warning\n" in told.stdout
    given = CliRunner().invoke(app(), [*command, "--topic-retention-ms", "1800000"])
    assert given.stderr == "", "what was given counts, not what the bus says"
