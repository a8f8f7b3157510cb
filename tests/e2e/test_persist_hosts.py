"""The scenario of the persist-and-restore article across hosts: a broker, a ZooKeeper and two engines, each on a host of its own,
and a folder that both engines' hosts reach. The state has the article's size, 56 MB; what it took is printed (`pytest -s`).
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hotspare.bus.naming import group_name
from hotspare.demo.servers import on_hosts
from hotspare.demo.site import Site
from hotspare.testing.cluster import Cluster, command, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

PREFIX = "hosts"
WIDTH = 3_000
KEYS = 18_000
MISSED = 12_000
"""Events of the outage, which the restored engine catches up with."""
WAIT_S = 180
PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders: {type: source, schema: "id*:int64,kind:int64,text:string,amount:int64", index: empty}
      kept: {type: copy, publish: false}
      totals:
        type: aggregate
        schema: kind*:int64,total:int64,events:int64
        outputs: {total: ESP_aSum(amount), events: ESP_aCountNonNull(amount)}
        publish: true
    edges: [orders -> kept, kept -> totals]
"""
TO_INTESP03, TO_INTESP04 = "engine-1", "engine-2"
"""Names of the hosts."""


@dataclass
class Story:
    """What the article's people type, and where."""

    site: Site
    folder: Path
    cluster: Cluster = field(init=False)
    outputs: Path = field(init=False)
    published: int = 0
    took_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        project = self.folder / "shop.yaml"
        project.write_text(PROJECT)
        self.outputs = self.folder / "totals.csv"
        self.group, self.project = group_name(PREFIX, "shop"), str(project)
        places = {"intesp03": self.site.places[TO_INTESP03], "intesp04": self.site.places[TO_INTESP04]}
        options = ("--runner", "local", "--snapshots", "off", "--store", self.site.store_url)
        self.cluster = Cluster(
            project, self.site.bus_url, self.group, PREFIX, self.folder, options, self.site.coordination_url, places
        )
        self.services = ("--bus", self.site.bus_url, "--coordination", self.site.coordination_url)
        self.everything = (*self.services, "--store", self.site.store_url)

    def said(self, host: str, *arguments: str, statuses: Sequence[int] = (0,)) -> str:
        """A command on one of the hosts, which ends with one of these."""
        full = self.cluster.places[host].command(command(*arguments))
        begin = time.monotonic()
        done = subprocess.run(full, capture_output=True, text=True, cwd=self.folder, timeout=120, check=False)
        self.took_s[f"{arguments[0]} on {host}"] = time.monotonic() - begin
        assert done.returncode in statuses, (done.stdout, done.stderr)
        return done.stdout

    def publish(self, host: str, count: int) -> None:
        rows = (f"p,n,{n % KEYS},{n % 7},{n:0{WIDTH}d},{n}\n" for n in range(self.published, self.published + count))
        file = self.folder / f"from-{self.published}.csv"
        file.write_text("".join(rows))
        self.said(host, "publish", "--bus", self.site.bus_url, "--prefix", PREFIX, "--window", "shop/sales/orders", str(file))
        self.published += count

    def subscribe(self, host: str) -> None:
        """Committed outputs into a file, from now to the end."""
        what = ("--bus", self.site.bus_url, "--prefix", PREFIX, "--window", "shop/sales/totals")
        self.cluster.start_other("subscriber", "subscribe", *what, str(self.outputs), place=self.cluster.places[host])

    def totals(self) -> dict[int, tuple[int, int]]:
        """By kind, as the last committed outputs have them."""
        found: dict[int, tuple[int, int]] = {}
        text = self.outputs.read_text() if self.outputs.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
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
        """What one engine remembers now; the URL of where that is."""
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
            # persist, by the standby, to storage that both hosts reach; nothing is stopped, and no script looks for the standby
            told = story.said("intesp03", "persist", group, "--to", str(shared), *story.everything)
            assert "written by intesp04" in told
            assert cluster.leader().holder == "intesp03"
            (persisted,) = json.loads(story.said("intesp04", "state", "ls", group, "--store", shared.as_uri(), "--json"))["groups"][
                group
            ]
            assert persisted["bytes"] > 50_000_000
            # the active's host fails; the standby goes on, and what comes meanwhile the restored engine will have to catch up with
            cluster.engines["intesp03"].kill()
            site.network.cut(site.places[TO_INTESP03])  # type: ignore[union-attr]
            wait_until(lambda: cluster.leader().holder == "intesp04", "the standby is active", WAIT_S)
            # the host is back: the server without the project's start, and the standby goes on meanwhile
            site.network.mend(site.places[TO_INTESP03])  # type: ignore[union-attr]
            loaded = cluster.start_engine("intesp03", "--start", "asked")
            story.publish("intesp04", MISSED)
            story.wait_told("the standby goes on")
            wait_until(story.waits_for_start, "it is loaded", WAIT_S)
            # restore, start
            named = (story.project, str(shared), "--prefix", PREFIX, *story.everything)
            assert f"{group}: restored; " in story.said("intesp03", "restore", *named)
            begin = time.monotonic()
            story.said("intesp03", "start", group, "intesp03", *story.services)
            wait_until(lambda: "caught up: " in loaded.log.read_text(), "it says that it has caught up", WAIT_S)
            story.took_s["from start to caught up"] = time.monotonic() - begin
            log = loaded.log.read_text()
            assert f"starts from {persisted['name']}" in log
            messages, rate = _caught_up(log)
            assert messages > 0
            assert rate > 0
            # in sync: what the two remember is the same; ticks, which go on, are all that one has read beyond the other
            cluster.wait_ready()
            cluster.wait_caught_up()
            stores = ("--store", story.snapshot("intesp03"), "--other-store", story.snapshot("intesp04"))
            compared = ("newest", "newest", *stores, "--project", story.project)
            differences = story.said("intesp04", "state", "diff", group, *compared, statuses=(0, 1))
            assert f"sales/kept: 0 added, 0 gone, 0 changed, {KEYS} the same" in differences
            assert "stream " not in differences
            # and it takes the role over
            story.said("intesp04", "switchover", group, "--to", "intesp03", *story.services)
            story.publish("intesp04", 1_000)
            story.wait_told("the restored engine goes on")
            assert cluster.leader().holder == "intesp03"
        except BaseException:
            print(cluster.account())
            raise
        finally:
            cluster.stop()
    print(f"\n{persisted['bytes'] / 1e6:.0f} MB; caught up with {messages} messages, {MISSED} events, {rate} messages in a second")
    for what, took_s in story.took_s.items():
        print(f"{took_s:6.2f} s  {what}")


def _caught_up(log: str) -> tuple[int, int]:
    """Messages, and how many in a second."""
    found = re.search(r"caught up: (\d+) messages in ([\d.]+) s", log)
    assert found is not None
    return int(found[1]), round(int(found[1]) / max(0.001, float(found[2])))
