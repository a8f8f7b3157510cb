"""Two projects in a chain, each with a hot spare, while the active engines of both are killed (SPEC K10)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.base.inbound_role import InboundRole
from hotspare.base.shard import WHOLE, Shard
from hotspare.bus.contract import OUTPUTS_HEADER, Bus, Outgoing, Partition
from hotspare.bus.naming import group_name
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.runners.contract import BatchLimits, SourceTopic
from hotspare.runners.local import read_recorded
from hotspare.testing.clocks import ShiftedClock
from hotspare.testing.cluster import Cluster, hotspare_command, wait_until
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.recorder import OutputReader, ReferenceRun
from hotspare.testing.server_process import LOOPBACK
from hotspare.testing.verify import compare_stream
from hotspare.testing.zookeeper_server import ZooKeeperServer
from tests.e2e.prepared import prepared
from tests.e2e.site import LEASE

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
BEFORE = """\
project: before
heartbeat: 200 milliseconds
queries:
  q:
    windows:
      rows: {type: source, opcodes: any, schema: "id*:int64,x:double"}
      recent: {type: copy, retention: {bytime_sliding: 1 second}, publish: true, beats: included}
    edges: [rows -> recent]
"""
BEHIND = """\
project: behind
heartbeat: 200 milliseconds
queries:
  q:
    windows:
      read: {type: source, opcodes: any, schema: "id*:int64,x:double", reads: before/q/recent}
      large: {type: filter, condition: x > 2}
      held: {type: copy, retention: {bytime_sliding: 2 seconds}, publish: true}
    edges: [read -> large, large -> held]
"""
ROUNDS, ROWS, LAST_KEY = 5, 60, 1000
SKEW_S = 5


class Site:
    """Both groups on one bus. `coordination`: the service's URL; "" for the one of the embedded bus. `shards`: those of the first
    project."""

    def __init__(self, folder: Path, url: str, coordination: str = "", runner: str = "local", shards: int = 1) -> None:
        self.folder, self.prefix, self.url, self.shards = folder, folder.name, url, shards
        self.middle, self.last = f"{self.prefix}.before.q.recent.O", f"{self.prefix}.behind.q.held.O"
        self.plans = {name: compile_plan(load_text(text).resolved) for name, text in (("before", BEFORE), ("behind", BEHIND))}
        self.groups: dict[str, Cluster] = {}
        for name, text in (("before", BEFORE), ("behind", BEHIND)):
            project, own = folder / f"{name}.yaml", folder / name
            project.write_text(text)
            own.mkdir()
            options: tuple[str, ...] = (
                *LEASE,
                "--runner",
                runner,
                "--snapshots",
                "300 milliseconds",
                "--store",
                (folder / "snapshots").as_uri(),
            )
            divided = name == "before" and shards > 1
            options += ("--shards", str(shards)) if divided else ()
            group = group_name(self.prefix, name, Shard(0, shards) if divided else WHOLE)
            self.groups[name] = Cluster(
                project, url, group, self.prefix, own, options, coordination_url=coordination, launcher=prepared
            )

    def start(self, group: str, *engines: str) -> None:
        for engine in engines:
            self.groups[group].start_engine(engine)
        self.groups[group].wait_ready(120)

    def publish(self, turn: int, rows_text: str = "") -> None:
        """Publishes rows with repeated keys, so that rows change as well as appear and disappear."""
        rows, numbers = self.folder / f"rows-{turn}.csv", range(turn * ROWS, (turn + 1) * ROWS)
        rows.write_text(rows_text or "".join(f"p,n,{n % 37},{(n * 7 + turn) % 5}\n" for n in numbers))
        arguments = hotspare_command("publish", "--bus", self.url, "--prefix", self.prefix, "--window", "before/q/rows", str(rows))
        subprocess.run(arguments, check=True, capture_output=True, timeout=120, cwd=self.folder)

    def kill(self, group: str) -> None:
        """Kills the active engine; then an engine of the same name joins."""
        cluster = self.groups[group]
        active = cluster.wait_active()
        active.kill()
        self.start(group, active.name)

    def stop(self) -> None:
        for cluster in self.groups.values():
            cluster.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, f"sqlite:///{tmp_path / 'bus.db'}")
    yield made
    made.stop()


def digests(bus: Bus, plan: Plan, topic: SourceTopic, stream: str) -> dict[int, int]:
    """Returns the digests of the uninterrupted run, by sequence, including beats."""
    pipeline, found = Pipeline.fresh(plan, shard=topic.shard or 0), dict[int, int]()
    pipeline.set_partitions([(0, number) for number in topic.numbers])
    for decoded in read_recorded(bus, (topic,), Head.from_plan(plan, shards=topic.partitions), BatchLimits()):
        rows = pipeline.feed(decoded).get(stream)
        if rows is not None:
            found |= dict(zip(rows["hs:sequence"].to_pylist(), rows["hs:digest"].to_pylist(), strict=True))
    return found


def committed(bus: Bus, topic: str, shard: int = 0) -> list[tuple[int, int, int]]:
    """Returns first and last sequence of each message, and the digest up to it."""
    said, offset = list[list[bytes]](), 0
    while messages := bus.read(Partition(topic, shard), offset, messages_max=10_000, bytes_max=1 << 24):
        said += [(message.header(OUTPUTS_HEADER) or b"").split() for message in messages]
        offset = messages[-1].offset + 1
    return [(int(each[0]), int(each[1]), int(each[2])) for each in said]


def test_kills_of_both_lose_double_and_change_nothing_k10(site: Site) -> None:
    """SPEC K10: the first commits its uninterrupted run with all beats, the second the uninterrupted run over that."""
    site.start("before", "a", "b")
    site.start("behind", "c", "d")
    for turn in range(ROUNDS):
        site.publish(turn)
        if turn in (1, 3):
            site.kill("before")
        if turn in (2, 3):
            site.kill("behind")
    check(site)


def test_kills_beside_brokers_whose_clocks_are_five_seconds_apart_change_nothing_k10(
    tmp_path: Path, zookeeper: ZooKeeperServer, clocks_can_be_wrong: None
) -> None:
    """SPEC K10, on Kafka. The first project is divided, and its topics' two partitions are led by different brokers."""
    with KafkaServers.start(tmp_path / "servers", places=(LOOPBACK, ShiftedClock(-SKEW_S))) as kafka:
        site = Site(tmp_path, kafka.url, f"{zookeeper.url}/{tmp_path.name}", shards=2)
        try:
            site.start("before", "a", "b")
            site.start("behind", "c", "d")
            for turn, struck in enumerate(("behind", "before")):
                site.publish(turn)
                site.kill(struck)
            check(site)
            bus = open_bus(kafka.url)
            apart_us = clocks_apart_us(bus, f"{site.prefix}.before.q.rows.I")
            bus.close()
        finally:
            site.stop()
    assert apart_us > (SKEW_S - 1) * 1_000_000, "their clocks are apart"


