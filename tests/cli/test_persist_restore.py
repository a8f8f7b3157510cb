"""`hotspare persist` and `restore` without running engines, and their refusals (SPEC H2, H6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hotspare.base.errors import StateError, UsageError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.flow.snapshot_content import header_facts
from hotspare.ha.effects.joining import agreed_project
from hotspare.ha.effects.restoring import RestoreTarget
from hotspare.host.definition import project_identity
from hotspare.host.restoring import destinations, restore_named, store_url
from hotspare.projects.load import load_text
from hotspare.stores.contract import SnapshotStatus, Store
from hotspare.stores.open import default_store_url, open_store
from tests.cli.kept import GROUP, PROJECT, case, put_snapshots
from tests.cli.running import hotspare_here

TOPICS = ("hotspare.shop.q.orders.I", "hotspare.shop.q.items.I")
READ = (5, 3)
"""The number of messages of each topic that the newer snapshot has read."""


@pytest.fixture
def bus(tmp_path: Path) -> str:
    """Returns the bus of a group that has ended: its facts, its snapshots, and more input than these have read."""
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    opened = open_bus(url)
    for topic, count in zip(TOPICS, READ, strict=True):
        opened.create_topic(topic)
        opened.append(Partition(topic), [Outgoing(b"")] * (count + 10))
    opened.close()
    coordination = open_coordination(default_coordination_url(url))
    agreed_project(coordination, GROUP, project_identity(load_text(PROJECT).project, case().plan))
    coordination.close()
    put_snapshots(open_store(default_store_url(url)))
    return url


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(PROJECT)
    return path


def names(store: str) -> list[str]:
    return [info.name for info in open_store(store).list(GROUP) if info.status is SnapshotStatus.CONFIRMED]


def test_the_newest_snapshot_of_a_group_that_has_ended_is_copied_with_its_project(bus: str, tmp_path: Path) -> None:
    done = hotspare_here("persist", GROUP, "--to", tmp_path / "shared", "--bus", bus)
    assert (done.returncode, "0002-e at position 2, is copied to file://" in done.stdout) == (0, True), done.stderr
    store = (tmp_path / "shared").as_uri()
    assert names(store) == ["0002-e"]
    extra = header_facts(open_store(store).get(GROUP, "0002-e").header).extra
    assert extra["persisted"]["group"] == GROUP
    assert "project: shop" in extra["document"]
    shown = hotspare_here("state", "show", GROUP, "--store", store, "--window", "q/orders", "--json")
    assert json.loads(shown.stdout)["rows_total"] == 3, "the project need not be said"
    assert "add --to PATH" in hotspare_here("persist", GROUP, "--bus", bus).stderr
    assert "--keep has an effect only with --to" in hotspare_here("persist", GROUP, "--keep", 2, "--bus", bus).stderr
    opened = open_store(store)
    for name in ("one", "two"):
        opened.write_candidate(GROUP, name, "e", 10**9, b"{}", [])
        opened.confirm(GROUP, name)
    opened.discard(GROUP, "0002-e")
    done = hotspare_here("persist", GROUP, "--to", tmp_path / "shared", "--keep", 2, "--bus", bus)
    assert (done.returncode, sorted(names(store))) == (0, ["0002-e", "two"]), done.stderr


def test_a_restore_says_the_numbers_first_and_only_then_takes_it_over(bus: str, project: Path, tmp_path: Path) -> None:
    """SPEC H9: a refused restore changes nothing."""
    hotspare_here("persist", GROUP, "--to", tmp_path / "shared", "--bus", bus)
    open_store(default_store_url(bus)).discard_group(GROUP)
    given = ("restore", project, tmp_path / "shared", "--bus", bus)
    checked = hotspare_here(*given, "--check")
    assert "the bus holds offsets 0 to 14, the snapshot continues at 5: 10 messages to catch up with" in checked.stdout
    assert "the bus holds offsets 0 to 12, the snapshot continues at 3: 10 messages to catch up with" in checked.stdout
    assert (checked.returncode, "0 are committed on this bus" in checked.stderr) == (1, True), "the group never published here"
    assert names(default_store_url(bus)) == []
    lost = hotspare_here(*given)
    assert (lost.returncode, names(default_store_url(bus))) == (1, [])


def test_messages_that_are_gone_are_counted(bus: str, project: Path, tmp_path: Path) -> None:
    """SPEC H9: rule 1, with the offset that the topic must hold."""
    hotspare_here("persist", GROUP, "--to", tmp_path / "shared", "--bus", bus)
    opened = open_bus(bus)
    opened.trim(Partition(TOPICS[0]), 9)
    opened.close()
    done = hotspare_here("restore", project, tmp_path / "shared", "--bus", bus)
    assert (done.returncode, "HS-0303" in done.stderr) == (1, True)
    assert "begins at offset 9, offset 5 is needed: 4 messages are gone" in done.stderr


def test_what_cannot_be_meant_is_refused(bus: str, project: Path, tmp_path: Path) -> None:
    assert "there is no folder" in hotspare_here("restore", project, tmp_path / "none", "--bus", bus).stderr
    assert not (tmp_path / "none").exists()
    hotspare_here("persist", GROUP, "--to", tmp_path / "shared", "--bus", bus)
    other = tmp_path / "other.yaml"
    other.write_text(PROJECT.replace("bycount_sliding: 3", "bycount_sliding: 4"))
    changed = hotspare_here("restore", other, tmp_path / "shared", "--bus", bus)
    assert (changed.returncode, "belongs to another project" in changed.stderr) == (1, True)
    assert "no group is called" in hotspare_here("persist", "p.none", "--to", tmp_path / "s", "--bus", bus).stderr
    with pytest.raises(UsageError, match="a password must not be in this URL"):
        store_url("postgresql://user:word@host/d")
    assert store_url("postgresql://user@host/d?password_file=/run/p") == "postgresql://user@host/d?password_file=/run/p"
    for command in ("start", "stop"):
        assert f"group {GROUP} has no engine one" in hotspare_here(command, GROUP, "one", "--bus", bus).stderr
        assert f"group {GROUP} has no engine one" in hotspare_here(command, GROUP.partition(".")[2], "one", "--bus", bus).stderr
        told = hotspare_here(command, "none", "one", "--bus", bus).stderr
        assert "no group is called" in told and f"hint: groups: {GROUP}" in told


def destination(bus: str, store: Store) -> RestoreTarget:
    coordination = open_coordination(default_coordination_url(bus))
    (found,) = destinations(load_text(PROJECT).project, case().plan, "hotspare", 1, open_bus(bus), coordination, store)
    return found


def test_a_place_that_is_out_of_reach_stops_only_who_has_no_snapshot(bus: str, tmp_path: Path) -> None:
    """SPEC H7: an engine starts from the furthest snapshot that exists, and a project that names another one changes nothing."""
    own = open_store(default_store_url(bus))
    to, nowhere = destination(bus, own), str(tmp_path / "nowhere")
    assert f"the group uses its own snapshots: no snapshot store at file://{nowhere}" in restore_named(nowhere, to)
    hotspare_here("persist", GROUP, "--to", tmp_path / "shared", "--bus", bus)
    assert restore_named(f"{tmp_path}/shared#newest", to) == "the group's own snapshot 0002-e is as far as 0002-e or further"
    own.discard_group(GROUP)
    with pytest.raises(UsageError, match="no snapshot store at"):
        restore_named(nowhere, to)
    assert not (tmp_path / "nowhere").exists(), "who restores makes no place to restore from"
    with pytest.raises(StateError, match="cannot be restored into group"):
        restore_named(f"{tmp_path}/shared", to)
