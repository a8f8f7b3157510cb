"""A project that reads another's stream (SPEC K10), while the upstream group stops for long and after it resumes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.settings import GroupTopics
from tests.simulation.cascade import GROUPS, Before, Behind, Cascade
from tests.simulation.cascade_cores import OWN, before_kit, behind_kit
from tests.simulation.faults import FaultPlan
from tests.simulation.lasting import Lasting
from tests.simulation.world import SETTINGS

_STEPS_MAX = 6_000
_MANY = 60
"""Events that wait for the stream that is read: many times the limit."""


def calm(folder: Path) -> Cascade:
    """Returns a cascade of two running engines each, without faults."""
    rng = random.Random(7)
    plan, settings = FaultPlan(rng, frozenset()), replace(SETTINGS, waiting_rows_max=6)
    lasting, kit = Lasting(sees_the_end=frozenset({"e0", "e1"})), before_kit()
    before = Before(rng, ("e0", "e1"), plan, folder, settings=settings, lasting=lasting, kit=kit, group=GROUPS[0])
    behind = Behind(
        rng,
        ("f0", "f1"),
        plan,
        folder,
        settings=settings,
        lasting=Lasting(sees_the_end=frozenset({"f0", "f1"})),
        kit=behind_kit(),
        around=before.surroundings,
        group=GROUPS[1],
        before=before,
    )
    cascade = Cascade(before, behind)
    for world in cascade.worlds:
        for name in world.names:
            world.start(name)
    until(cascade, lambda: all(_is_complete(world) for world in cascade.worlds))
    return cascade


def _is_complete(world: Before | Behind) -> bool:
    roles = sorted(process.engine.role.value for process in world.processes.values())
    return roles == [Role.ACTIVE.value, Role.STANDBY.value]


def until(cascade: Cascade, condition) -> None:  # type: ignore[no-untyped-def]
    for _ in range(_STEPS_MAX):
        if condition():
            return
        cascade.step()
    raise AssertionError(f"it never came true: {[world.describe() for world in cascade.worlds]}")


def stopped(cascade: Cascade, turns: int) -> None:
    """Kills the upstream group and steps `turns` times, while the downstream group gets events of its own."""
    for name in list(cascade.before.processes):
        cascade.before.kill(name)
    for turn in range(turns):
        if turn < _MANY:
            cascade.behind.publish(OWN, turn)
        cascade.step()


def all_has_come(cascade: Cascade) -> None:
    for world in cascade.worlds:
        now_ms = world.bus_ms()
        until(cascade, lambda now_ms=now_ms: cascade.before.time_ms >= now_ms)  # type: ignore[misc]
        due = world.due()
        until(cascade, lambda world=world, due=due: all(world.observer.delivered()[s] >= n for s, n in due.items()))  # type: ignore[misc]
        world.check_end(due)


def test_the_one_behind_keeps_its_role_however_long_the_one_before_is_away(tmp_path: Path) -> None:
    """More of its own events wait than the limit: it stops reading them, and still shows that it is alive."""
    cascade = calm(tmp_path)
    before, behind = cascade.worlds
    cascade.before.publish(0, 5)
    epoch = behind.coordination.group(GROUPS[1]).role.epoch
    stopped(cascade, 40 * SETTINGS.lease_ms)
    assert behind.coordination.group(GROUPS[1]).role.epoch == epoch
    assert _is_complete(behind)
    for name in before.names:
        before.start(name)
    all_has_come(cascade)
    assert behind.observer.delivered()["q/a"] >= _MANY


def test_without_signs_of_life_of_its_own_it_would_lose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupTopics, "tick_only_partitions", frozenset())
    cascade = calm(tmp_path)
    epoch = cascade.behind.coordination.group(GROUPS[1]).role.epoch
    stopped(cascade, 40 * SETTINGS.lease_ms)
    assert cascade.behind.coordination.group(GROUPS[1]).role.epoch > epoch


def test_time_stands_still_behind_while_the_one_before_is_away(tmp_path: Path) -> None:
    """Time then continues: no row expires early, and none twice."""
    cascade = calm(tmp_path)
    cascade.before.publish(0, 5)
    all_has_come(cascade)
    known = cascade.behind.observer.delivered()["q/b"]
    stopped(cascade, 20 * SETTINGS.lease_ms)
    assert cascade.behind.observer.delivered()["q/b"] == known
    for name in cascade.before.names:
        cascade.before.start(name)
    all_has_come(cascade)
