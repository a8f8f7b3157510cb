"""A shop whose project changes while input arrives, for end-to-end tests: two projects, engines of both, and the checks of their
combined outputs (SPEC Z6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pyarrow as pa

from hotspare.bus.naming import inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.runners.contract import SourceTopic
from hotspare.testing.cluster import SpawnedEngine, wait_until
from hotspare.testing.recorder import OutputReader, ReferenceRun
from hotspare.testing.verify import DeliveryVerdict, compare_stream
from tests.cli.running import hotspare_here
from tests.e2e.prepared import PreparedProcess
from tests.e2e.site import SOURCE, Site

OLD = """\
project: shop
queries:
  sales:
    windows:
      orders: {type: source, schema: 'id*:int64,amount:double,count:int64', opcodes: insert-only, index: empty}
      kept: {type: copy, retention: {bycount_sliding: 100}, publish: true}
      numbered: {type: functional, schema: 'id*:int64,n:int64', functions: {n: eventCounter()}, publish: true}
      short: {type: copy, retention: {bytime_sliding: 2 seconds}, publish: true}
      large: {type: filter, condition: amount > 3, publish: true}
      old: {type: filter, condition: amount > 2, publish: true}
    edges: [orders -> kept, orders -> numbered, orders -> short, orders -> large, orders -> old]
"""
NEW = """\
project: shop
queries:
  sales:
    windows:
      orders: {type: source, schema: 'id*:int64,amount:double,count:int64', opcodes: insert-only, index: empty}
      kept: {type: copy, retention: {bycount_sliding: 100}, publish: true}
      numbered: {type: functional, schema: 'id*:int64,n:int64', functions: {n: eventCounter()}, publish: true}
      short: {type: copy, retention: {bytime_sliding: 2 seconds}, publish: true}
      large: {type: filter, condition: amount > 1, publish: true}
      recent: {type: copy, retention: {bycount_sliding: 10}, publish: true}
      refunds: {type: source, opcodes: any, schema: 'id*:int64,amount:double'}
      refunded: {type: copy, publish: true}
    edges: [orders -> kept, orders -> numbered, orders -> short, orders -> large, orders -> recent, refunds -> refunded]
