"""A project in shards at certain moments: its roles are shared out, and a process ends with all its groups."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hotspare.bus.memory import Fencing
from hotspare.bus.naming import shard_group
from hotspare.ha.rules.roles import Role
from tests.simulation import transactional
from tests.simulation.checkers import Violation
from tests.simulation.faults import FaultPlan
from tests.simulation.lasting import Lasting
from tests.simulation.shards import Shards, beside, check_keys, kits_of
from tests.simulation.world import GROUP, World

COUNT = 6
_STEPS_MAX = 4_000


def calm(folder: Path, *names: str, fencing: Fencing = Fencing.BY_EPOCH) -> Shards:
    """Returns a world without faults, before any engine starts."""
    rng, (kit, *kits) = random.Random(7), kits_of(COUNT)
    plan, lasting = FaultPlan(rng, frozenset()), Lasting(sees_the_end=frozenset(names))
    first = World(rng, names, plan, folder, fencing=fencing, lasting=lasting, kit=kit, group=shard_group(GROUP, 0))
    return Shards([first, *(beside(first, each) for each in kits)])


def until(shards: Shards, condition: Callable[[], bool]) -> None:
    for _ in range(_STEPS_MAX):
        if condition():
            return
        shards.step((1,))
    raise AssertionError(f"it never came true: {[world.describe() for world in shards.worlds]}")


def active(shards: Shards) -> list[str]:
    return [world.active() for world in shards.worlds]


def are_spares(shards: Shards, *names: str) -> bool:
    """Whether each of these is standby or active in every shard."""
    roles = (Role.STANDBY, Role.ACTIVE)
    return all(name in w.processes and w.processes[name].engine.role in roles for w in shards.worlds for name in names)


def test_engines_that_start_together_share_the_shards(tmp_path: Path) -> None:
    """SPEC K9."""
    shards = calm(tmp_path, "e0", "e1")
    for name in ("e0", "e1"):
        shards.start(name)
    until(shards, lambda: all(active(shards)))
    assert active(shards) == ["e0", "e1"] * (COUNT // 2)


def test_shards_of_an_engine_that_ends_are_shared_out_and_no_other_moves(tmp_path: Path) -> None:
    shards = calm(tmp_path, "e0", "e1", "e2")
    shards.start("e0")
    until(shards, lambda: active(shards) == ["e0"] * COUNT)
    for name in ("e1", "e2"):
        shards.start(name)
    until(shards, lambda: are_spares(shards, "e1", "e2"))
    for _ in range(300):  # they learn of each other, and none takes a role from its holder
        shards.step((1,))
    assert active(shards) == ["e0"] * COUNT
    shards.first.kill("e0")
    assert not any("e0" in world.processes for world in shards.worlds)
    until(shards, lambda: all(active(shards)))
    assert Counter(active(shards)) == {"e1": COUNT // 2, "e2": COUNT // 2}


def test_a_process_stops_with_all_its_groups_when_one_of_them_ends(tmp_path: Path) -> None:
    shards = calm(tmp_path, "e0", "e1")
    shards.start("e0")
    until(shards, lambda: active(shards) == ["e0"] * COUNT)
    shards.start("e1")
    until(shards, lambda: are_spares(shards, "e1"))
    shards.worlds[3].processes["e0"].engine.request_stop()
    until(shards, lambda: not shards.runs("e0") and active(shards) == ["e1"] * COUNT)
    for world in shards.worlds:
        world.publish(0, 5)
    due = [world.due() for world in shards.worlds]
    until(shards, lambda: all(delivered(world, each) for world, each in zip(shards.worlds, due, strict=True)))
    for world, each in zip(shards.worlds, due, strict=True):
        world.check_end(each)
    check_keys(shards.worlds)


def dies_when_all_but_the_first_are_between_commits(shards: Shards) -> None:
    """Kills the process of all shards, in the middle of a transaction of each, after the first shard committed once more than the
    others. Then e1 takes over the first shard before the others."""
    shards.start("e0")
    until(shards, lambda: active(shards) == ["e0"] * COUNT)
    shards.start("e1")
    until(shards, lambda: are_spares(shards, "e1"))
    for world in reversed(shards.worlds):
        world.publish(0, 5)
        due = world.due()
        until(shards, lambda world=world, due=due: delivered(world, due))  # type: ignore[misc]
    shards.first.kill("e0")
    first, *others = shards.worlds
    for _ in range(_STEPS_MAX):
        for world in [first] if first.active() != "e1" else others:
            for process in world.awake():
                world.advance(process)
        first.pass_time(1)
        if active(shards) == ["e1"] * COUNT:
            break
    for world in shards.worlds:
        world.publish(0, 7)
    due_of = [world.due() for world in shards.worlds]
    until(shards, lambda: all(delivered(world, due) for world, due in zip(shards.worlds, due_of, strict=True)))
    for world, due in zip(shards.worlds, due_of, strict=True):
        world.check_end(due)


def test_a_transaction_that_a_dead_process_leaves_open_hides_nothing_of_another_shard(tmp_path: Path) -> None:
    dies_when_all_but_the_first_are_between_commits(calm(tmp_path, "e0", "e1", fencing=Fencing.BY_GENERATION))


def test_two_ids_on_one_partition_of_progress_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The open transaction of one hides what the other has committed."""
    monkeypatch.setattr(transactional, "progress_partition", lambda group: 0)
    with pytest.raises(Violation, match="doubled"):
        dies_when_all_but_the_first_are_between_commits(calm(tmp_path, "e0", "e1", fencing=Fencing.BY_GENERATION))


def delivered(world: World, due: dict[str, int]) -> bool:
    return all(world.observer.delivered()[stream] >= count for stream, count in due.items())
