"""Running connectors of a project (SPEC I1, I5, I6, I12): on the active engine only, each row once over role changes."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hotspare.adapters.connectors import FAILURE_RETRY, ConnectorSet, ConnectorState, ConnectorStatus
from hotspare.adapters.esp.connector_options import connector_file, publish_options, subscribe_options
from hotspare.adapters.esp.socket_options import connector_address
from hotspare.adapters.failover.subscriber_position import load_position
from hotspare.adapters.files.row_file import Growth
from hotspare.adapters.files.subscriber import Opening
from hotspare.base.errors import UsageError
from hotspare.base.retry import Retry
from hotspare.base.shard import shards_of
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.ha.ports import ConnectorFacts
from hotspare.ha.rules.roles import Role
from hotspare.model.project import Connector, ConnectorDirection, Project
from hotspare.projects.load import home_properties, load_text
from hotspare.telemetry.log import Log, LogEvent
from hotspare.testing.cluster import wait_until
from tests.adapters.outputs import ROWS as OUTPUTS
from tests.adapters.outputs import ROWS_TEXT, SCHEMA, publish
from tests.rows.test_routing import plain_murmur2

PROJECT = """
project: project
queries:
  cq:
    windows:
      source:
        type: source
        opcodes: any
        index: empty
        schema: id*:int64,value:double
        connectors:
          reader: {kind: fs, direction: pub, properties: {fsname: in.csv, fstype: csv}}
          bus: {kind: kafka, direction: pub, properties: {kafkatype: csv}}
      window:
        type: copy
        connectors:
          writer: {kind: fs, direction: sub, properties: {fsname: out.csv, fstype: csv}}
    edges: [source -> window]
