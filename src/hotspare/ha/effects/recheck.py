"""Reading the coordination epoch again, beside the reading of what is committed: both come after the fence, and neither waits for
the other (DESIGN section 5). And whether the group still runs this engine's project: one that slept through an upgrade, unseen,
and wakes with nobody in the role, must not publish what the project of before makes of the input."""

from __future__ import annotations

from functools import partial

from hotspare.coordination.contract import Leader
from hotspare.ha.calls.underway import AskedEpoch
from hotspare.ha.effects.upgrading import asked_on
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules.upgrading import Agreement


def begin(state: GroupState, ports: Ports) -> None:
    """Ask for the newest epoch. To be called after the fence only; what an earlier promotion asked is forgotten."""
    answers: list[tuple[Leader, Agreement | None]] = []
    call = ports.begin(partial(_ask, state, ports, answers))
    state.recheck = AskedEpoch(call, answers)


def _ask(state: GroupState, ports: Ports, answers: list[tuple[Leader, Agreement | None]]) -> None:
    known = asked_on(ports.coordination, state.group, state.projects.known, state.project_hash)
    answers.append((ports.coordination.leader(state.group), known))


def answered(state: GroupState, ports: Ports) -> tuple[Leader, Agreement | None]:
    """The answer, and which projects the group runs, where anything was ever decided about them. Where an earlier answer was an
    error, it is asked once more. Raises what the question raised."""
    if state.recheck is None:
        begin(state, ports)
    assert state.recheck is not None
    asked, state.recheck = state.recheck, None
    with ports.unlocked():
        asked.call.wait()
    return asked.answers[0]
