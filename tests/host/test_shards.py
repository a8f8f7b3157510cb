"""A single engine process with a group for each shard of a project, without Spark."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.base.choices import RunnerKind
from hotspare.base.errors import ProjectError, UsageError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.naming import group_name, inbound_topic
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.ha.effects.joining import StartPlan
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host import process
from hotspare.host.hosted_group import HostedGroup
from hotspare.host.options import EngineOptions
from hotspare.projects.load import load_project
from hotspare.stores.open import default_store_url, open_store
from hotspare.telemetry.log import Log
from hotspare.testing.cluster import wait_until
from tests.host.shards import PREFIX, PROJECT, PROJECT_NAME, SHARDS, SOURCES, all_shards, expected, lines, publish, published

WAIT_S = 200


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "shop.yaml").write_text(PROJECT)
    return f"sqlite:///{tmp_path / 'bus.db'}"


@contextlib.contextmanager
def running(url: str, folder: Path, name: str, shards: int = SHARDS) -> Iterator[process.EngineProcess]:
    """Yields an engine in a thread of this process; it stops when the block ends."""
    file = folder / "shop.yaml"
    with contextlib.ExitStack() as stack:
        # no role moves because this process pauses: on a busy machine it may, for longer than the default
        settings = GroupSettings(lease_ms=10_000)
        options = EngineOptions(file, url, runner=RunnerKind.LOCAL, engine=name, shards=shards, settings=settings)
        engine = process.EngineProcess(options, load_project(file), Log(), stack)
        thread = threading.Thread(target=engine.run)
        thread.start()
        try:
            yield engine
        finally:
            engine.request_stop()
            thread.join()


def same_beginning(found: dict[str, pa.Table], wanted: dict[str, pa.Table]) -> bool:
    """Whether all published outputs are the reference's, with sequences, ids and digests."""
    return all(found[stream].equals(wanted[stream].slice(0, found[stream].num_rows)) for stream in found)


def test_every_shard_puts_out_what_the_local_runner_does_over_its_partitions(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law Runner, shard by shard: sequences, ids, digests, generated keys and bad events. SPEC K1."""
    monkeypatch.setattr(process, "stop_on_signals", lambda stop: contextlib.nullcontext())
    bus = SqliteBus(Path(url.removeprefix("sqlite:///")))
    for source in SOURCES:
        publish(bus, tmp_path, source, lines(source, 300))
    skew_max_us = EngineOptions(tmp_path, url).settings.skew_max_ms * 1000

    for shard in all_shards():  # rows of other programs, in the wrong partition for most of these keys
        rows = "\n".join(f"i,n,{100 + i},c{i},3.0" for i in range(20)).encode()
        bus.append(Partition(inbound_topic(PREFIX, PROJECT_NAME, "q", "orders"), shard.number), [Outgoing(rows)])

    def is_published() -> bool:
        tables = [published(bus, shard) for shard in all_shards()]
        notes = sum(table["q/kept"].num_rows for table in tables if "q/kept" in table)
        return notes == 150 and all(len(table) == 4 for table in tables)

    with running(url, tmp_path, "e0"):
        wait_until(is_published, "all shards publish", WAIT_S, 0.2)
    keys = []
    for shard in all_shards():
        found, wanted = published(bus, shard), expected(bus, shard, skew_max_us)
        assert set(found) == {"q/high", "q/named", "q/kept", "bad"}
        assert same_beginning(found, wanted)
        reasons = {"misrouted"} if shard.number else {"misrouted", "field-type"}
        assert set(found["bad"]["reason"].to_pylist()) == reasons
        keys += found["q/kept"]["n"].to_pylist()
    assert len(set(keys)) == 150
    assert {key >> 48 for key in keys} == {0, 1, 2}
    names = {info.engine for shard in all_shards() for info in _snapshots(url, group_name(PREFIX, PROJECT_NAME, shard))}
    assert names <= {"e0"}
    bus.close()


def _snapshots(url: str, group: str) -> list[object]:
    with contextlib.closing(open_store(default_store_url(url))) as store:
        return list(store.list(group))


def test_a_process_is_active_for_some_shards_and_spare_for_others(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role of each shard moves alone, by a planned switch-over and when the process that has it stops."""
    monkeypatch.setattr(process, "stop_on_signals", lambda stop: contextlib.nullcontext())
    groups = [group_name(PREFIX, PROJECT_NAME, shard) for shard in all_shards()]
    with contextlib.closing(open_coordination(default_coordination_url(url))) as service:

        def holders() -> list[str]:
            return [service.leader(group).holder for group in groups]

        with running(url, tmp_path, "e0"):
            wait_until(lambda: holders() == ["e0"] * SHARDS, "the first process is active for all shards", WAIT_S)
            with running(url, tmp_path, "e1"):
                wait_until(lambda: all(len(service.members(group)) == 2 for group in groups), "the second one joins", WAIT_S)
                service.request_switchover(groups[1], "e1")
                wait_until(lambda: holders() == ["e0", "e1", "e0"], "one shard moves", WAIT_S)
            wait_until(lambda: holders() == ["e0"] * SHARDS, "it moves back", WAIT_S)
        assert list(service.groups()) == groups


def test_a_project_that_cannot_be_divided_so_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        PROJECT.replace("type: copy", "type: copy, retention: {bycount_sliding: 3}").replace(", index: empty, publish", ", publish")
    )
    with pytest.raises(ProjectError, match="window q/kept cannot be partitioned"), running(url, tmp_path, "e0"):
        pass


@pytest.mark.parametrize("shards", [0, -1, 1025])
def test_a_number_of_shards_that_no_topic_can_have_is_refused(shards: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot run in"):
        EngineOptions(tmp_path, "sqlite:///b.db", shards=shards)


def test_groups_join_beside_each_other(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may have to wait for a namesake that never answers: with many shards an engine would not start for minutes."""
    bus, all_join = SqliteBus(Path(url.removeprefix("sqlite:///"))), threading.Barrier(SHARDS)
    right = HostedGroup.start

    def start(group: HostedGroup) -> StartPlan:
        all_join.wait(WAIT_S)
        return right(group)

    monkeypatch.setattr(HostedGroup, "start", start)
    with contextlib.ExitStack() as stack:
        settings = GroupSettings(lease_ms=10_000)
        options = EngineOptions(tmp_path / "shop.yaml", url, runner=RunnerKind.LOCAL, engine="e0", shards=SHARDS, settings=settings)
        engine = process.EngineProcess(options, load_project(options.project), Log(), stack)
        plans = engine._joined()
    assert [sorted(number for _, number in plan.next_offsets) for plan in plans] == [[k] * len(SOURCES) for k in range(SHARDS)]
    bus.close()