"""
INBOUND = Partition("p.project.cq.source.I")


def logged(lines: io.StringIO) -> list[dict[str, str]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def project(text: str = PROJECT) -> Project:
    return load_text(text, "project.yaml").project


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("engine")
    for topic in (INBOUND.topic, "p.project.cq.window.O"):
        bus.create_topic(topic)
    return bus


def rows(bus: MemoryBusClient) -> list[bytes]:
    return [r for m in bus.read(INBOUND, 0, messages_max=1000, bytes_max=1 << 20) for r in m.value.split(b"\n")]


def test_connectors_run_while_active_and_go_on_elsewhere(tmp_path: Path, lines: io.StringIO) -> None:
    """SPEC I1, I9, I12."""
    (tmp_path / "in.csv").write_bytes(b"i,n,1,1\ni,n,2,2\n")
    bus = new_bus()
    publish(bus, OUTPUTS)
    for _ in range(3):  # three engines one after another, or the same one again
        engine = ConnectorSet(load_text(PROJECT, "project.yaml").resolved, bus, "p", tmp_path, Log())
        engine.follow_role(Role.STANDBY)
        assert engine.states() == {}
        engine.follow_role(Role.ACTIVE)
        engine.follow_role(Role.ACTIVE)
        wait_until(lambda e=engine: e.states()["cq/source/reader"] is ConnectorState.FINISHED, "the reader")  # type: ignore[misc]
        wait_until(lambda: written(tmp_path) == ROWS_TEXT, "the writer")
        engine.follow_role(Role.STANDBY)
        engine.stop()
        assert engine.states()["cq/window/writer"] is ConnectorState.STOPPED
    assert rows(bus) == [b"i,n,1,1", b"i,n,2,2"]
    assert written(tmp_path) == ROWS_TEXT
    built_in = [line for line in logged(lines) if line["event"] == LogEvent.CONNECTOR_BUILT_IN.label]
    assert {line["connector"] for line in built_in} == {"cq/source/bus"}
    assert "the engine itself reads the topic of window cq/source" in built_in[0]["message"]


def test_a_connector_that_fails_says_so_and_leaves_the_others(tmp_path: Path, lines: io.StringIO) -> None:
    bus = new_bus()
    publish(bus, OUTPUTS)
    engine = ConnectorSet(load_text(PROJECT, "project.yaml").resolved, bus, "p", tmp_path, Log())
    engine.start()
    wait_until(lambda: engine.states()["cq/source/reader"] is ConnectorState.FAILED, "the failure")
    wait_until(lambda: written(tmp_path) == ROWS_TEXT, "the writer's rows")
    engine.stop()
    failed = [line for line in logged(lines) if line["event"] == LogEvent.CONNECTOR_FAILED.label]
    assert "in.csv cannot be read" in failed[0]["message"]


def test_a_connector_that_failed_is_tried_again_and_shows_it(tmp_path: Path) -> None:
    """Its file is missing at first: pauses between the tries grow, and its state is visible meanwhile (SPEC I12, M5)."""
    pauses = Retry(pause_s=0.01, pause_max_s=0.02)
    bus = new_bus()
    publish(bus, OUTPUTS)
    engine = ConnectorSet(load_text(PROJECT, "project.yaml").resolved, bus, "p", tmp_path, Log(), after_failure=pauses)
    assert engine.facts() == {}
    engine.start()
    wait_until(lambda: engine.facts()["cq/source/reader"].retry_in_ms is not None, "the failure")
    assert "in.csv cannot be read" in engine.facts()["cq/source/reader"].last_error
    (tmp_path / "in.csv").write_bytes(b"i,n,1,1\ni,n,2,2\n")
    wait_until(lambda: engine.states()["cq/source/reader"] is ConnectorState.FINISHED, "the reader")
    wait_until(lambda: engine.facts()["cq/window/writer"].rows == 5, "the writer")
    found = engine.facts()["cq/source/reader"]
    assert (found.state, found.rows, found.retry_in_ms) == ("finished", 2, None)
    assert "in.csv cannot be read" in found.last_error
    assert rows(bus) == [b"i,n,1,1", b"i,n,2,2"]
    engine.stop()
    assert engine.facts()["cq/window/writer"] == ConnectorFacts("stopped", 5)


def test_a_connector_that_failed_and_is_stopped_is_not_tried_again(tmp_path: Path) -> None:
    engine = ConnectorSet(load_text(PROJECT, "project.yaml").resolved, new_bus(), "p", tmp_path, Log())
    engine.start()
    wait_until(lambda: engine.facts()["cq/source/reader"].retry_in_ms is not None, "the failure")
    engine.stop()
    found = engine.facts()["cq/source/reader"]
    assert (found.state, found.retry_in_ms) == ("stopped", None)


def test_a_connector_whose_work_cannot_go_on_is_waiting_until_it_does() -> None:
    """Its disk is full, or its server does not answer: that is reported once a minute while it lasts (SPEC I12, M5)."""
    now_s = [0.0]
    standing = ConnectorStatus(lambda: now_s[0])
    standing.record_start()
    count = standing.moved_rows_counter()
    count(3)
    for _ in range(3):
        now_s[0] += 60
        standing.record_trouble("no space left on device")
        count(3)
        assert standing.facts() == ConnectorFacts("waiting", 3, "no space left on device")
    count(4)
    assert standing.facts() == ConnectorFacts("running", 4, "no space left on device")
    standing.record_trouble("no answer")
    now_s[0] += 70
    assert standing.facts().state == "running", "nothing was reported for more than a minute"
    standing.record_trouble("no answer")
    standing.record_failure("gone", 2.0)
    assert standing.facts() == ConnectorFacts("failed", 4, "gone", 2_000)
    standing.record_end(ConnectorState.STOPPED)
    standing.record_trouble("late")
    assert standing.facts() == ConnectorFacts("stopped", 4, "late")


def test_pauses_after_failures_double_up_to_five_minutes() -> None:
    found: list[float] = []
    for number in FAILURE_RETRY.tries(found.append):
        if number == 12:
            break
    assert found == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_connector_waits_for_the_file_that_another_engine_still_writes(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"")
    bus = new_bus()
    publish(bus, OUTPUTS)
    old, new = (ConnectorSet(load_text(PROJECT, "project.yaml").resolved, bus, "p", tmp_path, Log()) for _ in range(2))
    old.start()
    wait_until(lambda: written(tmp_path) == ROWS_TEXT, "the old one")
    new.start()
    publish(bus, OUTPUTS, first_sequence=6)
    wait_until(lambda: written(tmp_path) == ROWS_TEXT * 2, "the old one's rows")
    old.stop()
    publish(bus, OUTPUTS, first_sequence=11)
    wait_until(lambda: written(tmp_path) == ROWS_TEXT * 3, "the new one's rows")
    new.stop()


class _Hanging(MemoryBusClient):
    """Reads of the end offset block until `let_go` is set, like a hanging call of a bus or a file system."""

    let_go: threading.Event

    def end_offset(self, partition: Partition) -> int:
        self.let_go.wait()
        return super().end_offset(partition)


def test_a_connector_that_hangs_holds_up_no_change_of_role(tmp_path: Path) -> None:
    """The engine's HA loop calls `follow_role`, so waiting there would cost the lease."""
    (tmp_path / "in.csv").write_bytes(b"i,n,1,1\n")
    bus = new_bus()
    bus.__class__ = _Hanging
    bus.let_go = threading.Event()  # type: ignore[attr-defined]
    resolved = load_text(PROJECT, "project.yaml").resolved
    engine = ConnectorSet(resolved, bus, "p", tmp_path, Log(), stop_timeout_s=600.0)

    def beats() -> None:
        for role in (Role.ACTIVE, Role.STANDBY, Role.ACTIVE, Role.STANDBY, Role.ACTIVE):
            engine.follow_role(role)

    beat = threading.Thread(target=beats)
    beat.start()
    beat.join(120)
    in_time = not beat.is_alive()
    bus.let_go.set()  # type: ignore[attr-defined]
    beat.join()
    assert in_time
    wait_until(lambda: engine.states()["cq/source/reader"] is ConnectorState.FINISHED, "the reader")
    engine.stop()
    assert rows(bus) == [b"i,n,1,1"]


