"""Which project a group runs, after all that was decided about it: numbered moves, folded in order. Pure.

    offer    another project may take part from now on
    lead     the other one is the one that people want: its engines go first
    settle   the one that leads is the only one again

A move that makes no sense where it stands changes nothing, so two people who decide at once agree afterwards on what was first.
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
    """From what the first engine of a project makes its state."""

    ORIGIN = "origin"
    """All that came since the group began is still in the topics, and makes every state."""
    SNAPSHOT = "snapshot"
    """A snapshot of the project before it; what is older the topics cannot tell."""


@dataclass(frozen=True, slots=True)
class Version:
    """A project as a group runs it. `semantics`: of its engines. `number`: of the move that offered it; 0: it began the group.
    `realigned`: the streams that have other numbers on their topics than a state has that is made from the origin.
    `differs`: those that are not the same in the project before it; `begins`, `ends`: of these, what one of the two alone has.
    `topics_shared`: the inbound topics that both read are those of a lesser index; None: all."""

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
        """Under which name the group's store has the snapshots of this project."""
        return f"{group}~{self.number}" if self.number else group

    def is_run_by(self, hash_: str, semantics: int) -> bool:
        return (self.hash, self.semantics) == (hash_, semantics)


@dataclass(frozen=True, slots=True)
class Move:
    """`version`: what is offered; of the other kinds the project's hash, semantics and number count."""

    kind: MoveKind
    version: Version


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a group runs after `moves` moves. `other`: a second project whose engines may take part; None: there is none.
    `ever_differed`: the streams that were not the same in any two projects, one of which followed the other."""

    leading: Version
    other: Version | None = None
    moves: int = 0
    ever_differed: frozenset[str] = frozenset()

    @property
    def offered(self) -> Version | None:
        """Of the two that may take part, the one that came later."""
        return None if self.other is None else max(self.leading, self.other, key=lambda version: version.number)

    def differing(self, makers: Collection[int]) -> frozenset[str]:
        """The streams that may be others where projects of these numbers made them too."""
        offered = self.offered
        is_known = offered is not None and self.other is not None and {self.leading.number, self.other.number} >= set(makers)
        return offered.differs if is_known and offered is not None else self.ever_differed

    def lacking(self, own: int) -> frozenset[str]:
        """Of the project `own` the streams that the other one does not have."""
        offered = self.offered
        return frozenset() if offered is None else offered.begins if own == offered.number else offered.ends

    def is_read_by_both(self, topic_index: int) -> bool:
        """Whether both projects that may take part read an inbound topic."""
        shared = None if self.offered is None else self.offered.topics_shared
        return shared is None or topic_index < shared

    def version_of(self, hash_: str, semantics: int) -> Version | None:
        """The one that an engine runs; None: it may not take part."""
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
    """What a group runs, for its people, as an engine of project `own` sees it."""
    if known.other is None:
        return "the group runs one project"
    leads = "leads" if known.leading.number == own else "does not lead"
    return f"the group runs two projects; that of this engine {leads}"


def folded(first: Version, moves: Iterable[Move]) -> Agreement:
    return folded_on(Agreement(first), moves)


def folded_on(found: Agreement, moves: Iterable[Move]) -> Agreement:
    for move in moves:
        found = found.after(move)
    return found
