"""`publish` and `subscribe` with unknown names, and a subscriber whose stream was reset (SPEC B4, C9, F15)."""

from __future__ import annotations

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from hotspare.base.processes import process_space, process_start
from hotspare.bus.contract import Commit, Outgoing, OutputId, Partition, Progress
from hotspare.bus.naming import bad_topic
from hotspare.bus.open import open_bus
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.host.starting import STARTING
from hotspare.testing.cluster import hotspare_command
from tests.cli.running import TIMEOUT_S, hotspare_here
from tests.cli.shop import open_shop


@pytest.fixture
def bus_url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    open_bus(url).close()
    return url


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text("i,n,1\n")
    return path


def topics(bus_url: str) -> set[str]:
    bus = open_bus(bus_url)
    try:
        return set(bus.topics())
    finally:
        bus.close()


@pytest.mark.parametrize("window", ["shop/q/ordres", "shop/q/all"])
def test_a_window_that_is_no_source_gets_no_topic(bus_url: str, rows: Path, window: str) -> None:
    open_shop(bus_url)
    before = topics(bus_url)
    done = hotspare_here("publish", rows, "--bus", bus_url, "--window", window)
    assert done.returncode == 2
    assert window in done.stderr
    assert "it has shop/q/orders" in done.stderr
    assert topics(bus_url) == before


@pytest.mark.parametrize("has_engine", [False, True])
def test_an_unknown_project_is_refused_unless_its_topic_is_asked_for(bus_url: str, rows: Path, *, has_engine: bool) -> None:
    if has_engine:
        open_shop(bus_url)
    before = topics(bus_url)
    done = hotspare_here("publish", rows, "--bus", bus_url, "--window", "shpo/q/orders")
    assert (done.returncode, topics(bus_url)) == (2, before)
    assert "no engine of window shpo/q/orders has started here" in done.stderr
    assert f"windows under prefix hotspare: {'shop/q/orders' if has_engine else 'none'}" in done.stderr
    assert "add --create to this command" in done.stderr


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("hotspare", ("publish", "{rows}", "--plain", "--window", "shop/q/orders")),
        ("hotspare", ("state", "import", "{rows}", "--window", "shop/q/orders")),
        ("h_1", ("adapter", "-C", "type=pub,url=dfESP://h:1/shop/q/orders,fsname={rows}")),
    ],
)
def test_an_engine_that_is_starting_is_told_before_what_the_rows_need(
    bus_url: str, rows: Path, prefix: str, command: tuple[str, ...]
) -> None:
    process = (os.getpid(), process_start(os.getpid()), "here")
    engine = Member("e1", "", *process, "", "", "", "", {}, {STARTING: "Spark"}, process_space=process_space())
    with closing(open_coordination(default_coordination_url(bus_url))) as coordination:
        coordination.refresh_member(f"{prefix}.shop", engine)
    done = hotspare_here(*(each.format(rows=rows) for each in command), "--bus", bus_url)
    assert done.returncode == 2
    assert f"an engine of window shop/q/orders is starting: topic {prefix}.shop.q.orders.I does not exist yet" in done.stderr
    assert "e1: Spark" in done.stderr


def test_a_topic_without_a_description_is_told_before_what_the_rows_need(bus_url: str, rows: Path) -> None:
    with closing(open_bus(bus_url)) as bus:
        bus.create_topic("hotspare.shop.q.orders.I")
    done = hotspare_here("publish", rows, "--plain", "--bus", bus_url, "--window", "shop/q/orders")
    assert done.returncode == 2
    assert "no engine has described the window yet" in done.stderr


def test_a_topic_that_no_engine_reads_is_told(bus_url: str, rows: Path) -> None:
    """SPEC B6."""
    done = hotspare_here("publish", rows, "--bus", bus_url, "--window", "shop/q/orders", "--create")
    assert done.returncode == 0, done.stderr
    assert "topic hotspare.shop.q.orders.I is new: no engine reads it yet\n" in done.stderr
    again = hotspare_here("publish", rows, "--bus", bus_url, "--window", "shop/q/orders")
    assert "no engine" not in again.stderr


def test_a_topic_of_other_shards_than_are_said_is_told(bus_url: str, rows: Path) -> None:
    """Nothing is published: no engine of that number of shards would read it."""
    publish = ("publish", "--bus", bus_url, "--window", "shop/q/orders")
    assert hotspare_here(*publish, "--create", rows).returncode == 0
    (other := rows.with_name("other.csv")).write_text("i,n,2\n")
    done = hotspare_here(*publish, other, "--shards", "4")
    assert done.returncode == 2
    assert "topic hotspare.shop.q.orders.I has 1 partitions, but --shards is 4" in done.stderr
    assert "another --prefix" in done.stderr
    assert "published 1 events" in hotspare_here(*publish, other).stderr


def test_a_subscriber_says_that_it_waits(bus_url: str, tmp_path: Path) -> None:
    arguments = hotspare_command("subscribe", str(tmp_path / "out.csv"), "--bus", bus_url, "--bad", "shop")
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert line == "topic hotspare.shop.B does not exist yet: waiting for an engine to create it\n"


def test_after_a_reset_a_subscriber_is_told_to_begin_anew(bus_url: str, tmp_path: Path) -> None:
    topic, file = bad_topic("hotspare", "shop"), tmp_path / "out.csv"
    bus = open_bus(bus_url)
    assert isinstance(bus, SqliteBus)
    bus.create_topic(topic)
    arguments = ("subscribe", file, "--bus", bus_url, "--bad", "shop", "--to-end")
    assert hotspare_here(*arguments).returncode == 0
    producer = bus.producer("hotspare.shop", [topic])
    producer.fence(1)
    producer.publish(1, Commit({topic: [Outgoing(b"x")]}, {"bad": Progress(1, OutputId(0, 0, 1, 0, 0), 1, 1)}))
    assert bus.end_offset(Partition(topic)) == 1
    bus.reset_group("hotspare.shop")
    bus.close()
    done = hotspare_here(*arguments)
    assert done.returncode != 0
    assert "HS-0303" in done.stderr
    assert f"remove {file} and {file}.position" in done.stderr


@pytest.mark.parametrize("name", ["nothing.csv", "."])
def test_a_file_that_cannot_be_read_makes_no_topic(bus_url: str, tmp_path: Path, name: str) -> None:
    done = hotspare_here("publish", tmp_path / name, "--bus", bus_url, "--window", "shop/q/orders")
    assert done.returncode == 2
    assert topics(bus_url) == set()


def test_a_topic_is_not_made_with_partitions_that_no_group_reads(bus_url: str, rows: Path) -> None:
    done = hotspare_here("publish", rows, "--bus", bus_url, "--window", "shop/q/orders", "--create", "--partition", "2")
    assert (done.returncode, topics(bus_url)) == (1, set())
    assert "has no partition 2" in done.stderr
