"""A starting engine compares topics with the project's needs: how long they keep messages, also in `hotspare validate` (SPEC H9,
H10, Z7), the size of one row of a stream (SPEC B13), and the streams of other projects that it reads (SPEC K10)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import BusFault, BusOperation, MemoryBus, MemoryBusClient
from hotspare.bus.naming import metadata_topic
from hotspare.cli.main import build_app
from hotspare.flow.plan import compile_plan
from hotspare.ha.rules.settings import GroupSettings, OutputStream
from hotspare.host.topic_checks import (
    check_at_start,
    check_message_sizes,
    check_newest_snapshot,
    check_streams_read,
    topic_retentions,
)
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.projects.load import load_text
from hotspare.rows.batch import MessageFormat
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
    def bus_fault(self, client: str, operation: BusOperation) -> BusFault:
        return BusFault.UNAVAILABLE


@pytest.fixture
def bus() -> MemoryBus:
    bus = MemoryBus()
    bus.client().create_topic(ORDERS)
    return bus


def started(bus: MemoryBusClient, lines: io.StringIO, store: MemoryStore | None = None, interval_ms: int = 5_000) -> list[str]:
    """Returns the log messages of a starting engine."""
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
    assert "could not be checked" in message


def test_only_a_snapshot_that_may_be_restored_counts_and_its_age_is_told() -> None:
    store = MemoryStore()
    store.write_candidate("p.shop", "s", "e", 1, b"", [])
    (candidate,) = store.list("p.shop")
    retentions = {WindowId("cq", "orders"): 60_000}
    late_us = candidate.written_time_us + 45 * SECOND_US
    assert check_newest_snapshot(store, "p.shop", retentions, late_us) == ()
    store.confirm("p.shop", "s")
    (finding,) = check_newest_snapshot(store, "p.shop", retentions, late_us)
    assert "written 45 seconds ago" in finding.message
    assert "deleted in 15 seconds" in finding.message
    assert check_newest_snapshot(store, "p.shop", {}, late_us) == ()


def test_validate_compares_with_the_bus(tmp_path: Path, bus: MemoryBus, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "p.yaml"
    project.write_text(TEXT)
    monkeypatch.setattr("hotspare.bus.open.open_bus", lambda _url: bus.client())
    command = ["validate", str(project), "--prefix", "p", "--bus", "memory://v"]
    quiet = CliRunner().invoke(build_app(), command)
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    bus.retentions_ms[ORDERS] = 30_000
    told = CliRunner().invoke(build_app(), command)
    assert told.exit_code == 0
    assert "window cq/kept holds rows for 30 minutes" in told.stderr
    assert "no mistakes and 1 warning\n" in told.stdout
    given = CliRunner().invoke(build_app(), [*command, "--topic-retention-ms", "1800000"])
    assert given.stderr == "", "what was given counts, not what the bus says"


WIDE = Schema((Field("id", FieldType.INT64, KeyRole.KEY), *(Field(f"sensor_{i:04}", FieldType.DOUBLE) for i in range(300))))


@pytest.mark.parametrize("format_", [MessageFormat.ARROW, MessageFormat.JSON, MessageFormat.CSV])
def test_one_row_without_values_has_to_fit(format_: MessageFormat) -> None:
    bus, output = MemoryBus(), OutputStream("q/w", "out", format=format_)
    bus.client().create_topic("out")
    check_message_sizes(bus.client(), [(output, WIDE)])
    bus.message_bytes["out"] = 150
    with pytest.raises(UsageError, match="accepts fewer bytes than one row") as refused:
        check_message_sizes(bus.client(), [(output, WIDE)])
    assert "topic out accepts 150 bytes; one row of stream q/w needs" in refused.value.detail
    assert "max.message.bytes" in refused.value.hint


PROJECT = """
project: NAME
queries:
  q:
    windows:
      given: {type: source, opcodes: any, schema: "FIELDS"READS}
      made: {type: copy, publish: true, beats: included}
    edges: [given -> made]
"""


def project(name: str, reads: str = "", fields: str = "id*:int64,x:double") -> Resolved:
    text = PROJECT.replace("NAME", name).replace("FIELDS", fields).replace("READS", f", reads: {reads}" if reads else "")
    return load_text(text).resolved


def told(*projects: Resolved) -> MemoryBusClient:
    """Returns a bus with the metadata of these projects."""
    bus = MemoryBus().client("c")
    for each in projects:
        publish_metadata(bus, "p", describe(each, "p"))
    return bus


def refusal(bus: MemoryBusClient, resolved: Resolved) -> UsageError:
    with pytest.raises(UsageError) as refused:
        check_streams_read(bus, "p", resolved)
    return refused.value


def test_the_same_fields_and_a_project_that_is_not_known_pass() -> None:
    check_streams_read(told(project("a")), "p", project("b", "a/q/made"))
    check_streams_read(told(project("a")), "p", project("b", "a/q/made", "id:int64,x*:double"))  # another key
    check_streams_read(told(), "p", project("b", "a/q/made"))


@pytest.mark.parametrize("fields", ["id*:int64,y:double", "id*:int64,x:int64", "x:double,id*:int64", "id*:int64"])
def test_other_fields_are_refused_with_both(fields: str) -> None:
    error = refusal(told(project("a", fields=fields)), project("b", "a/q/made"))
    assert error.message == "window q/given has other fields than a/q/made, which it reads"
    assert error.detail == f"it has id:int64,x:double, the stream has {fields.replace('*', '')}"


@pytest.mark.parametrize("window", ["q/given", "q/other", "other/made"])
def test_a_window_that_is_not_put_out_is_refused_with_those_that_are(window: str) -> None:
    error = refusal(told(project("a")), project("b", f"a/{window}"))
    assert error.message == f"window q/given reads a/{window}, which project a does not publish"
    assert error.hint == "its streams are: a/q/made"


def test_projects_that_read_each_other_are_refused() -> None:
    """Each would wait for the other one's time."""
    error = refusal(told(project("a", "b/q/made")), project("b", "a/q/made"))
    assert error.message == "projects read each other in a ring: b, which reads a, which reads b"
    three = told(project("a", "b/q/made"), project("c", "a/q/made"))
    assert refusal(three, project("b", "c/q/made")).message.endswith("b, which reads c, which reads a, which reads b")
    others = told(project("a", "c/q/made"), project("c", "a/q/made"))  # a mistake of the other projects, not of this one
    check_streams_read(others, "p", project("b", "a/q/made"))


def test_what_cannot_be_read_is_passed_over() -> None:
    bus = told(project("a", fields="id*:int64"))
    bus.append(Partition(metadata_topic("p")), [Outgoing(b"{}", (("hotspare-project", b"a@"),))])
    check_streams_read(bus, "p", project("b", "a/q/made"))
