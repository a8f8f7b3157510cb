"""Limits on an engine whose state flipped: it publishes and confirms nothing, once the error can be known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotspare.bus.memory import LandedCommit
from hotspare.ha.rules.roles import Reason
from hotspare.stores.contract import StoredSnapshot
from tests.simulation.checkers import Violation
from tests.simulation.engines import Process
from tests.simulation.faults import engine_of

if TYPE_CHECKING:
    from tests.simulation.world import World


class Excused(BaseException):
    """A wrong engine published before its error could be known: the rest of the run proves nothing."""


def check_landed(world: World, landed: LandedCommit) -> None:
    """Checks that a wrong engine publishes no wrong output once another's output of that sequence is committed."""
    wrong_from = world.wrong_from.get(landed.client)
    if wrong_from is None or world.is_judged_outside:
        return
    published, first = _published(world, landed), world.kit.topics.outbound[0].stream
    if not any(sequence >= wrong_from[stream] for stream, sequence in published.items()):
        return
    is_known = world.observer.is_exact(first) and world.observer.delivered()[first] >= wrong_from[first]
    if first in published and is_known and not _was_last_resort(world, landed.client):
        known = f"wrong from output {wrong_from[first]} on"
        raise Violation(f"diverged: {landed.client}, {known}, published output {published[first]}")
    raise Excused(landed.client)


def check_snapshot(world: World, name: str, stored: StoredSnapshot) -> None:
    """Checks that a wrong engine confirms no snapshot of its wrong state, unless nothing to compare with arrived while it waited.

    For streams that lose nothing it waits forever.
    """
    candidate = world.wrong_candidates.get(name)
    if candidate is None:
        return
    process, taken_ms = candidate
    core, reference = world.kit.cores.restore(stored.header, stored.pages), world.reference()
    wrong = [s for s, n in core.sequences.items() if n and (n > len(reference[s]) or reference[s][n - 1][6] != core.digests[s])]
    if not wrong:
        return
    if process.clock() - taken_ms < world.settings.divergence_wait_ms or any(map(world.observer.holds_all, wrong)):
        raise Violation(f"snapshot: {process.door} confirms {name}, which is wrong in {', '.join(wrong)}")
    raise Excused(process.door)


def note_candidates(world: World, process: Process) -> None:
    """Records since when a wrong engine's snapshots wait."""
    if process.door in world.wrong_from and process.state is not None:
        world.wrong_candidates |= {c.name: (process, c.taken_ms) for c in process.state.snapshots.candidates}


def _published(world: World, landed: LandedCommit) -> dict[str, int]:
    """Returns the newest output of each stream in a commit. Progress is ignored: it may restore another's lost record."""
    newest: dict[str, int] = {}
    for output in world.topics.outbound:
        for message in landed.appended.get(output.topic, ()):
            newest[output.stream] = world.codec.decode(message.value).column(0)[-1].as_py()
    return newest


def _was_last_resort(world: World, door: str) -> bool:
    """Whether an engine took over though it differs, as it may if it is told to continue and no other is left."""
    return any(who == engine_of(door) and Reason.NOBODY_ELSE.value in event.sentence for who, event in world.events)
