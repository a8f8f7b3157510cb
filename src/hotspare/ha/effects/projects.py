"""What an engine learns, while it runs, of the projects of its group (`effects.upgrading`).

Nobody asks again and again where one project runs alone. That a second one takes part an engine hears from the descriptions of
those that run it; from then on it asks now and then what was decided, until there is one again. A promotion asks in any case.
"""

from __future__ import annotations

from dataclasses import replace

from hotspare.ha.effects import notes
from hotspare.ha.effects.upgrading import asked_on
from hotspare.ha.events import HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import upgrading as rules
from hotspare.ha.rules.upgrading import Agreement


def read(_: do.ReadProjects, state: GroupState, ports: Ports) -> None:
    """What was decided since; ProjectChanged as `asked_on`."""
    note(state, ports, asked_on(ports.coordination, state.group, state.projects.known, state.project_hash))


def note(state: GroupState, ports: Ports, known: Agreement | None) -> None:
    """Older news than what is known is ignored."""
    before, now_ms = state.projects, ports.clock_ms()
    if known is None or known.moves <= before.moves:
        state.projects = replace(before, told=before.moves, read_ms=now_ms)
        return
    state.projects = replace(before, known=known, lacked=before.lacking, told=known.moves, read_ms=now_ms)
    notes.tell_others_soon(state)
    notes.report(state, ports, HaEventKind.PROJECTS_CHANGED, rules.sentence(known, before.own))
