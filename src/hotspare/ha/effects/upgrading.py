"""The projects of a group as facts: the first one, and every decision about another one.

    project      the hash and the text of the first engine's project
    semantics    the version of what its windows mean
    upgrade-N    move N: which project may take part, which one leads, which one is left (`rules.upgrading`)

Like every fact they never change: a move is the next fact, and of two concurrent ones the first counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hotspare.base.errors import ProjectChanged, StateError, UsageError
from hotspare.coordination.contract import Coordination
from hotspare.flow.semantics import SEMANTICS as OWN_SEMANTICS
from hotspare.flow.semantics import stated_semantics
from hotspare.ha.rules.upgrading import Agreement, Begin, Move, MoveKind, Version, folded, folded_on

PROJECT = "project"
SEMANTICS = "semantics"
MOVES_MAX = 10_000
_MOVE = "upgrade-"


def agreement(coordination: Coordination, group: str) -> Agreement | None:
    """Returns the projects that the group runs; None if no engine of it ever started. Raises StateError if a move cannot be
    read."""
    first = coordination.fact(group, PROJECT)
    return None if first is None else folded(_first(coordination, group, first), _moves(coordination, group))


def agreement_after(coordination: Coordination, group: str, known: Agreement | None) -> Agreement | None:
    """Returns the same given an earlier result: only later decisions are read."""
    return agreement(coordination, group) if known is None else folded_on(known, _moves(coordination, group, known.moves))


def has_moved(coordination: Coordination, group: str) -> bool:
    """Whether any decision was ever made about another project than the first."""
    return coordination.fact(group, f"{_MOVE}1") is not None


def move_on(coordination: Coordination, group: str, before: Agreement, move: Move) -> Agreement:
    """Records the next move; returns what the group runs then. Raises UsageError if another command recorded one first."""
    version, number = move.version, before.moves + 1
    if number > MOVES_MAX:
        raise UsageError(
            f"group {group} has {MOVES_MAX} upgrade steps, no more are allowed", hint="run the project under a new --prefix"
        )
    wanted = json.dumps(
        {
            "move": move.kind.value,
            "project": version.hash,
            "semantics": version.semantics,
            "number": version.number,
            "begin": version.begin.value,
            "realigned": sorted(version.realigned),
            "differs": sorted(version.differs),
            "begins": sorted(version.begins),
            "ends": sorted(version.ends),
            "topics_shared": version.topics_shared,
            "document": version.document if move.kind is MoveKind.OFFER else "",
        },
        separators=(",", ":"),
    ).encode()
    if coordination.set_fact_once(group, f"{_MOVE}{number}", wanted) != wanted:
        what = f"another command recorded an upgrade step of group {group} at the same time"
        raise UsageError(what, hint="look at `hotspare status`, then repeat the command")
    return before.after(move)


def asked_on(coordination: Coordination, group: str, known: Agreement | None, hash_: str) -> Agreement | None:
    """Returns what the group runs by now, or None, after a single read, if no decision was ever made.

    Raises ProjectChanged if an engine of the project `hash_` and of this hotspare may no longer take part.
    """
    if known is None and not has_moved(coordination, group):
        return None
    now = agreement_after(coordination, group, known)
    if now is not None and now.version_of(hash_, OWN_SEMANTICS) is None:
        raise ProjectChanged(
            f"group {group} was upgraded, and runs another project now", hint="start this engine with that project"
        )
    return now


def place_of(coordination: Coordination, group: str) -> str:
    """Returns the name under which the group's store has the snapshots of the project that leads."""
    known = agreement(coordination, group)
    return group if known is None else known.leading.place(group)


@dataclass(slots=True)
class OwnPlace:
    """Returns the name under which a project's own snapshots are stored, for the engines that run it. It never changes, so it is
    cached."""

    coordination: Coordination
    project_hash: str
    semantics: int
    known: dict[str, str] = field(default_factory=dict)

    def __call__(self, group: str) -> str:
        if group in self.known:
            return self.known[group]
        found = agreement(self.coordination, group)
        if found is None:
            return group
        version = found.version_of(self.project_hash, self.semantics)
        if version is None and not found.moves:
            return group
        if version is None:  # it must not see another project's snapshots
            raise ProjectChanged(
                f"group {group} does not run this project", hint="start the engine with the project that the group runs"
            )
        self.known[group] = version.place(group)
        return self.known[group]


def places(coordination: Coordination, group: str) -> list[str]:
    """Returns all names under which the group may have, or have had, snapshots."""
    found, number = [group], 1
    while coordination.fact(group, f"{_MOVE}{number}") is not None:
        found.append(f"{group}~{number}")
        number += 1
    return found


def forget(coordination: Coordination, group: str) -> None:
    """Deletes the group's facts. If they do not fit into one transaction, the semantics and move 1 are deleted first, the project
    last.

    An engine that finds a project without semantics is refused (`joining.agree_on_semantics`). So after an interruption no engine
    takes the rest for a whole group, until the deletion is repeated.
    """
    coordination.forget(group, first=(SEMANTICS, f"{_MOVE}1"), last=(PROJECT,))


def _first(coordination: Coordination, group: str, fact: bytes) -> Version:
    hash_, _, document = fact.decode("utf-8", "replace").partition("\n")
    return Version(hash_, stated_semantics(coordination.fact(group, SEMANTICS) or b""), document)


def _moves(coordination: Coordination, group: str, after: int = 0) -> list[Move]:
    """Returns the moves after move `after`."""
    found: list[Move] = []
    while (number := after + len(found) + 1) <= MOVES_MAX and (value := coordination.fact(group, f"{_MOVE}{number}")) is not None:
        try:
            told = json.loads(value)
            version = Version(
                hash=str(told["project"]),
                semantics=int(told["semantics"]),
                document=str(told["document"]),
                number=int(told["number"]),
                begin=Begin(told["begin"]),
                realigned=frozenset(map(str, told["realigned"])),
                differs=frozenset(map(str, told["differs"])),
                begins=frozenset(map(str, told["begins"])),
                ends=frozenset(map(str, told["ends"])),
                topics_shared=None if told["topics_shared"] is None else int(told["topics_shared"]),
            )
            found.append(Move(MoveKind(told["move"]), version))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            what, detail = f"an upgrade step of group {group} cannot be read", f"step {number}: {error}"
            raise StateError(what, detail=detail, hint="run the version of hotspare that wrote it") from error
    return found
