"""The scenario of the persist-and-restore article, step by step, as commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotspare.ha.rules.roles import Role
from hotspare.stores.open import open_store
from hotspare.testing.cluster import wait_until
from tests.e2e.site import PATIENT, PREFIX, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

OPTIONS = ("--runner", "local", "--snapshots", "off", *PATIENT)


def rows(begin: int, end: int) -> str:
    return "".join(f"i,n,{i},{i % 7},1\n" for i in range(begin, end))


def status(site: Site) -> Any:
    done = site.run("status", "--bus", site.bus_url, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["groups"][0]


def said(site: Site, *arguments: str) -> str:
    done = site.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_persist_from_a_spare_and_restore_on_the_engine_that_failed(tmp_path: Path) -> None:
    """SPEC H1, H2, H3, H6, H8, H13, Z4-Z6."""
    site, group, shared = Site(tmp_path, options=OPTIONS), f"{PREFIX}.shop", tmp_path / "shared"
    bus = ("--bus", site.bus_url)
    try:
        # three servers in the article, two here: intesp03 is active, intesp04 its standby
        site.start("intesp03")
        site.start("intesp04")
        site.publish(rows(0, 30), "first.csv")
        site.wait_for_outputs(30)
        # the standby persists, to storage that both reach; nothing is stopped, and no command looks for the standby. The active
        # engine knows the standby a moment after it has joined
        before, persist = site.cluster.leader(), ("persist", group, "--to", str(shared), "--keep", "1", *bus)
        wait_until(lambda: "written by intesp04" in said(site, *persist), "the standby persists")
        assert (site.cluster.leader().holder, site.cluster.leader().epoch) == (before.holder, before.epoch) == ("intesp03", 1)
        done = status(site)["persisted"]
        assert (done["engine"], done["failure"], done["bytes"] > 0) == ("intesp04", None, True)
        listed = said(site, "state", "ls", group, "--store", shared.as_uri())
        assert done["name"][:40] in listed
        assert [info.name for info in open_store(shared.as_uri()).list(group)] == [done["name"]]
        # the active fails, the standby takes over, and input goes on
        site.cluster.engines["intesp03"].kill()
        wait_until(lambda: site.cluster.leader().holder == "intesp04", "the standby is active")
        site.publish(rows(30, 60), "second.csv")
        site.wait_for_outputs(60)
        # restore, in the steps of the article: load without start, restore, start; connectors follow the active role by themselves
        loaded = site.cluster.start_engine("intesp03", "--start", "asked")
        wait_until(lambda: _waits(site, group), "it is loaded")
        checked = said(site, "restore", str(site.project), str(shared), "--check", "--prefix", PREFIX, *bus)
        assert "messages to catch up with" in checked
        assert status(site)["snapshots"] == []
        restored = said(site, "restore", str(site.project), str(shared), "--prefix", PREFIX, *bus)
        assert f"{group}: restored; " in restored
        said(site, "start", group, "intesp03", *bus)
        site.cluster.wait_ready()
        assert f"starts from {done['name']}" in loaded.log.read_text()
        wait_until(lambda: "caught up: " in loaded.log.read_text(), "it says that it has caught up")
        # it is in sync: it takes the role over, and the outputs are as without a failure
        said(site, "switchover", group, "--to", "intesp03", *bus)
        site.publish(rows(60, 90), "third.csv")
        found = [row.split(",")[2].strip() for row in site.wait_for_outputs(90)]
        assert found == [str(i) for i in range(90)]
        # a command on any host stops engines; if no engine is left, the stored snapshot is copied
        for name in ("intesp04", "intesp03"):
            said(site, "stop", group, name, *bus)
            assert site.cluster.engines[name].wait_stopped() == 0
        copied = said(site, "persist", group, "--to", str(tmp_path / "copy"), *bus)
        assert "no engine runs" in copied
    finally:
        site.stop()


def _waits(site: Site, group: str) -> bool:
    return any("waits_for_start" in m.detail for m in site.cluster.coordination.members(group))


def test_a_project_that_names_a_persisted_state_starts_from_it(tmp_path: Path) -> None:
    """SPEC H7."""
    site, group, shared = Site(tmp_path, options=OPTIONS), f"{PREFIX}.shop", tmp_path / "shared"
    try:
        site.start("one")
        site.publish(rows(0, 40))
        site.wait_for_outputs(40)
        said(site, "persist", group, "--to", str(shared), "--bus", site.bus_url)
        site.project.write_text(f"restore: {shared}\n" + site.project.read_text())
        second = site.start("two")
        name = status(site)["persisted"]["name"]
        assert f"starts from {name}" in second.log.read_text()
        wait_until(lambda: {e["role"] for e in status(site)["engines"]} == {Role.ACTIVE.value, Role.STANDBY.value}, "both")
        said(site, "switchover", group, "--to", "two", "--bus", site.bus_url)
        site.publish(rows(40, 60), "more.csv")
        assert len(site.wait_for_outputs(60)) == 60
    finally:
        site.stop()