"""
UNCHANGED = ("sales/kept", "sales/numbered")
EVENTS, RATE = 60_000, 100
"""More events than any run of the test publishes: the publisher is stopped at the end."""


@cache
def plan(text: str) -> Plan:
    return compile_plan(load_text(text).resolved)


@dataclass
class Shop:
    """Engines of the project in their file, and a publisher that keeps running while they are killed."""

    site: Site
    readers: dict[str, OutputReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bus = open_bus(self.site.bus_url)

    def close(self) -> None:
        self.site.stop()
        self.bus.close()

    def topic(self, stream: str) -> str:
        return outbound_topic(self.site.prefix, "shop", *stream.split("/"))

    def begin(self) -> SpawnedEngine:
        file = self.site.folder / "orders.csv"
        file.write_text("".join(f"i,n,{i},{i % 7},1\n" for i in range(EVENTS)))
        window = ("--bus", self.site.bus_url, "--prefix", self.site.prefix, "--window", SOURCE)
        return self.site.cluster.start_other("publisher", "publish", *window, "--rate", str(RATE), str(file))

    def start(self, text: str, *names: str) -> None:
        """Starts engines of this project next to the running ones, and waits until they are ready."""
        for name in names:
            self.begin_engine(text, name)
        self.site.cluster.wait_ready(240)

    def begin_engine(self, text: str, name: str) -> SpawnedEngine:
        """Starts an engine with a project file of its own, because engines of two projects run concurrently."""
        self.site.cluster.project = self.site.folder / f"{name}.yaml"
        self.site.cluster.project.write_text(text)
        return self.site.cluster.start_engine(name)

    def active(self) -> str:
        """Waits for an active engine and returns its name."""
        return self.site.cluster.wait_active().name

    def kill(self, *names: str) -> None:
        for name in names:
            self.site.cluster.engines.pop(name).kill()

    def end(self, publisher: SpawnedEngine) -> None:
        """Stops the publisher, then the engines once all input is answered, and reads the outputs."""
        publisher.request_stop()
        assert (publisher.wait_stopped(), "stopped before the end" in publisher.log_tail()) == (1, True), publisher.log_tail()
        came = self.reference(OLD)["sales/numbered"].num_rows
        wait_until(lambda: self.poll()["sales/numbered"].rows >= came, f"{came} outputs of sales/numbered", 180, poll_s=0.1)
        engines = self.site.cluster.engines.values()
        for engine in engines:
            engine.request_stop()
        for engine in engines:
            engine.wait_stopped()
        self.poll()

    def upgrade(self, text: str, *options: str) -> str:
        done = hotspare_here("upgrade", self._changed(text), *self.site.services, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin_upgrade(self, text: str, *options: str) -> SpawnedEngine:
        """Starts the upgrade command as a process that may be killed; its log shows the output at once."""
        cluster = self.site.cluster
        log = cluster.next_log("upgrade")
        process = PreparedProcess(("upgrade", str(self._changed(text)), *self.site.services, *options), Path.cwd(), log)
        cluster.others.append(cluster.track_process(SpawnedEngine("upgrade", process, log, cluster.watch)))
        return cluster.others[-1]

    def _changed(self, text: str) -> Path:
        project = self.site.folder / "changed.yaml"
        project.write_text(text)
        return project

    def poll(self) -> dict[str, OutputReader]:
        topics = self.bus.topics()
        schemas = {**plan(OLD).stream_schemas, **plan(NEW).stream_schemas}
        for stream in (*UNCHANGED, "sales/short", "sales/large", "sales/old", "sales/recent"):
            topic = self.topic(stream)
            reader = self.readers.setdefault(stream, OutputReader(self.bus, topic, schemas[stream]))
            if topic in topics:
                reader.poll()
        return self.readers

    def wait_for_more(self, stream: str, count: int) -> None:
        far = self.poll()[stream].rows + count
        wait_until(lambda: self.poll()[stream].rows >= far, f"{count} more outputs of {stream}", 180, poll_s=0.1)

    def reference(self, text: str) -> dict[str, pa.Table]:
        """Returns the outputs of an uninterrupted run of one project over all published messages, ticks included."""
        project, topics = plan(text), (SourceTopic(inbound_topic(self.site.prefix, "shop", "sales", "orders")),)
        run = ReferenceRun(self.bus, project, Head.from_plan(project), topics)
        run.poll()
        return dict(run.tables())


def verdicts(shop: Shop) -> Mapping[str, DeliveryVerdict]:
    """Compares the streams that are equal in both projects with the uninterrupted run."""
    expected = shop.reference(OLD)
    return {stream: compare_stream(expected[stream], shop.readers[stream].table()) for stream in UNCHANGED}


def check_unchanged(shop: Shop, least: int = 500) -> None:
    for stream, verdict in verdicts(shop).items():
        assert not shop.readers[stream].has_epoch_regression()
        assert verdict.is_exact, (stream, verdict)
        assert verdict.delivered >= least


def check_changed(shop: Shop) -> None:
    """Checks that sequences have no gap and no input is answered twice, and that each answer is that of one of the two projects."""
    for stream in ("sales/large", "sales/short", "sales/recent"):
        numbers = shop.readers[stream].table().column("hs:sequence").to_pylist()
        assert numbers == list(range(1, len(numbers) + 1)), stream
    table = shop.readers["sales/large"].table()
    causes = list(zip(*(table.column(f"hs:{name}").to_pylist() for name in ("offset", "index")), strict=True))
    assert causes == sorted(set(causes))
    ids, count = set(table.column("id").to_pylist()), shop.readers["sales/numbered"].rows
    assert {i for i in range(count) if i % 7 > 3} <= ids <= {i for i in range(count) if i % 7 > 1}
    assert len(ids) > len([i for i in range(count) if i % 7 > 3]), "the new project took part"
