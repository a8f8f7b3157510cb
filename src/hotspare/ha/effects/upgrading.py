"""Stores which projects a group runs as facts: the first project, and every later decision.

    project      the hash and the text of the first engine's project
    semantics    the version of the semantics of its windows
    upgrade-N    cut-over step N: which project is offered, which one leads, which one remains (`rules.upgrading`)

Facts never change: a cut-over step is the next fact, and of two concurrent steps the first counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hotspare.base.errors import ProjectChanged, StateError, UsageError
from hotspare.coordination.contract import Coordination
from hotspare.flow.semantics import SEMANTICS as OWN_SEMANTICS
from hotspare.flow.semantics import stated_semantics
from hotspare.ha.rules.upgrading import Agreement, CutOver, CutOverKind, ProjectVersion, StateSource, fold_cut_overs, fold_onto

PROJECT = "project"
SEMANTICS = "semantics"
CUT_OVERS_MAX = 10_000
_CUT_OVER_FACT = "upgrade-"


def agreement(coordination: Coordination, group: str) -> Agreement | None:
    """Returns the projects that the group runs; None if no engine of the group ever started. Raises StateError if a cut-over step
    is unreadable."""
    first = coordination.fact(group, PROJECT)
    return None if first is None else fold_cut_overs(_first(coordination, group, first), _cut_overs(coordination, group))


def agreement_after(coordination: Coordination, group: str, known: Agreement | None) -> Agreement | None:
    """Returns the group's projects as `agreement` does, but given its earlier result `known` reads only later cut-over steps."""
    return agreement(coordination, group) if known is None else fold_onto(known, _cut_overs(coordination, group, known.cut_overs))


def has_any_cut_over(coordination: Coordination, group: str) -> bool:
    """Whether the group has any cut-over step: a decision about another project than its first."""
    return coordination.fact(group, f"{_CUT_OVER_FACT}1") is not None


def record_cut_over(coordination: Coordination, group: str, before: Agreement, move: CutOver) -> Agreement:
    """Records `move` as the next cut-over step after `before`; returns the group's projects after it. Raises UsageError if another
    command recorded a step first, or at CUT_OVERS_MAX."""
    version, number = move.version, before.cut_overs + 1
    if number > CUT_OVERS_MAX:
        raise UsageError(
            f"group {group} has {CUT_OVERS_MAX} upgrade steps, which is the limit", hint="run the project under a new --prefix"
        )
    wanted = json.dumps(
        {
            "move": move.kind.value,
            "project": version.hash,
            "semantics": version.semantics,
            "number": version.number,
            "begin": version.state_source.value,
            "realigned": sorted(version.renumbered_streams),
            "differs": sorted(version.changed_streams),
            "begins": sorted(version.added_streams),
            "ends": sorted(version.removed_streams),
            "topics_shared": version.topics_shared,
            "document": version.document if move.kind is CutOverKind.OFFER else "",
        },
        separators=(",", ":"),
    ).encode()
    if coordination.set_fact_once(group, f"{_CUT_OVER_FACT}{number}", wanted) != wanted:
        what = f"another command recorded an upgrade step of group {group} at the same time"
        raise UsageError(what, hint="look at `hotspare status`, then repeat the command")
    return before.after_cut_over(move)


def current_agreement(coordination: Coordination, group: str, known: Agreement | None, hash_: str) -> Agreement | None:
    """Returns the projects that the group runs now, given the earlier result `known`. Returns None, after a single read, if there
    was never a cut-over step.

    Raises ProjectChanged if an engine of project `hash_` and this version of the semantics may no longer take part.
    """
    if known is None and not has_any_cut_over(coordination, group):
        return None
    now = agreement_after(coordination, group, known)
    if now is not None and now.version_of(hash_, OWN_SEMANTICS) is None:
        raise ProjectChanged(
            f"group {group} was upgraded, and runs another project now", hint="start this engine with that project"
        )
    return now


def leading_snapshot_group(coordination: Coordination, group: str) -> str:
    """Returns the group name under which the store has the snapshots of the leading project."""
    known = agreement(coordination, group)
    return group if known is None else known.leading.snapshot_group(group)


@dataclass(slots=True)
class OwnSnapshotGroup:
    """Returns the group name under which a project's own snapshots are stored, for the engines that run it. The name never changes,
    so it is cached. Raises ProjectChanged if the group does not run the project."""

    coordination: Coordination
    project_hash: str
    semantics: int
    cached_groups: dict[str, str] = field(default_factory=dict)

    def __call__(self, group: str) -> str:
        if group in self.cached_groups:
            return self.cached_groups[group]
        found = agreement(self.coordination, group)
        if found is None:
            return group
        version = found.version_of(self.project_hash, self.semantics)
        if version is None and not found.cut_overs:
            return group
        if version is None:  # it must not see another project's snapshots
            raise ProjectChanged(
                f"group {group} does not run this project", hint="start the engine with the project that the group runs"
            )
        self.cached_groups[group] = version.snapshot_group(group)
        return self.cached_groups[group]


def all_snapshot_groups(coordination: Coordination, group: str) -> list[str]:
    """Returns all group names under which the store may have snapshots of the group's projects, past ones included."""
    found, number = [group], 1
    while coordination.fact(group, f"{_CUT_OVER_FACT}{number}") is not None:
        found.append(f"{group}~{number}")
        number += 1
    return found


def delete_group_facts(coordination: Coordination, group: str) -> None:
    """Deletes the group's facts. If one transaction cannot delete all, the semantics and cut-over step 1 are deleted first, the
    project last.

    An engine that finds a project without semantics is refused (`joining.agree_on_semantics`). So after an interruption no engine
    mistakes the remaining facts for a complete group, until the deletion is repeated.
    """
    coordination.reset_group(group, first=(SEMANTICS, f"{_CUT_OVER_FACT}1"), last=(PROJECT,))


def _first(coordination: Coordination, group: str, fact: bytes) -> ProjectVersion:
    hash_, _, document = fact.decode("utf-8", "replace").partition("\n")
    return ProjectVersion(hash_, stated_semantics(coordination.fact(group, SEMANTICS) or b""), document)


def _cut_overs(coordination: Coordination, group: str, after: int = 0) -> list[CutOver]:
    """Returns the cut-over steps after step number `after`, in order. Raises StateError if a step is unreadable."""
    found: list[CutOver] = []
    while (number := after + len(found) + 1) <= CUT_OVERS_MAX and (
        value := coordination.fact(group, f"{_CUT_OVER_FACT}{number}")
    ) is not None:
        try:
            told = json.loads(value)
            version = ProjectVersion(
                hash=str(told["project"]),
                semantics=int(told["semantics"]),
                document=str(told["document"]),
                number=int(told["number"]),
                state_source=StateSource(told["begin"]),
                renumbered_streams=frozenset(map(str, told["realigned"])),
                changed_streams=frozenset(map(str, told["differs"])),
                added_streams=frozenset(map(str, told["begins"])),
                removed_streams=frozenset(map(str, told["ends"])),
                topics_shared=None if told["topics_shared"] is None else int(told["topics_shared"]),
            )
            found.append(CutOver(CutOverKind(told["move"]), version))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            what, detail = f"an upgrade step of group {group} cannot be read", f"step {number}: {error}"
            raise StateError(what, detail=detail, hint="run the version of hotspare that wrote it") from error
    return found
