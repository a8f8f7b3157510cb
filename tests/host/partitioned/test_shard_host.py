"""The shards that a task hosts change while it runs: every shard's outputs are those of the `local` runner over its partitions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hotspare.base.choices import RunnerKind
from hotspare.base.errors import CoordinationSuspended
from hotspare.bus.naming import group_name
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.contract import Member
from hotspare.coordination.open import default_coordination_url, open_coordination
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupSettings
from hotspare.host.options import EngineOptions
from hotspare.host.partitioned import task
from hotspare.host.partitioned.task import ShardHost
from hotspare.host.process import EXIT_FAILED
from hotspare.projects.load import load_project
from hotspare.telemetry.log import Log
from hotspare.testing.cluster import wait_until
from tests.host.shards import PREFIX, PROJECT, PROJECT_NAME, SHARDS, all_shards, check_exact, delivered, lines, publish

WAIT_S = 200


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(task, "stop_on_signals", lambda stop: contextlib.nullcontext())
    (tmp_path / "shop.yaml").write_text(PROJECT)
    return f"sqlite:///{tmp_path / 'bus.db'}"


@contextlib.contextmanager
def running(url: str, folder: Path, name: str) -> Iterator[tuple[ShardHost, list[int]]]:
    """Yields a task's host in a thread of this process, and a list with its exit status once it has ended."""
    settings = GroupSettings(lease_ms=10_000)
    options = EngineOptions(folder / "shop.yaml", url, runner=RunnerKind.LOCAL, engine=name, shards=SHARDS, settings=settings)
    status: list[int] = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1, f"host-{name}") as pool:
        host = ShardHost(options, load_project(options.project), Log(), stack)
        ended = pool.submit(lambda: status.append(host.run()))
        try:
            yield host, status
        finally:
            host.request_stop()
            ended.result()  # the host's own error explains more than the time-out of a wait for it


class Shop:
    def __init__(self, url: str, folder: Path) -> None:
        self.bus = SqliteBus(Path(url.removeprefix("sqlite:///")))
        self._folder, self._rows, self._notes = folder, 0, 0
        self._coordination = open_coordination(default_coordination_url(url))

    def publish_more(self) -> None:
        self._rows += 200
        self._notes += publish(self.bus, self._folder, "notes", lines("notes", self._rows))
        publish(self.bus, self._folder, "orders", lines("orders", self._rows))

    def continues_row(self) -> None:
        wait_until(lambda: delivered(self.bus) == self._notes, "all that was published comes out", WAIT_S, 0.05)

    def engines(self, shard: int) -> set[tuple[str, str]]:
        """Returns (engine, role) of each member."""
        members = self._coordination.members(group_name(PREFIX, PROJECT_NAME, all_shards()[shard]))
        return {(member.engine, member.role) for member in members}


def test_a_shard_moves_from_one_host_to_another_and_back(url: str, tmp_path: Path) -> None:
    """SPEC K6, K7."""
    shop = Shop(url, tmp_path)
    with running(url, tmp_path, "one") as (one, _), running(url, tmp_path, "two") as (two, _):
        one.set_shards((0, 1, 2))
        wait_until(lambda: one.complete_shards() == [0, 1, 2], "one hosts all", WAIT_S)
        shop.publish_more()
        shop.continues_row()
        two.set_shards((2,))
        wait_until(lambda: two.complete_shards() == [2], "two hosts a shard, too", WAIT_S)
        wait_until(lambda: two.caught_up_shards() == [2], "it has taken what was there", WAIT_S)
        one.set_shards((0, 1))
        wait_until(lambda: shop.engines(2) == {("two", Role.ACTIVE.value)}, "two alone has it", WAIT_S)
        assert one.complete_shards() == [0, 1]
        shop.publish_more()
        shop.continues_row()
        one.set_shards((0, 1, 2))
        wait_until(lambda: one.complete_shards() == [0, 1, 2], "it comes back", WAIT_S)
        two.set_shards(())
        wait_until(lambda: shop.engines(2) == {("one", Role.ACTIVE.value)}, "one alone has it", WAIT_S)
        assert two.complete_shards() == []
        shop.publish_more()
        shop.continues_row()
    assert all(not shop.engines(shard) for shard in range(SHARDS)), "who is asked to stop leaves"
    check_exact(shop.bus, one.options.settings.skew_max_ms * 1000)


def test_a_group_that_ends_by_itself_ends_the_host(url: str, tmp_path: Path) -> None:
    with running(url, tmp_path, "one") as (one, status):
        one.set_shards((0, 1))
        wait_until(lambda: one.complete_shards() == [0, 1], "it hosts both", WAIT_S)
        one._stays[1]._group.engine.request_stop()  # type: ignore[union-attr]
        wait_until(lambda: bool(status), "the host ends", WAIT_S)
    assert status == [EXIT_FAILED]


def test_a_shard_that_cannot_join_yet_tries_again_and_the_others_go_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a late answer of coordination on a busy machine would end every engine of the task."""
    with running(url, tmp_path, "one") as (one, status):
        one.set_shards((0,))
        wait_until(lambda: one.complete_shards() == [0], "it hosts one", WAIT_S)
        coordination, late = one.shared.coordination, [3]
        first = group_name(PREFIX, PROJECT_NAME, all_shards()[0])
        wait_until(lambda: coordination.leader(first).holder == "one", "it is active in it", WAIT_S)
        right = coordination.members

        def members(group: str) -> Sequence[Member]:
            if group.endswith("/1") and late[0]:
                late[0] -= 1
                raise CoordinationSuspended("no answer in time")
            return right(group)

        monkeypatch.setattr(coordination, "members", members)
        epoch = coordination.leader(first).epoch
        one.set_shards((0, 1))
        wait_until(lambda: one.complete_shards() == [0, 1], "it hosts both", WAIT_S)
        assert (late, status) == ([0], [])
        assert coordination.leader(first).epoch == epoch
