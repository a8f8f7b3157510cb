"""A group goes on with a changed project, and back, while input comes and engines are killed (SPEC Z4-Z6)."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.bus.naming import inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.engine.head.head import Head
from hotspare.engine.plan import Plan, compile_plan
from hotspare.engine.rows.batch import output_schema
from hotspare.errors import ClusterError
from hotspare.model.load import load_text
from hotspare.runners.contract import SourceTopic
from hotspare.testing.cluster import SpawnedEngine, wait_until
from hotspare.testing.recorder import OutputReader, ReferenceRun
from hotspare.testing.server_process import LOOPBACK
from hotspare.testing.verify import compare_stream
from tests.e2e.site import SOURCE, Site

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

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
      refunds: {type: source, schema: 'id*:int64,amount:double'}
      refunded: {type: copy, publish: true}
    edges: [orders -> kept, orders -> numbered, orders -> short, orders -> large, orders -> recent, refunds -> refunded]
"""
NEWER = """\
import sys
from hotspare.engine import semantics
semantics.SEMANTICS += 1
from hotspare.cli.main import main
sys.exit(main())
"""
UNCHANGED = ("sales/kept", "sales/numbered")
EVENTS, RATE = 60_000, 100
"""More than any run of the test takes: the publisher is stopped at the end."""


def plan(text: str) -> Plan:
    return compile_plan(load_text(text).resolved)


