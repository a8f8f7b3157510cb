"""Derives which project a group runs from all decisions about it: numbered cut-over steps, folded in order. Pure.

    offer    another project may take part from now on
    lead     the other project leads: its engines go first
    settle   the leading project is the only one again

A cut-over step that does not apply to the present projects changes nothing. So two users who decide concurrently agree afterwards
on which decision was first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum


class CutOverKind(Enum):
    OFFER = "offer"
    LEAD = "lead"
    SETTLE = "settle"


class StateSource(Enum):
    """The source of the first state of the engines that run a project."""

    ORIGIN = "origin"
    """The topics, which still hold all input since the group began, so every state can be computed."""
    SNAPSHOT = "snapshot"
    """A snapshot of the previous project, since the topics no longer hold all older input."""


@dataclass(frozen=True, slots=True)
class ProjectVersion:
    """A project as a group runs it.

    `semantics`: the version of its engines' semantics. `number`: that of the cut-over step that offered the project; 0: it began
    the group. `renumbered_streams`: the streams whose numbers on their topics may differ from those of a state made from the
    origin: all changed and new streams, and those of the previous project if states come from the origin. `changed_streams`: the
    streams that are not the same in the previous project; among them `added_streams` exist only in this project, `removed_streams`
    only in the previous one. `topics_shared`: both projects read the inbound topics below this index; None: all.
    """

    hash: str
    semantics: int
    document: str
    number: int = 0
    state_source: StateSource = StateSource.ORIGIN
    renumbered_streams: frozenset[str] = frozenset()
    changed_streams: frozenset[str] = frozenset()
    added_streams: frozenset[str] = frozenset()
    removed_streams: frozenset[str] = frozenset()
    topics_shared: int | None = None

    def snapshot_group(self, group: str) -> str:
        """Returns the group name under which the store has the snapshots of this project."""
        return f"{group}~{self.number}" if self.number else group

    def is_run_by(self, hash_: str, semantics: int) -> bool:
        return (self.hash, self.semantics) == (hash_, semantics)


@dataclass(frozen=True, slots=True)
class CutOver:
    """A decision about a group's projects. `version`: the offered project; for other kinds only its hash, semantics and number are
    used."""

    kind: CutOverKind
    version: ProjectVersion


@dataclass(frozen=True, slots=True)
class Agreement:
    """The projects that a group runs after `cut_overs` cut-over steps. `other`: a second project whose engines may take part; None
    without one.

    `ever_changed_streams`: the streams that differed between any two successive projects.
    """

    leading: ProjectVersion
    other: ProjectVersion | None = None
    cut_overs: int = 0
    ever_changed_streams: frozenset[str] = frozenset()

    @property
    def offered(self) -> ProjectVersion | None:
        """The project with the later offer, of the two that run; None if the group runs only one."""
        return None if self.other is None else max(self.leading, self.other, key=lambda version: version.number)

    def changed_streams_of(self, makers: Collection[int]) -> frozenset[str]:
        """Returns the streams whose outputs may differ between the projects with the numbers `makers`. If `makers` are not only
        the two present projects, these are all streams that ever changed."""
        offered = self.offered
        is_known = offered is not None and self.other is not None and {self.leading.number, self.other.number} >= set(makers)
        return offered.changed_streams if is_known and offered is not None else self.ever_changed_streams

    def streams_only_in(self, own: int) -> frozenset[str]:
        """Returns the streams that project `own` has and the other one lacks; empty while one project runs alone."""
        offered = self.offered
        return frozenset() if offered is None else offered.added_streams if own == offered.number else offered.removed_streams

    def is_read_by_both(self, topic_index: int) -> bool:
        """Whether both present projects read the inbound topic with this index; True while one project runs alone."""
        shared = None if self.offered is None else self.offered.topics_shared
        return shared is None or topic_index < shared

    def version_of(self, hash_: str, semantics: int) -> ProjectVersion | None:
        """Returns the present project with this hash and version of the semantics; None: an engine that runs it may not take
        part."""
        found = (each for each in (self.leading, self.other) if each is not None and each.is_run_by(hash_, semantics))
        return next(found, None)

    def after_cut_over(self, move: CutOver) -> Agreement:
        now = replace(self, cut_overs=self.cut_overs + 1)
        if move.kind is CutOverKind.OFFER:
            is_new = self.other is None and not self.leading.is_run_by(move.version.hash, move.version.semantics)
            ever = self.ever_changed_streams | move.version.changed_streams | move.version.renumbered_streams
            return replace(now, other=replace(move.version, number=now.cut_overs), ever_changed_streams=ever) if is_new else now
        if self.other is None:
            return now
        if move.kind is CutOverKind.LEAD:
            return replace(now, leading=self.other, other=self.leading) if move.version.number == self.other.number else now
        return replace(now, other=None) if move.version.number == self.leading.number else now


def agreement_sentence(known: Agreement, own: int) -> str:
    """Returns a sentence for users on the projects that a group runs, from the view of an engine of project `own`."""
    if known.other is None:
        return "the group runs one project"
    leads = "leads" if known.leading.number == own else "does not lead"
    return f"the group runs two projects; the project of this engine {leads}"


def fold_cut_overs(first: ProjectVersion, moves: Iterable[CutOver]) -> Agreement:
    return fold_onto(Agreement(first), moves)


def fold_onto(found: Agreement, moves: Iterable[CutOver]) -> Agreement:
    for move in moves:
        found = found.after_cut_over(move)
    return found