def test_connectors_that_were_ended_start_no_more_and_tell_when_they_are_idle(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"i,n,1,1\n")
    bus, ended = new_bus(), threading.Event()
    engine = ConnectorSet(load_text(PROJECT, "project.yaml").resolved, bus, "p", tmp_path, Log(), ended.set)
    engine.follow_role(Role.ACTIVE, 3)
    assert ended.wait(60)
    engine.request_stop()
    wait_until(lambda: engine.is_idle, "the end")
    engine.follow_role(Role.ACTIVE, 3)
    assert engine.is_idle
    assert engine.states()["cq/window/writer"] is ConnectorState.STOPPED


def test_a_newer_epoch_writes_on_while_an_older_one_lives_and_keeps_the_file(tmp_path: Path, lines: io.StringIO) -> None:
    """SPEC E9, E16: the older one is frozen with its file open, or assumes that it is still active."""
    (tmp_path / "in.csv").write_bytes(b"")
    bus = new_bus()
    publish(bus, OUTPUTS)
    old, new = (ConnectorSet(load_text(PROJECT, "project.yaml").resolved, bus, "p", tmp_path, Log()) for _ in range(2))
    old.follow_role(Role.ACTIVE, 1)
    wait_until(lambda: written(tmp_path) == ROWS_TEXT, "the old one")
    new.follow_role(Role.ACTIVE, 2)
    wait_until(lambda: load_position(tmp_path / "out.csv").epoch == 2, "the new one has the file")  # type: ignore[union-attr]
    publish(bus, OUTPUTS, first_sequence=6)
    wait_until(lambda: written(tmp_path) == ROWS_TEXT * 2, "the new one's rows")
    wait_until(lambda: any(line["event"] == LogEvent.CONNECTOR_WAITS.label for line in logged(lines)), "the old one says why")
    new.stop()
    assert written(tmp_path) == ROWS_TEXT * 2
    old.follow_role(Role.ACTIVE, 3)  # its next promotion
    publish(bus, OUTPUTS, first_sequence=11)
    wait_until(lambda: written(tmp_path) == ROWS_TEXT * 3, "the rows of the promoted one")
    old.stop()


def written(folder: Path) -> bytes:
    path = folder / "out.csv"
    return path.read_bytes() if path.exists() else b""


def connector(**properties: str) -> Connector:
    return Connector("c", "fs", ConnectorDirection.PUBLISH, tuple(sorted(properties.items())))


def test_i5_properties_become_options() -> None:
    options = publish_options(
        connector(header="2", growinginputfile="true", rate="2.5", maxevents="11", blocksize="4", addcsvflags="normal"), SCHEMA
    )
    assert (options.header_rows, options.growth, options.rate) == (2, Growth.GROWING, 2.5)
    assert (options.events_max, options.block_rows, options.form.columns) == (11, 4, 3)


def test_i6_properties_become_options() -> None:
    assert subscribe_options(connector(snapshot="true")).opening is Opening.SNAPSHOT


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("header", "some"),
        ("rate", "-1"),
        ("rate", "nan"),
        ("maxevents", "1.5"),
        ("fstype", "syslog"),
        ("growinginputfile", "maybe"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"property {name} of connector c"):
        publish_options(connector(**{name: value}), SCHEMA)


