"""A single event causes two million outputs. The active engine is killed while it publishes them; each is delivered once (law
Failover)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hotspare.bus.contract import Partition
from hotspare.bus.naming import outbound_topic
from hotspare.bus.sqlite import SqliteBus
from hotspare.formats.arrow_block import decode
from hotspare.testing.cluster import wait_until
from tests.e2e.site import PREFIX, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
TIMEOUT_S = 240
ROWS = 1_450
"""The rows on each of the two sides that the event joins."""
OUTPUTS = ROWS * ROWS
PROJECT = """\
project: shop
queries:
  q:
    windows:
      orders: {type: source, opcodes: any, schema: "order*:int64,k:int64"}
      items: {type: source, opcodes: any, schema: "item*:int64,k:int64"}
      shelves: {type: source, opcodes: any, schema: "shelf*:int64,k:int64"}
      some: {type: join, kind: inner, conditions: {k: k}, outputs: {k: l_k}}
      all: {type: join, kind: inner, conditions: {k: k}, outputs: {k: l_k}, publish: true}
    edges: [orders -> some as left, items -> some as right, some -> all as left, shelves -> all as right]
"""
STREAM = "q/all"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, PROJECT, ("--runner", "local"))
    yield made
    made.stop()


def test_what_one_event_causes_is_delivered_once_where_the_active_is_killed_in_the_middle(site: Site) -> None:
    """SPEC A27, C2."""
    cluster = site.cluster
    for name in ("e0", "e1"):
        cluster.start_engine(name)
    cluster.wait_ready(TIMEOUT_S)
    with contextlib.closing(SqliteBus(site.folder / "bus.db")) as bus:

        def put_out() -> int:
            progress = bus.progress(cluster.group).get(STREAM)
            return progress.sequence if progress is not None else 0

        for window in ("items", "shelves"):
            _publish(site, window, "".join(f"i,n,{n},7\n" for n in range(ROWS)))
        victim = cluster.wait_active()
        _publish(site, "orders", "i,n,1,7\n")
        wait_until(lambda: put_out() > 0, "the first outputs of the event", TIMEOUT_S)
        victim.kill()
        del cluster.engines[victim.name]
        assert put_out() < OUTPUTS, "it was killed too late to show anything"
        wait_until(lambda: put_out() >= OUTPUTS, "all outputs of the event", TIMEOUT_S)
        _assert_each_once(_all_messages(bus, Partition(outbound_topic(PREFIX, "shop", "q", "all"))))


def _publish(site: Site, window: str, rows: str) -> None:
    file = site.folder / f"{window}.csv"
    file.write_text(rows)
    done = site.run("publish", "--bus", site.bus_url, "--prefix", PREFIX, "--window", f"shop/q/{window}", str(file))
    assert done.returncode == 0, done.stderr


def _all_messages(bus: SqliteBus, place: Partition) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    at, end = bus.begin_offset(place), bus.end_offset(place)
    while at < end:
        messages = bus.read(place, at, messages_max=1_000, bytes_max=1 << 28)
        batches += [decode(message.value) for message in messages]
        at = messages[-1].offset + 1
    return pa.Table.from_batches(batches)


def _assert_each_once(outputs: pa.Table) -> None:
    assert outputs["hs:sequence"].to_numpy().tolist() == list(range(1, OUTPUTS + 1))
    assert outputs["hs:ordinal"].to_numpy().tolist() == list(range(OUTPUTS))
    pairs = outputs["item"].to_numpy() * ROWS + outputs["shelf"].to_numpy()
    assert np.array_equal(np.sort(pairs), np.arange(OUTPUTS))
