"""`hotspare topics`: positions of sources, and topics created and emptied, on a bus that engines have used (SPEC B9, B17)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import hotspare_here
from tests.cli.shop import open_shop

TOPIC = "hotspare.shop.q.orders.I"


@pytest.fixture
def bus_url(tmp_path: Path) -> str:
    """Returns a bus as an engine that has started leaves it, with one published source."""
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    open_shop(url)
    rows = tmp_path / "in.csv"
    rows.write_text("i,n,1\n")
    done = hotspare_here("publish", rows, "--bus", url, "--window", "shop/q/orders", "--source", "orders")
    assert done.returncode == 0, done.stderr
    return url


def sources(bus_url: str) -> object:
    done = hotspare_here("topics", "--bus", bus_url, "--sources", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["sources"]


def test_the_sources_are_those_of_publishers_and_not_what_engines_wrote(bus_url: str) -> None:
    assert sources(bus_url) == [{"topic": TOPIC, "partition": 0, "source": "orders", "published": 6}]


def test_a_source_is_forgotten_where_engines_have_been(bus_url: str) -> None:
    done = hotspare_here("topics", "--bus", bus_url, "--forget-source", "orders")
    assert (done.returncode, done.stdout) == (0, f"source orders is forgotten on {TOPIC}[0], where 6 of it were published\n")
    assert sources(bus_url) == []


def test_a_topic_is_created_and_emptied(bus_url: str) -> None:
    """SPEC B17."""
    created = hotspare_here("topics", "--bus", bus_url, "--create-topic", "p.new.q.rows.I", "--partitions", 2)
    assert created.stdout == "topic p.new.q.rows.I exists; its number of partitions is 2\n"
    asked = hotspare_here("topics", "--bus", bus_url, "--empty-topic", TOPIC)
    assert (asked.returncode, f"delete all messages of topic {TOPIC}?" in asked.stdout) == (1, True)
    emptied = hotspare_here("topics", "--bus", bus_url, "--empty-topic", TOPIC, "--yes")
    assert (emptied.returncode, emptied.stdout) == (0, f"{TOPIC}[0] is empty; it began at offset 0, and continues at 1\n")
    refused = hotspare_here("topics", "--bus", bus_url, "--yes")
    assert "--yes without --empty-topic has no effect" in refused.stderr
