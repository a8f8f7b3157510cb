"""Counts what a simulated run encountered, to show what a campaign's runs without a finding are worth."""

from __future__ import annotations

from collections import Counter

from hotspare.ha.events import HaEventKind
from tests.simulation.calm import Calm
from tests.simulation.faults import FaultKind
from tests.simulation.world import World

_EVENTS = {
    "unknown results": HaEventKind.RESULT_UNKNOWN,
    "engines fenced out": HaEventKind.FENCED,
    "differences seen": HaEventKind.DIFFERENCE_SEEN,
    "snapshots confirmed": HaEventKind.SNAPSHOT_CONFIRMED,
    "snapshots that could not be used": HaEventKind.SNAPSHOT_UNUSABLE,
    "outputs spilled": HaEventKind.OUTPUTS_SPILLED,
    "progress rebuilt": HaEventKind.PROGRESS_REBUILT,
    "outputs larger than their topic takes": HaEventKind.OUTPUT_TOO_LARGE,
    "work on the store that failed": HaEventKind.SNAPSHOT_FAILED,
    "holders of the bus's lock that were ended": HaEventKind.LOCK_HOLDER_ENDED,
}
_STRUCK, _RUNS_WITH = "struck: ", "runs with: "


def covered(world: World, calm: Calm) -> Counter[str]:
    """Returns the counts of a run by name."""
    kinds = Counter(event.kind for _, event in world.events)
    starts = [event.sentence for _, event in world.events if event.kind is HaEventKind.STARTED]
    counts = Counter({name: kinds[kind] for name, kind in _EVENTS.items()})
    counts["epochs"] = world.coordination.group(world.group).role.epoch
    counts["lives of engines"] = sum(world.lives.values())
    counts["restores from a snapshot"] = sum("the group's first input" not in sentence for sentence in starts)
    counts["messages that topics forgot"] = world.forgotten + sum(map(len, world.recorded.archive.values()))
    counts["calls"], counts["calls that took time"] = world.calls.made, world.calls.slow
    counts["calls to the store that hung"] = world.calls.hangs
    counts["events and ticks"] = world.recorded.count()
    counts["runs of a thousand events and ticks"] = world.recorded.count() >= 1_000
    counts["runs with spares that always lag"] = bool(world.lasting.lags_ms)
    counts["calm groups"], counts["failovers timed"] = calm.turns > 0, calm.failover_ms > 0
    for kind, times in (world.struck + world.plan.happened).items():
        counts[_STRUCK + kind.value] = times
    for kind in world.plan.enabled:
        counts[_RUNS_WITH + kind.value] = 1
    return counts


def lines(counts: Counter[str]) -> list[str]:
    """Returns the counts as text: first what was encountered, then each kind of fault with its runs and its strikes."""
    told = [f"  {counts[name]:>12,} {name}" for name in counts if not name.startswith((_STRUCK, _RUNS_WITH))]
    faults = []
    for kind in FaultKind:
        struck = counts.get(_STRUCK + kind.value)
        faults.append(f"  {counts[_RUNS_WITH + kind.value]:>12,} {kind.value}" + (f", struck {struck:,} times" if struck else ""))
    return ["covered:", *sorted(told, key=lambda line: line[14:]), "runs with each kind of fault:", *faults]
