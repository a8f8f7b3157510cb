"""Which project a group runs, after all decisions about it: numbered moves, folded in order. Pure.

    offer    another project may take part from now on
    lead     the other one is the wanted one: its engines go first
    settle   the one that leads is the only one again

A move that does not apply in the present state changes nothing, so two users who decide concurrently agree afterwards on which was
first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum


class MoveKind(Enum):
    OFFER = "offer"
    LEAD = "lead"
    SETTLE = "settle"


class Begin(Enum):
    """The source of the first state of a project's engines."""

    ORIGIN = "origin"
    """The topics: they still hold all input since the group began, which makes every state."""
    SNAPSHOT = "snapshot"
    """A snapshot of the project before it; the topics no longer hold all older input."""


@dataclass(frozen=True, slots=True)
class Version:
    """A project as a group runs it.

    `semantics`: the version of its engines' semantics. `number`: that of the move that offered it; 0: it began the group.
    `realigned`: the streams whose numbers on their topics differ from those of a state made from the origin. `differs`: the streams
    that are not the same in the project before it; `begins`, `ends`: those of them that only one of the two has. `topics_shared`:
    both projects read the inbound topics below this index; None: all.
    """

    hash: str
    semantics: int
    document: str
    number: int = 0
    begin: Begin = Begin.ORIGIN
    realigned: frozenset[str] = frozenset()
    differs: frozenset[str] = frozenset()
    begins: frozenset[str] = frozenset()
    ends: frozenset[str] = frozenset()
    topics_shared: int | None = None

    def place(self, group: str) -> str:
        """Returns the name under which the group's store has the snapshots of this project."""
        return f"{group}~{self.number}" if self.number else group

    def is_run_by(self, hash_: str, semantics: int) -> bool:
        return (self.hash, self.semantics) == (hash_, semantics)


@dataclass(frozen=True, slots=True)
class Move:
    """A decision about a group's projects. `version`: the offered one; for other kinds only its hash, semantics and number
    count."""

    kind: MoveKind
    version: Version


@dataclass(frozen=True, slots=True)
class Agreement:
    """The projects that a group runs after `moves` moves. `other`: a second project whose engines may take part, if any.

    `ever_differed`: the streams that were not the same in any two consecutive projects.
    """

    leading: Version
    other: Version | None = None
    moves: int = 0
    ever_differed: frozenset[str] = frozenset()

    @property
    def offered(self) -> Version | None:
        """The one of the two projects that was offered later; None if there is only one."""
        return None if self.other is None else max(self.leading, self.other, key=lambda version: version.number)

    def differing(self, makers: Collection[int]) -> frozenset[str]:
        """Returns the streams that may differ if projects of these numbers made them too."""
        offered = self.offered
        is_known = offered is not None and self.other is not None and {self.leading.number, self.other.number} >= set(makers)
        return offered.differs if is_known and offered is not None else self.ever_differed

    def lacking(self, own: int) -> frozenset[str]:
        """Returns the streams of project `own` that the other one does not have."""
        offered = self.offered
        return frozenset() if offered is None else offered.begins if own == offered.number else offered.ends

    def is_read_by_both(self, topic_index: int) -> bool:
        """Whether both projects that may take part read an inbound topic."""
        shared = None if self.offered is None else self.offered.topics_shared
        return shared is None or topic_index < shared

    def version_of(self, hash_: str, semantics: int) -> Version | None:
        """Returns the version that an engine runs; None: it may not take part."""
        found = (each for each in (self.leading, self.other) if each is not None and each.is_run_by(hash_, semantics))
        return next(found, None)

    def after(self, move: Move) -> Agreement:
        now = replace(self, moves=self.moves + 1)
        if move.kind is MoveKind.OFFER:
            is_new = self.other is None and not self.leading.is_run_by(move.version.hash, move.version.semantics)
            ever = self.ever_differed | move.version.differs | move.version.realigned
            return replace(now, other=replace(move.version, number=now.moves), ever_differed=ever) if is_new else now
        if self.other is None:
            return now
        if move.kind is MoveKind.LEAD:
            return replace(now, leading=self.other, other=self.leading) if move.version.number == self.other.number else now
        return replace(now, other=None) if move.version.number == self.leading.number else now


def sentence(known: Agreement, own: int) -> str:
    """Returns a sentence for users on what a group runs, as an engine of project `own` sees it."""
    if known.other is None:
        return "the group runs one project"
    leads = "leads" if known.leading.number == own else "does not lead"
    return f"the group runs two projects; the project of this engine {leads}"


def folded(first: Version, moves: Iterable[Move]) -> Agreement:
    return folded_on(Agreement(first), moves)


def folded_on(found: Agreement, moves: Iterable[Move]) -> Agreement:
    for move in moves:
        found = found.after(move)
    return found
