"""The scenario of the persist-and-restore article across hosts: a broker, a ZooKeeper and two engines, each on a host of its own,
and a folder that both engines' hosts reach. The state has the article's size, 56 MB. The duration of each step is printed (`pytest
-s`), and listed in docs/state.md next to the article's."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hotspare.bus.contract import Bus, Partition
from hotspare.bus.naming import group_name, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.demo.servers import on_hosts
from hotspare.demo.site import Site
from hotspare.testing.cluster import Cluster, hotspare_command, wait_until
from tests.e2e.site import PATIENT, whole_lines

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

PREFIX = "hosts"
WIDTH = 3_000
KEYS = 18_000
MEANWHILE, RATE = 1_600, 200
"""The events published while the standby persists, and their rate per second."""
MISSED = 12_000
"""The events of the outage, which the restored engine catches up with."""
WAIT_S = 180
PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders: {type: source, opcodes: any, schema: "id*:int64,kind:int64,text:string,amount:int64", index: empty}
      kept: {type: copy, publish: false}
      totals:
        type: aggregate
        schema: kind*:int64,total:int64,events:int64
        outputs: {total: ESP_aSum(amount), events: ESP_aCountNonNull(amount)}
        publish: true
    edges: [orders -> kept, kept -> totals]
"""
TO_INTESP03, TO_INTESP04 = "engine-1", "engine-2"
"""The names of the hosts."""


@dataclass
class Story:
    """The article's commands, each run on its host."""

    site: Site
    folder: Path
    cluster: Cluster = field(init=False)
    outputs: Path = field(init=False)
    bus: Bus = field(init=False)
    published: int = 0
    took_s: list[tuple[str, float]] = field(default_factory=list)
    """Step names and their durations, in order."""

    def __post_init__(self) -> None:
        project = self.folder / "shop.yaml"
        project.write_text(PROJECT)
        self.outputs = self.folder / "totals.csv"
        self.group, self.project = group_name(PREFIX, "shop"), str(project)
        places = {"intesp03": self.site.places[TO_INTESP03], "intesp04": self.site.places[TO_INTESP04]}
        # a role that moves because a busy machine stalls would make the standby the active
        options = ("--runner", "local", "--snapshots", "off", *PATIENT, "--store", self.site.store_url)
        self.cluster = Cluster(
            project, self.site.bus_url, self.group, PREFIX, self.folder, options, self.site.coordination_url, places
        )
        self.bus = open_bus(self.site.bus_url)
        self.services = ("--bus", self.site.bus_url, "--coordination", self.site.coordination_url)
        self.everything = (*self.services, "--store", self.site.store_url)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self.took_s.append((what, time.monotonic() - begin))

    def said(self, host: str, *arguments: str, statuses: Sequence[int] = (0,)) -> str:
        """Runs a command on a host; its exit status must be one of `statuses`. Returns the output."""
        full = self.cluster.places[host].command(hotspare_command(*arguments))
        done = subprocess.run(full, capture_output=True, text=True, cwd=self.folder, timeout=120, check=False)
        assert done.returncode in statuses, (done.stdout, done.stderr)
        return done.stdout

    def publish(self, host: str, count: int) -> None:
        self.said(host, *self._publishing(count))

    def begin_publishing(self, host: str, count: int) -> None:
        """Starts to publish at an even rate, while other steps run."""
        told = (*self._publishing(count), "--rate", str(RATE))
        self.cluster.start_other("publisher", *told, place=self.cluster.places[host])

    def _publishing(self, count: int) -> tuple[str, ...]:
        rows = (f"p,n,{n % KEYS},{n % 7},{n:0{WIDTH}d},{n}\n" for n in range(self.published, self.published + count))
        file = self.folder / f"from-{self.published}.csv"
        file.write_text("".join(rows))
        self.published += count
        return ("publish", "--bus", self.site.bus_url, "--prefix", PREFIX, "--window", "shop/sales/orders", str(file))

    def committed_us(self) -> list[int]:
        """Returns the commit time of each message of outputs, in microseconds."""
        bus, place = self.bus, Partition(outbound_topic(PREFIX, "shop", "sales", "totals"))
        found: list[int] = []
        offset = bus.begin_offset(place)
        while batch := bus.read(place, offset, messages_max=10_000, bytes_max=1 << 24):
            found += [message.append_time_us for message in batch]
            offset = batch[-1].offset + 1
        return found

    def subscribe(self, host: str) -> None:
        """Writes committed outputs into a file, from now to the end."""
        what = ("--bus", self.site.bus_url, "--prefix", PREFIX, "--window", "shop/sales/totals")
        self.cluster.start_other("subscriber", "subscribe", *what, str(self.outputs), place=self.cluster.places[host])

    def persisted_under_load(self, to: Path) -> tuple[str, str]:
        """Returns the output of the command, and the longest gap between outputs meanwhile."""
        self.begin_publishing("intesp03", MEANWHILE)
        before = len(self.committed_us())
        wait_until(lambda: len(self.committed_us()) > before, "events come all the time", WAIT_S)
        begin_us = time.time_ns() // 1_000
        told: list[str] = []

        def by_the_standby() -> bool:
            """Whether the standby wrote it: an active engine that does not know its standby yet writes it itself."""
            told[:] = [self.said("intesp03", "persist", self.group, "--to", str(to), *self.everything)]
            return "written by intesp04" in told[0]

        with self.step("persist, by the standby"):
            wait_until(by_the_standby, "the standby persists", WAIT_S)
        end_us = time.time_ns() // 1_000
        self.wait_told("all is committed that came meanwhile")
        times_us = [time_us for time_us in sorted(self.committed_us()) if begin_us <= time_us <= end_us]
        longest_us = max((after - before for before, after in itertools.pairwise(times_us)), default=0)
        gaps = f"{len(times_us)} messages of outputs while it persists, the longest time between two {longest_us / 1e3:.0f} ms"
        return told[0].strip(), gaps

    def totals(self) -> dict[int, tuple[int, int]]:
        """Returns total and count by kind, from the last committed outputs."""
        found: dict[int, tuple[int, int]] = {}
        for line in whole_lines(self.outputs):
            opcode, _, kind, total, events = line.split(",")
            if opcode.upper() != "D":
                found[int(kind)] = (int(total), int(events))
        return found

    def expected(self) -> dict[int, tuple[int, int]]:
        newest = {n % KEYS: n for n in range(self.published)}
        kinds = {kind: [n for n in newest.values() if n % 7 == kind] for kind in range(7)}
        return {kind: (sum(found), len(found)) for kind, found in kinds.items() if found}

    def wait_told(self, what: str) -> None:
        expected = self.expected()
        wait_until(lambda: self.totals() == expected, what, WAIT_S, 0.2)

    def waits_for_start(self) -> bool:
        return any("waits_for_start" in member.detail for member in self.cluster.members().values())

    def snapshot(self, engine: str) -> str:
        """Persists the state of one engine; returns the URL of the copy."""
        to = self.folder / f"of-{engine}"
        told = self.said(engine, "persist", self.group, "--to", str(to), "--by", engine, *self.everything)
        assert f"written by {engine}" in told
        return to.as_uri()