@dataclass
class Shop:
    """Engines of whichever project its file has, and a publisher that goes on whatever happens to them."""

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

    def start(self, text: str) -> None:
        self.site.project.write_text(text)
        for name in ("one", "two"):
            self.site.cluster.start_engine(name)
        self.site.cluster.wait_ready(240)

    def add(self, text: str, *names: str) -> None:
        """Engines of this project, beside those that run."""
        self.site.project.write_text(text)
        for name in names:
            self.site.cluster.start_engine(name)
        self.site.cluster.wait_ready(240)

    def active(self) -> str:
        """Who has the role, once somebody has."""
        wait_until(lambda: self.site.cluster.active() is not None, "an active engine", 60)
        return self.site.cluster.leader().holder

    def newer(self, *arguments: str) -> list[str]:
        """A command of a hotspare whose windows mean something else, as far as it says."""
        return [sys.executable, "-c", NEWER, *arguments, *self.site.services]

    def kill(self, *names: str) -> None:
        for name in names:
            self.site.cluster.engines.pop(name).kill()

    def end(self, publisher: SpawnedEngine) -> None:
        """Stops what still runs, and reads what came of it."""
        publisher.ask_stop()
        assert publisher.wait_stopped(60) == 0, publisher.log_tail()
        engines = self.site.cluster.engines.values()
        for engine in engines:
            engine.ask_stop()
        for engine in engines:
            engine.wait_stopped()
        self.poll()

    def upgrade(self, text: str, *options: str) -> str:
        project = self.site.folder / "changed.yaml"
        project.write_text(text)
        done = self.site.run("upgrade", str(project), *self.site.services, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def poll(self) -> dict[str, OutputReader]:
        topics = self.bus.topics()
        schemas = {**plan(OLD).stream_schemas, **plan(NEW).stream_schemas}
        for stream in (*UNCHANGED, "sales/short", "sales/large", "sales/old", "sales/recent"):
            topic = self.topic(stream)
            reader = self.readers.setdefault(stream, OutputReader(self.bus, topic, output_schema(schemas[stream])))
            if topic in topics:
                reader.poll()
        return self.readers

    def wait_for_more(self, stream: str, count: int) -> None:
        far = self.poll()[stream].rows + count
        wait_until(lambda: self.poll()[stream].rows >= far, f"{count} more outputs of {stream}", 180, poll_s=0.1)

    def reference(self, text: str) -> dict[str, pa.Table]:
        """The uninterrupted run of one project over all that was published, ticks included."""
        project, topics = plan(text), (SourceTopic(inbound_topic(self.site.prefix, "shop", "sales", "orders")),)
        run = ReferenceRun(self.bus, project, Head.of(project), topics)
        run.poll()
        return dict(run.tables())


def _site(folder: Path, request: pytest.FixtureRequest, where: str) -> Site:
    """All in a folder, or on a Kafka broker and a ZooKeeper."""
    options = ("--runner", "local", "--snapshot-interval-ms", "300")
    if where == "embedded":
        return Site(folder, options=options)
    kafka, zookeeper = request.getfixturevalue("kafka"), request.getfixturevalue("zookeeper")
    return Site(folder, options=options, bus_url=kafka.url, coordination_url=f"{zookeeper.url}/{folder.name}", prefix=folder.name)


def check_unchanged(shop: Shop, least: int = 500) -> None:
    expected = shop.reference(OLD)
    for stream in UNCHANGED:
        assert not shop.readers[stream].epochs_fall()
        verdict = compare_stream(expected[stream], shop.readers[stream].table())
        assert (verdict.lost, verdict.doubled, verdict.wrong) == (0, 0, 0), (stream, verdict)
        assert verdict.delivered >= least


def check_changed(shop: Shop) -> None:
    """Numbers without a gap, no input answered twice, each as one of the two projects would have."""
    for stream in ("sales/large", "sales/short", "sales/recent"):
        numbers = shop.readers[stream].table().column("hs:sequence").to_pylist()
        assert numbers == list(range(1, len(numbers) + 1)), stream
    table = shop.readers["sales/large"].table()
    causes = list(zip(*(table.column(f"hs:{name}").to_pylist() for name in ("offset", "index")), strict=True))
    assert causes == sorted(set(causes))
    ids, count = set(table.column("id").to_pylist()), shop.readers["sales/numbered"].rows
    assert {i for i in range(count) if i % 7 > 3} <= ids <= {i for i in range(count) if i % 7 > 1}
    assert len(ids) > len([i for i in range(count) if i % 7 > 3]), "the new project took part"


def test_stopped_engines_go_on_with_a_changed_project_and_back(tmp_path: Path) -> None:
    """SPEC Z6. All are killed, with outputs that nobody had published; so are engines of the changed project."""
    shop = Shop(Site(tmp_path, options=("--runner", "local", "--snapshot-interval-ms", "300")))
    try:
        shop.start(OLD)
        publisher = shop.begin()
        shop.wait_for_more("sales/kept", 500)
        shop.kill("one", "two")
        told = shop.upgrade(NEW, "--dry-run", "--empty")
        assert "begins empty" in told
        shop.upgrade(NEW, "--empty")
        shop.start(NEW)
        shop.wait_for_more("sales/recent", 100)
        active = shop.site.cluster.leader().holder
        shop.kill(active)
        shop.wait_for_more("sales/recent", 100)
        refused = shop.site.run("upgrade", str(shop.site.project), *shop.site.services)
        assert refused.returncode == 0, refused.stderr  # it runs this project already
        shop.site.project.write_text(OLD)
        late = shop.site.run_engine()
        assert late.returncode == 1 and "runs another project" in late.stderr, late.stderr
        shop.kill(*shop.site.cluster.engines)
        shop.upgrade(OLD)
        shop.start(OLD)
        shop.wait_for_more("sales/old", 100)
        shop.end(publisher)
        check_unchanged(shop)
        check_changed(shop)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{shop.site.cluster.account()}") from error
    finally:
        shop.close()


@pytest.mark.parametrize("where", ["embedded", "servers"])
def test_a_changed_project_runs_beside_the_one_before_takes_over_and_gives_back(
    tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    """SPEC Z6, while events come: engines of both projects, the active one killed under each of them, forwards and back."""
    shop = Shop(_site(tmp_path, request, where))
    try:
        shop.start(OLD)
        publisher = shop.begin()
        shop.wait_for_more("sales/kept", 200)
        assert "may start" in shop.upgrade(NEW, "--beside", "--empty")
        shop.add(NEW, "three", "four")
        shop.kill(shop.active())
        shop.wait_for_more("sales/old", 50)
        before = shop.active()
        assert before in ("one", "two"), "before it leads, the changed project has the role only where no other engine lives"
        assert "three" in shop.upgrade(NEW, "--dry-run", "--lead")
        assert f"after {before}" in shop.upgrade(NEW, "--lead")
        shop.wait_for_more("sales/recent", 100)
        shop.kill(shop.active())
        shop.wait_for_more("sales/recent", 50)
        assert shop.active() in ("three", "four")
        shop.upgrade(NEW, "--back")
        shop.wait_for_more("sales/old", 100)
        assert shop.active() == before
        left = next(name for name in ("three", "four") if name in shop.site.cluster.engines)
        ended = shop.site.cluster.engines.pop(left)
        wait_until(lambda: not ended.is_running, "an engine of the project that is left out ends", 60)
        assert "was upgraded" in ended.log_tail()
        shop.end(publisher)
        check_unchanged(shop)
        check_changed(shop)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{shop.site.cluster.account()}") from error
    finally:
        shop.close()


def test_engines_of_two_versions_of_hotspare_take_part_and_the_newer_one_takes_over(tmp_path: Path) -> None:
    """The same project, and a hotspare that says that its windows mean something else: states are kept, every stream goes on."""
    shop = Shop(Site(tmp_path, options=("--runner", "local", "--snapshot-interval-ms", "300")))
    cluster = shop.site.cluster

    def upgraded(*options: str) -> str:
        command = shop.newer("upgrade", str(shop.site.project), *options)
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        shop.site.project.write_text(OLD)
        cluster.start_engine("one")
        cluster.wait_ready(240)
        publisher = shop.begin()
        shop.wait_for_more("sales/kept", 200)
        upgraded("--beside", "--empty")
        run = shop.newer("run", str(shop.site.project), "--engine", "two", *shop.site.options)
        cluster.engines["two"] = cluster._spawn("two", run, LOOPBACK)
        cluster.wait_ready(240)
        assert "two is active" in upgraded("--lead")
        shop.wait_for_more("sales/kept", 200)
        assert "only one" in upgraded("--finish")
        ended = cluster.engines.pop("one")
        wait_until(lambda: not ended.is_running, "the engine of the older version ends", 60)
        shop.end(publisher)
        check_unchanged(shop, 400)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{cluster.account()}") from error
    finally:
        shop.close()
