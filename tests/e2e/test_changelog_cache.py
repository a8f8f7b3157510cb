"""A group with snapshots in compacted topics of a real broker: the engine's disk holds only a cache, which may be deleted."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from hotspare.bus.contract import Bus, Partition
from hotspare.bus.naming import inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from hotspare.runners.contract import SourceTopic
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.recorder import OutputReader, ReferenceRun
from hotspare.testing.verify import compare_stream
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.site import Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders: {type: source, opcodes: any, schema: 'id*:int64,amount:double,count:int64'}
      kept: {type: copy, publish: true}
      totals:
        type: aggregate
        schema: "count*:int64,n:int64,total:double"
        outputs: {n: ESP_aCount(), total: ESP_aSum(amount)}
        publish: true
    edges: [orders -> kept, kept -> totals]
"""
STREAMS = ("sales/kept", "sales/totals")
KEYS = 20_000


def rows(opcode: str, begin: int, end: int, amount: str) -> str:
    return "".join(f"{opcode},n,{i},{i % 7}.{amount},{i % 50}\n" for i in range(begin, end))


class Watched:
    """The outputs of the group, and the expected ones, from input that is read before it is trimmed."""

    def __init__(self, bus: Bus, prefix: str) -> None:
        plan = compile_plan(load_text(PROJECT).resolved)
        self.inbound = inbound_topic(prefix, "shop", "sales", "orders")
        self.reference = ReferenceRun(bus, plan, Head.from_plan(plan), (SourceTopic(self.inbound),))
        self.readers = {
            stream: OutputReader(bus, outbound_topic(prefix, "shop", *stream.split("/")), plan.stream_schemas[stream])
            for stream in STREAMS
        }

    def is_all_there(self) -> bool:
        self.reference.poll()
        wanted = self.reference.tables()
        for reader in self.readers.values():
            reader.poll()
        return all(reader.rows >= wanted[stream].num_rows for stream, reader in self.readers.items())

    def check(self) -> None:
        for stream, reader in self.readers.items():
            verdict = compare_stream(self.reference.tables()[stream], reader.table())
            assert verdict.is_exact, (stream, verdict)


def test_an_engine_without_its_cache_has_the_same_state(tmp_path: Path, kafka: KafkaServers, zookeeper: ZooKeeperServer) -> None:
    """SPEC G5, Z23, Z24. The engine is killed, its cache deleted, and its input trimmed: the changelog has the state."""
    prefix, cache = tmp_path.name, tmp_path / "cache"
    store_url = f"{kafka.url}/{prefix}-snapshots?cache={cache}"
    site = Site(
        tmp_path,
        project_text=PROJECT,
        bus_url=kafka.url,
        coordination_url=f"{zookeeper.url}/{prefix}",
        store_url=store_url,
        prefix=prefix,
    )
    group = f"{prefix}.shop"
    with closing(open_bus(kafka.url)) as bus:
        try:
            site.start()
            site.publish(rows("i", 0, KEYS, "5"), "first.csv")
            watched = Watched(bus, prefix)
            wait_until(watched.is_all_there, "all outputs", 180, 0.2)
            end = site.wait_for_snapshot()
            site.cluster.engines["one"].kill()
            watched.reference.poll()  # the last ticks too, before they are trimmed
            bus.trim(Partition(watched.inbound), end)
            assert any(each.is_file() for each in cache.rglob("*")), "the engine used it"
            shutil.rmtree(cache)

            engine = site.start()
            assert "starts from" in engine.log.read_text(), engine.log_tail()
            old_rows = rows("u", 0, 500, "25") + rows("d", 500, 700, "5") + rows("u", KEYS - 300, KEYS, "75")
            site.publish(old_rows, "second.csv")
            wait_until(watched.is_all_there, "all outputs of what changes old rows", 180, 0.2)
            watched.check()
            wait_until(lambda: any(each.is_file() for each in cache.rglob("*")), "a cache again", 180, 0.2)
            state = dict(_rows(site, group))
            assert state == dict(_expected())
        finally:
            site.stop()


def _expected() -> list[tuple[str, str]]:
    changed = {i: f"{i % 7}.25" for i in range(500)} | {i: f"{i % 7}.75" for i in range(KEYS - 300, KEYS)}
    return [(str(i), changed.get(i, f"{i % 7}.5")) for i in range(KEYS) if not 500 <= i < 700]


def _rows(site: Site, group: str) -> list[tuple[str, str]]:
    """Returns the rows of the window from a snapshot that is taken now."""
    assert site.run("persist", group, *site.places).returncode == 0
    file = site.folder / "kept.csv"
    done = site.run("state", "export", group, str(file), "--window", "sales/kept", *site.places)
    assert done.returncode == 0, done.stderr
    return [(cells[2], cells[3]) for line in file.read_text().splitlines() if (cells := line.split(","))]