def clocks_apart_us(bus: Bus, topic: str) -> int:
    """Returns an upper bound of the difference between the clocks of the partitions' brokers: appends one message there, here, and
    there again, so that the time between two adds to it, whichever clock is ahead."""
    times = []
    for place in (Partition(topic, number) for number in (0, 1, 0)):
        at = bus.append(place, [Outgoing(b"now")])
        (found,) = bus.read(place, at, messages_max=1, bytes_max=1 << 20, wait_ms=20_000)
        times.append(found.append_time_us)
    return max(times[1] - times[0], times[2] - times[1])


@pytest.mark.spark
def test_spark_reads_the_stream_of_a_project_that_spark_runs_k10(tmp_path: Path) -> None:
    """SPEC K10: the same with the runner `ordered`. The first project has no spare, and restarts from its snapshot."""
    site = Site(tmp_path, f"sqlite:///{tmp_path / 'bus.db'}", runner="ordered")
    try:
        site.start("before", "a")
        site.start("behind", "c", "d")
        for turn, struck in enumerate(("before", "behind")):
            site.publish(turn)
            site.kill(struck)
        check(site)
    finally:
        site.stop()


def check(site: Site) -> None:
    """Waits for the last outputs and compares the topics with the uninterrupted runs. Engines end."""
    bus = open_bus(site.url)
    reader = OutputReader(bus, site.last, site.plans["behind"].stream_schemas["q/held"])

    site.publish(ROUNDS, f"i,n,{LAST_KEY},9\n")

    def has_evicted() -> bool:
        reader.poll()
        return reader.table()["id"].to_pylist().count(LAST_KEY) == 2

    wait_until(has_evicted, "the last row to have left the window behind by its age", 180, 0.2)
    site.groups["before"].stop()

    topic = SourceTopic(site.middle, site.shards, kind=InboundRole.OUTPUTS)
    reference = ReferenceRun(bus, site.plans["behind"], Head.from_plan(site.plans["behind"]), (topic,))
    reference.poll()

    def is_through() -> bool:
        reader.poll()
        return reader.rows >= reference.rows

    wait_until(is_through, "all that the one before put out last to be through", 180, 0.2)
    site.groups["behind"].stop()
    reader.poll()

    for shard in range(site.shards):
        spans = committed(bus, site.middle, shard)
        assert [first for first, _, _ in spans] == [1, *(last + 1 for _, last, _ in spans[:-1])], "no output and no beat twice"
        read = SourceTopic(f"{site.prefix}.before.q.rows.I", site.shards, shard=shard if site.shards > 1 else None)
        quiet = digests(bus, site.plans["before"], read, "q/recent")
        assert all(quiet[last] == digest for _, last, digest in spans)
    verdict = compare_stream(reference.tables()["q/held"], reader.table())
    assert verdict.is_exact, verdict
    assert verdict.delivered > ROWS
    assert f"{site.prefix}.behind.q.read.I" not in bus.topics()
    bus.close()
