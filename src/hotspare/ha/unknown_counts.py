"""How many events with members that no field has an engine saw since it started, by source window and member.

The counts are of one process, in no snapshot, and of the events that the head looks at (`flow.head.unknown_members`): nothing
depends on them.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.flow.head.unknown_members import UnknownMember, merged

_NAMES_MAX = 100
"""Limit on the windows and members that are counted; later ones are not."""


class UnknownCounts:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._found: list[UnknownMember] = []

    def add(self, found: Sequence[UnknownMember]) -> dict[str, list[UnknownMember]]:
        """Counts what a batch has. Returns what is in it of each window of which nothing was unknown before."""
        if not found:
            return {}
        known = {each.window for each in self._found}
        self._found = merged([*self._found, *found])[:_NAMES_MAX]
        first: dict[str, list[UnknownMember]] = {}
        for each in merged(found):
            if each.window not in known:
                first.setdefault(each.window, []).append(each)
        return first

    def largest(self, count_max: int) -> list[tuple[str, str, str, int]]:
        """Returns at most `count_max` rows (window, member, the field that may be meant or "", events), the most events first."""
        rows = sorted(self._found, key=lambda each: (-each.events, each.window, each.name))
        return [(each.window, each.name, each.near, each.events) for each in rows[:count_max]]