def test_state_moves_between_hosts_step_by_step(hosts_can_be_made: None, tmp_path: Path) -> None:
    """SPEC H1-H4, H6, H8, H9, H13, Z4-Z6."""
    shared = tmp_path / "failover"
    with on_hosts(tmp_path, engines=2) as site:
        story = Story(site, tmp_path)
        cluster, group = story.cluster, story.group
        try:
            # intesp03 is active, intesp04 its standby
            cluster.start_engine("intesp03")
            cluster.wait_ready()
            cluster.start_engine("intesp04")
            story.subscribe("intesp04")
            story.publish("intesp03", KEYS)
            cluster.wait_ready()
            story.wait_told("all is committed")
            cluster.wait_caught_up()
            # the standby persists, to storage that both hosts reach; nothing is stopped, and no script looks for the standby
            told, gaps = story.persisted_under_load(shared)
            assert cluster.leader().holder == "intesp03"
            listed = json.loads(story.said("intesp04", "state", "ls", group, "--store", shared.as_uri(), "--json"))["groups"][group]
            (persisted,) = (each for each in listed if f"snapshot {each['name']} " in told)
            assert persisted["bytes"] > 50_000_000
            # the active's host fails; the standby goes on, and the restored engine will have to catch up with the new input
            with story.step("the active's host fails: until the standby is active"):
                cluster.engines["intesp03"].kill()
                site.network.cut_links(site.places[TO_INTESP03])  # type: ignore[union-attr]
                wait_until(lambda: cluster.leader().holder == "intesp04", "the standby is active", WAIT_S)
            # the host is back: the server loads the project without starting it, and the standby goes on meanwhile
            site.network.remove_faults(site.places[TO_INTESP03])  # type: ignore[union-attr]
            with story.step(f"the standby publishes {MISSED} events; beside it the server starts, and loads the project"):
                loaded = cluster.start_engine("intesp03", "--start", "asked")
                story.publish("intesp04", MISSED)
                story.wait_told("the standby goes on")
                wait_until(story.waits_for_start, "it is loaded", WAIT_S)
            # restore, start
            named = (story.project, str(shared), "--prefix", PREFIX, *story.everything)
            with story.step("restore"):
                assert f"{group}: restored; " in story.said("intesp03", "restore", *named)
            with story.step("start the project and its connectors, until it has caught up"):
                story.said("intesp03", "start", group, "intesp03", *story.services)
                wait_until(lambda: "caught up: " in loaded.log.read_text(), "it says that it has caught up", WAIT_S)
            log = loaded.log.read_text()
            assert f"starts from {persisted['name']}" in log
            messages, caught_up_s = _await_caught_up(log)
            assert messages > 0
            # in sync: both states are equal, except for ticks that only one engine has read, because ticks go on
            cluster.wait_ready()
            cluster.wait_caught_up()
            stores = ("--store", story.snapshot("intesp03"), "--other-store", story.snapshot("intesp04"))
            compared = ("newest", "newest", *stores, "--project", story.project)
            differences = story.said("intesp04", "state", "diff", group, *compared, statuses=(0, 1))
            assert f"sales/kept: 0 added, 0 gone, 0 changed, {KEYS} the same" in differences
            assert "stream " not in differences
            # and it takes the role over
            with story.step("the role goes back to it (switchover)"):
                story.said("intesp04", "switchover", group, "--to", "intesp03", *story.services)
            story.publish("intesp04", 1_000)
            story.wait_told("the restored engine goes on")
            assert cluster.leader().holder == "intesp03"
        except BaseException:
            print(cluster.state_report())
            raise
        finally:
            cluster.stop()
            story.bus.close()
    print(f"\n{persisted['bytes'] / 1e6:.0f} MB; {told}\n{gaps}")
    print(f"caught up with {messages} messages of {MISSED} events in {caught_up_s} s")
    for what, took_s in story.took_s:
        print(f"{took_s:6.2f} s  {what}")


def _await_caught_up(log: str) -> tuple[int, float]:
    """Returns the number of messages and the seconds from the log."""
    found = re.search(r"caught up: (\d+) messages in ([\d.]+) s", log)
    assert found is not None
    return int(found[1]), float(found[2])
