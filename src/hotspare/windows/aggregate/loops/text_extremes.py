"""The least and the greatest text of a group, whose removed texts are ignored: stored as codes, compared as texts."""

from __future__ import annotations

from hotspare.rows.compile import Whole, called
from hotspare.windows.aggregate.loops.components import AT, KIND, LEAST_TEXT, A, Group, GroupEvents, GroupProgram
from hotspare.windows.aggregate.loops.values import Trees, forest_of, text_precedes


@called
def update_text_extremes(group: Group, program: GroupProgram, trees: Trees, events: GroupEvents, new: Whole) -> None:
    """Updates the least and greatest texts of a group for event row `new`; does nothing if that is NONE. `trees` provides the texts
    by code.
    """
    if new < 0:
        return
    forest = forest_of(trees)
    for i in range(len(program.texts)):
        part = program.components[program.texts[i]]
        at, column = part[AT], part[A]
        if not events.valid[new, column]:
            continue
        code, kept = events.lanes[new, column], group.lanes[0, at]
        if group.valid[0, at]:
            a, b = (code, kept) if part[KIND] == LEAST_TEXT else (kept, code)
            if not text_precedes(forest, a, b):
                continue
        group.lanes[0, at], group.valid[0, at] = code, True
