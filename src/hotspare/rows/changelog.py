"""The properties of the events that a window emits, known before any arrives: they decide which windows need an index, and which
graphs cannot be right.

    published   opcodes as published: an update without old values, an upsert, a partial update, a delete of a key alone
    inserts     nothing but inserts
    resolved    inserts, update blocks with old values, deletes with the values that were emitted (SPEC A10-A12)

Windows that compute from rows can be right about resolved events and about inserts. An index resolves published events (SPEC A14):
it knows the row that an update changes. If published events are whole, results computed from each alone are right, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hotspare.model.project import Eviction


class Opcodes(Enum):
    PUBLISHED = "published"
    INSERTS = "inserts"
    RESOLVED = "resolved"


class Keys(Enum):
    """Properties of the keys of inserts."""

    ANY = "any"
    NEW = "new"
    """Never a stored one: the changelog is a relation's."""
    ONCE = "once"
    """Never one that arrived before, and no row is updated. Dropping rows cannot change that."""


class Deletes(Enum):
    """Properties of the rows that are deleted."""

    ANY = "any"
    OLDEST = "oldest"
    """Each is the oldest of those that arrived and were not deleted, and no row is updated. So a window that keeps them, or some of
    them, finds the row of a delete as its oldest, or not at all. Dropping rows, with their deletes, cannot change that."""


class Values(Enum):
    """Properties of the values of published events."""

    ANY = "any"
    WHOLE = "whole"
    """Each event is an insert or an upsert, and has all values."""


@dataclass(frozen=True, slots=True)
class Changelog:
    opcodes: Opcodes
    keys: Keys
    deletes: Deletes = Deletes.ANY
    values: Values = Values.ANY
    evictions: Eviction = Eviction.AFTER
    """The place of retention deletes that an event causes; AFTER also if there may be none."""

    @property
    def is_whole(self) -> bool:
        """Whether every event is a row with all its values, which replaces the one of its key, if any."""
        return self.opcodes is Opcodes.INSERTS or self.values is Values.WHOLE

    @property
    def needs_rows(self) -> bool:
        """Whether the meaning of an event is known only with the row that it changes."""
        return self.opcodes is Opcodes.PUBLISHED and not self.is_whole

    @property
    def is_distinct(self) -> bool:
        """Whether each event is a row of its own, for ever: keeping such rows adds nothing."""
        return self.opcodes is Opcodes.INSERTS and self.keys is Keys.ONCE

    def computed_from(self) -> Changelog:
        """Returns the events from which a window with an index computes: published ones are resolved before."""
        return RELATION if self.opcodes is Opcodes.PUBLISHED else self

    def indexed(self) -> Changelog:
        """Returns the output of an index without retention: inserts of stored keys are not emitted."""
        return DISTINCT if self.opcodes is Opcodes.INSERTS else self.with_retention(Deletes.OLDEST)

    def with_retention(self, expelled: Deletes, evictions: Eviction = Eviction.AFTER) -> Changelog:
        """Returns the output of an index whose retention removes `expelled` rows: they are deleted, and may arrive again."""
        deletes = expelled if self.deletes is Deletes.OLDEST else Deletes.ANY
        mixed = Eviction.BEFORE if Eviction.BEFORE in (evictions, self.evictions) else Eviction.AFTER
        return Changelog(Opcodes.RESOLVED, Keys.ONCE if self.keys is Keys.ONCE else Keys.NEW, deletes, evictions=mixed)

    def inserts(self) -> Changelog:
        """Returns the changelog of its inserts alone."""
        return DISTINCT if self.keys is Keys.ONCE else INSERTS

    def filtered_by_kind(self) -> Changelog:
        """Returns what is left if events are dropped by kind, not by values: an insert may pass and its delete may not."""
        if self.opcodes is not Opcodes.RESOLVED:
            return self
        return Changelog(Opcodes.RESOLVED, Keys.ONCE if self.keys is Keys.ONCE else Keys.ANY, evictions=self.evictions)


PUBLISHED = Changelog(Opcodes.PUBLISHED, Keys.ANY)
UPSERTS = Changelog(Opcodes.PUBLISHED, Keys.ANY, values=Values.WHOLE)
INSERTS = Changelog(Opcodes.INSERTS, Keys.ANY, Deletes.OLDEST)
DISTINCT = Changelog(Opcodes.INSERTS, Keys.ONCE, Deletes.OLDEST)
RELATION = Changelog(Opcodes.RESOLVED, Keys.NEW)
