"""Commands on a project that is divided into shards."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.base.errors import UsageError
from hotspare.base.shard import shards_of
from hotspare.bus.contract import Commit, Outgoing, Partition, Progress
from hotspare.bus.memory import MemoryBus
from hotspare.bus.naming import group_name
from hotspare.bus.sqlite import SqliteBus
from hotspare.cli.status import hosted_shards, shard_lines
from hotspare.coordination.contract import Member
from hotspare.coordination.memory import MemoryCoordination
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.formats import arrow_block
from hotspare.model.types import FieldType
from hotspare.operate.groups import GroupSources, groups_named
from hotspare.operate.report import report
from hotspare.rows.routing import Routing
from tests.adapters import outputs
from tests.cli.running import hotspare_here

PROJECT = """
project: shop
queries:
  q:
    windows:
      orders: {type: source, opcodes: any, schema: "order*:int64,customer*:string", partition_by: customer}
      kept: {type: copy, publish: true}
    edges: [orders -> kept]
"""
INBOUND, OUTBOUND = "hotspare.shop.q.orders.I", "hotspare.shop.q.kept.O"
GROUPS = [group_name("hotspare", "shop", shard) for shard in shards_of(3)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(PROJECT)
    return file


def test_validate_tells_how_a_project_is_divided(project: Path) -> None:
    done = hotspare_here("validate", project, "--shards", "3")
    assert done.returncode == 0
    assert "in 3 shards it is the groups hotspare.shop/0 to hotspare.shop/2; each topic has 3 partitions" in done.stdout
    assert "rows of q/orders go into partition murmur2(customer) mod 3" in done.stdout
    assert "shards" not in hotspare_here("validate", project).stdout


def test_validate_refuses_with_window_reason_and_way_on(project: Path) -> None:
    project.write_text(PROJECT.replace("type: copy", "type: copy, retention: {bycount_sliding: 3}"))
    assert hotspare_here("validate", project).returncode == 0
    done = hotspare_here("validate", project, "--shards", "3")
    assert done.returncode == 2
    assert "window q/kept cannot be partitioned: its retention counts the rows of all partitions together" in done.stderr
    assert "in a second project whose source is this one's output" in done.stderr


def test_publish_puts_rows_where_they_belong_and_makes_the_topic(project: Path, tmp_path: Path) -> None:
    rows, url = tmp_path / "in.csv", f"sqlite:///{tmp_path / 'b.db'}"
    rows.write_text("".join(f"i,n,{i},c{i}\n" for i in range(30)))
    where = ("--bus", url, "--window", "shop/q/orders", rows)
    done = hotspare_here("publish", *where, "--project", project, "--create", "--shards", "3")
    assert (done.returncode, "published 30 events" in done.stderr) == (0, True)
    with closing(SqliteBus(tmp_path / "b.db")) as bus:
        assert bus.topics()[INBOUND] == 3
        found = [bus.read(Partition(INBOUND, number), 0, messages_max=99, bytes_max=9999) for number in range(3)]
        assert sum(message.value.count(b"i,n") for messages in found for message in messages) == 30
        assert all(found)
    refused = hotspare_here("publish", *where)
    assert refused.returncode == 2
    assert f"topic {INBOUND} has 3 partitions, and the partition of a row is not known" in refused.stderr
    assert hotspare_here("publish", *where, "--project", project, "--partition", "1", "--source", "other").returncode == 0


def test_an_adapter_line_puts_rows_where_they_belong(project: Path, tmp_path: Path) -> None:
    rows, url = tmp_path / "in.csv", f"sqlite:///{tmp_path / 'b.db'}"
    rows.write_text("".join(f"i,n,{i},c{i}\n" for i in range(30)))
    topic = "far_5000.shop.q.orders.I"
    with closing(SqliteBus(tmp_path / "b.db")) as bus:
        text = f'type=pub,url="dfESP://far:5000/shop/q/orders",fsname={rows}'
        given = ("adapter", "-C", text, "--bus", url, "--project", project)
        done = hotspare_here(*given)
        assert (done.returncode, "add --create to this command" in done.stderr, dict(bus.topics())) == (2, True, {})
        done = hotspare_here(*given, "--create", "--shards", "3")
        assert (done.returncode, "published 30 events" in done.stderr) == (0, True)
        found = [bus.read(Partition(topic, number), 0, messages_max=99, bytes_max=9999) for number in range(3)]
    routing = Routing(1, FieldType.STRING, 3)
    for number, messages in enumerate(found):
        texts = [row.split(b",")[3].decode() for message in messages for row in message.value.split(b"\n")]
        assert texts == [f"c{i}" for i in range(30) if routing.partitions(pa.array([f"c{i}"]))[0] == number]


def test_subscribe_writes_the_outputs_of_all_shards(project: Path, tmp_path: Path) -> None:
    file, url = tmp_path / "out.csv", f"sqlite:///{tmp_path / 'b.db'}"
    with closing(SqliteBus(tmp_path / "b.db")) as bus:
        bus.create_topic(outputs.TOPIC, 3)
        for number in (2, 0):
            value = arrow_block.encode(outputs.block([(outputs.I, outputs.N, number, 1.0)], 1))
            bus.append(Partition(outputs.TOPIC, number), [Outgoing(value)])
        where = ("--bus", url, "--window", "project/cq/window", "--prefix", "p", "--to-end")
        done = hotspare_here("subscribe", file, *where)
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"wrote 2 rows of {outputs.TOPIC} up to sequences 1, 0, 1")
        assert file.read_text() == "I,N, 0,1.000000\nI,N, 2,1.000000\n"
        done = hotspare_here("subscribe", tmp_path / "one.csv", *where, "--partition", "2")
        assert done.stderr.splitlines()[-1] == f"wrote 1 rows of {outputs.TOPIC} up to sequence 1"
        assert (tmp_path / "one.csv").read_text() == "I,N, 2,1.000000\n"


def test_status_begins_with_who_is_active_for_which_shards() -> None:
    service = MemoryCoordination().client()
    for group, engine in zip((*reversed(GROUPS), "hotspare.other"), ("e1", "e0", "e1", "e0"), strict=True):
        described = Member(engine, "", 1, 1, "host", "", "", "", "active", {}, {})
        assert service.campaign(group, 0, described, 1_000_000) == 1
    for number in range(2):
        service.set_fact_once(f"hotspare.idle/{number}", "project", b"p")
    document = report(GroupSources(service))
    lines = shard_lines(document, 80)
    assert lines == [
        "project hotspare.idle in 2 shards: nobody active for 0, 1",
        "project hotspare.shop in 3 shards: e0 active for 1; e1 active for 0, 2",
    ]
    narrow = shard_lines(document, 40)
    assert max(map(len, narrow)) <= 40
    assert " ".join(line.strip() for line in narrow) == " ".join(lines)


def test_status_shows_where_spark_hosts_each_shard_the_slowest_first() -> None:
    """Engines outside of tasks, and engines without a recent heartbeat, are left out. SPEC K9."""
    clock_ms = 0
    service = MemoryCoordination(lambda: clock_ms).client()

    def join(number: int, engine: str, role: str, read: int, **place: str) -> None:
        detail = {**place, "positions": json.dumps({"0/0": read})}
        service.refresh_member(GROUPS[number], Member(engine, "", 1, 1, "host", "", "", "", role, {}, detail))

    bus = MemoryBus().client()
    for number in range(2):
        bus.create_topic(f"t{number}")
        bus.append(Partition(f"t{number}"), [Outgoing(b"")] * 9)
        service.set_fact_once(GROUPS[number], "origin", json.dumps([[f"t{number}", 0, 0]]).encode())
    join(0, "a-0.1.0", "standby", 2, application="a", task="0", executor="5")
    clock_ms = 60_000
    join(0, "a-0.1.1", "standby", 9, application="a", task="0", executor="6")
    join(1, "a-1.1.0", "standby", 4, application="a", task="1", executor="")
    join(1, "plain", "standby", 4)
    assert hosted_shards(report(GroupSources(service, bus), GROUPS[:2])) == [
        ("hotspare.shop", 1, "a", "1", "", "standby", 4, 5),
        ("hotspare.shop", 0, "a", "0", "6", "standby", 9, 0),
    ]


def test_a_project_stands_for_all_its_shards() -> None:
    service = MemoryCoordination().client()
    for group in (*reversed(GROUPS), "hotspare.other"):
        service.set_fact_once(group, "project", b"p")
    assert groups_named(service, "hotspare.shop") == GROUPS
    assert groups_named(service, GROUPS[1]) == [GROUPS[1]]
    assert groups_named(service, "hotspare.other") == ["hotspare.other"]
    with pytest.raises(UsageError, match="no group is called"):
        groups_named(service, "hotspare.sho")


def test_reset_forgets_all_shards(project: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'b.db'}"
    with closing(SqliteBus(tmp_path / "b.db")) as bus, closing(open_coordination(default_coordination_url(url))) as service:
        bus.create_topic(OUTBOUND, 3)
        for group in GROUPS:
            service.set_fact_once(group, "project", b"p")
            producer = bus.producer(group, [OUTBOUND])
            producer.fence(1)
            producer.publish(1, Commit({OUTBOUND: [Outgoing(b"x")]}, {"q/kept": Progress(1, None, 0, 1)}))
        done = hotspare_here("reset", project, "--bus", url, "--yes")
        assert (done.returncode, done.stderr) == (0, "")
        assert [bus.progress(group)["q/kept"].sequence for group in GROUPS] == [0, 0, 0]
        assert [bus.begin_offset(Partition(OUTBOUND, number)) for number in range(3)] == [1, 1, 1]
        assert [service.fact(group, "project") for group in GROUPS] == [None] * 3
