"""Two projects of one group side by side: which engines run which, who could have the role, and what is decided about the two.

What is decided is written first, and the switch-over asked for then: engines follow what is decided whatever happens to the
command, and the same command goes on where it was killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.effects.upgrading import agreement, move_on
from hotspare.ha.member_record import PROJECT, differs, positions_of, rank_of
from hotspare.ha.rules.membership import present
from hotspare.ha.rules.roles import AT_WORK, Role
from hotspare.ha.rules.upgrading import Agreement, Move, MoveKind, Version


@dataclass(frozen=True, slots=True)
class ProjectSide:
    """The engines of one of the projects, those that gave word lately."""

    version: Version
    members: tuple[Member, ...]

    @property
    def names(self) -> str:
        return ", ".join(member.engine for member in self.members) or "none"

    def has(self, engine: str) -> bool:
        return any(member.engine == engine for member in self.members)


def side_of(coordination: Coordination, group: str, version: Version, silent_ms: int) -> ProjectSide:
    members = _in_part(coordination, group, silent_ms)
    return ProjectSide(version, tuple(m for m in members if m.detail.get(PROJECT) == str(version.number)))


def _in_part(coordination: Coordination, group: str, silent_ms: int) -> list[Member]:
    return [member for member in present(coordination.members(group), silent_ms) if member.role in AT_WORK]


def spare(side: ProjectSide, reached: Mapping[str, int]) -> str:
    """The best spare of a project that has taken the input up to there, by its own account (`positions_of`); "" where none has yet,
    or all that have differ from what is committed."""
    ready = [m for m in side.members if m.role == Role.STANDBY.value and not differs(m)]
    far = [m for m in ready if all(positions_of(m).get(partition, 0) >= offset for partition, offset in reached.items())]
    return max(far, key=lambda m: (rank_of(m), m.engine)).engine if far else ""


def lead(coordination: Coordination, group: str, known: Agreement, version: Version) -> Agreement:
    """This project leads from now on, if it did not."""
    if known.leading.number == version.number:
        return known
    return move_on(coordination, group, known, Move(MoveKind.LEAD, version))


def settle(coordination: Coordination, group: str, known: Agreement) -> Agreement:
    """The project that leads is the only one; engines of the other end by themselves, an active one, too."""
    return move_on(coordination, group, known, Move(MoveKind.SETTLE, known.leading))


def known_projects(coordination: Coordination, group: str) -> Agreement:
    """UsageError where no engine of the group ever started."""
    known = agreement(coordination, group)
    if known is None:
        raise UsageError(f"no engine of group {group} ever started", hint="start one with: hotspare run")
    return known