def test_a_test_file_may_lie_beside_its_folder(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("")
    name = f"{home_properties(tmp_path / 'model.xml', None)['ESP_PROJECT_HOME']}/test_files/in.csv"
    assert connector_file(connector(fsname=name), tmp_path) == tmp_path / "in.csv"
    (tmp_path / "test_files").mkdir()
    (tmp_path / "test_files" / "in.csv").write_text("")
    assert connector_file(connector(fsname=name), tmp_path) == tmp_path / "test_files" / "in.csv"


def test_a_connector_may_name_its_file_by_url(tmp_path: Path) -> None:
    url = (tmp_path / "the rows.csv").as_uri()
    assert connector_file(connector(fsname=url), tmp_path / "home") == tmp_path / "the rows.csv"
    with pytest.raises(UsageError, match="is not a file of this machine"):
        connector_file(connector(fsname="file://host/rows.csv"), tmp_path)


def test_a_connector_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no file"):
        connector_file(connector(), tmp_path)


def test_of_a_divided_project_one_shard_publishes_to_all_and_each_writes_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"".join(b"i,n,%d,1\n" % number for number in range(30)))
    bus = MemoryBus().client("engine")
    for topic in (INBOUND.topic, "p.project.cq.window.O"):
        bus.create_topic(topic, 3)
    publish(bus, OUTPUTS)
    outputs = bus.read(Partition("p.project.cq.window.O"), 0, messages_max=1000, bytes_max=1 << 20)
    bus.append(Partition("p.project.cq.window.O", 2), [Outgoing(each.value, each.headers) for each in outputs])
    resolved = load_text(PROJECT, "project.yaml").resolved
    engines = [ConnectorSet(resolved, bus, "p", tmp_path, Log(), shard=shard) for shard in shards_of(3)]
    for engine in reversed(engines):
        engine.start()
    wait_until(lambda: engines[0].states()["cq/source/reader"] is ConnectorState.FINISHED, "the reader")
    assert all("cq/source/reader" not in engine.states() for engine in engines[1:])
    for number in (0, 2):
        file = tmp_path / f"out-{number}.csv"
        wait_until(lambda f=file: f.is_file() and f.read_bytes() == ROWS_TEXT, "the writers")  # type: ignore[misc]
    for engine in engines:
        engine.stop()
    for number in range(3):
        messages = bus.read(Partition(INBOUND.topic, number), 0, messages_max=1000, bytes_max=1 << 20)
        keys = [row.split(b",")[2] for message in messages for row in message.value.split(b"\n")]
        assert keys == [b"%d" % key for key in range(30) if (plain_murmur2(b"%d" % key) & 0x7FFFFFFF) % 3 == number]


def test_a_connector_that_names_a_socket_counts_with_its_client_over_role_changes(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """SPEC I5: a client continues after the acknowledged line, whichever engine listens."""
    port, bus = free_port(), new_bus()
    text = PROJECT.replace("fsname: in.csv", f"fsname: ':{port}'")
    for given in ([b"i,n,1,1", b"i,n,2,2"], [b"i,n,3,3"]):
        engine = ConnectorSet(load_text(text, "project.yaml").resolved, bus, "p", tmp_path)
        engine.follow_role(Role.ACTIVE)
        client = connected(port)
        with client, client.makefile("rwb") as lines:
            lines.write(b"source s\n")
            lines.flush()
            begin = int(lines.readline().split()[1])
            lines.write(b"\n".join(given) + b"\n")
            lines.flush()
            while int(lines.readline().split()[1]) < begin + len(given):
                pass
        engine.stop()
    assert rows(bus) == [b"i,n,1,1", b"i,n,2,2", b"i,n,3,3"]


def connected(port: int) -> socket.socket:
    found: list[socket.socket] = []

    def tried() -> bool:
        with contextlib.suppress(OSError):
            found.append(socket.create_connection(("127.0.0.1", port), timeout=120))
        return bool(found)

    wait_until(tried, "the connector listens")
    return found[0]


def test_outputs_go_to_whoever_connects_to_a_subscribing_connector(tmp_path: Path, free_port: Callable[[], int]) -> None:
    """SPEC I6."""
    port, bus = free_port(), new_bus()
    publish(bus, OUTPUTS)
    text = PROJECT.replace("fsname: out.csv, fstype: csv", f"fsname: 'tcp://127.0.0.1:{port}', fstype: json")
    engine = ConnectorSet(load_text(text, "project.yaml").resolved, bus, "p", tmp_path)
    engine.follow_role(Role.ACTIVE)
    client = connected(port)
    with client, client.makefile("rwb") as lines:
        lines.write(b"after 0\n")
        lines.flush()
        assert json.loads(lines.readline())["hs:sequence"] == 1
    engine.stop()


@pytest.mark.parametrize(
    ("direction", "name", "value"),
    [
        (ConnectorDirection.PUBLISH, "rate", "5"),
        (ConnectorDirection.PUBLISH, "header", "1"),
        (ConnectorDirection.SUBSCRIBE, "collapse", "true"),
        (ConnectorDirection.SUBSCRIBE, "fstype", "xml"),
    ],
)
def test_what_a_socket_has_not_is_refused_by_name(direction: ConnectorDirection, name: str, value: str) -> None:
    connector = Connector("c", "fs", direction, tuple(sorted({"fsname": ":7", name: value}.items())))
    with pytest.raises(UsageError, match=value if name == "fstype" else name):
        connector_address(connector)
