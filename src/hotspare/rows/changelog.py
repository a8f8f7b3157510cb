"""The properties of the events that a window emits, known before any event arrives: they decide which windows need an index, and
which graphs are refused.

    published   opcodes as published: an update without old values, an upsert, a partial update, a delete of a key alone
    inserts     nothing but inserts
    resolved    inserts, update blocks with old values, deletes with the values that were emitted (SPEC A10-A12)

A window that computes from rows is correct for resolved events and for inserts only. An index resolves published events (SPEC A14),
because it has the row that an update changes. If published events are whole, a result computed from each event alone is correct,
too.
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
    """An insert never has the key of a stored row: the events are those of a relation."""
    ONCE = "once"
    """An insert never has a key that arrived before, and no row is updated. Dropping rows preserves this property."""


class Deletes(Enum):
    """Properties of the rows that are deleted."""

    ANY = "any"
    OLDEST = "oldest"
    """A deleted row is always the oldest row that arrived and was not deleted, and no row is updated. So in a window that stores
    all or some of the rows, a deleted row is the oldest one, or is not stored. Dropping rows together with their deletes preserves
    this property."""


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
    """Whether the retention deletes that an event causes precede or follow its own output; AFTER also if events cause none."""

    @property
    def is_whole(self) -> bool:
        """Whether every event is a row with all its values, which replaces the stored row of its key, if there is one."""
        return self.opcodes is Opcodes.INSERTS or self.values is Values.WHOLE

    @property
    def needs_rows(self) -> bool:
        """Whether the meaning of an event is known only together with the stored row that the event changes."""
        return self.opcodes is Opcodes.PUBLISHED and not self.is_whole

    @property
    def is_distinct(self) -> bool:
        """Whether each event inserts a new row that never changes, so that an index of the rows would add nothing."""
        return self.opcodes is Opcodes.INSERTS and self.keys is Keys.ONCE

    def computed_from(self) -> Changelog:
        """Returns the changelog from which a window with an index computes: the index resolves published events first."""
        return RELATION if self.opcodes is Opcodes.PUBLISHED else self

    def indexed(self) -> Changelog:
        """Returns the changelog that an index without retention emits; it does not emit inserts of stored keys."""
        return DISTINCT if self.opcodes is Opcodes.INSERTS else self.with_retention(Deletes.OLDEST)

    def with_retention(self, expelled: Deletes, evictions: Eviction = Eviction.AFTER) -> Changelog:
        """Returns the changelog that an index emits if its retention removes `expelled` rows. The index emits deletes of these
        rows, at the place `evictions`; their keys may arrive again."""
        deletes = expelled if self.deletes is Deletes.OLDEST else Deletes.ANY
        mixed = Eviction.BEFORE if Eviction.BEFORE in (evictions, self.evictions) else Eviction.AFTER
        return Changelog(Opcodes.RESOLVED, Keys.ONCE if self.keys is Keys.ONCE else Keys.NEW, deletes, evictions=mixed)

    def inserts(self) -> Changelog:
        """Returns the changelog of the inserts alone, without all other events."""
        return DISTINCT if self.keys is Keys.ONCE else INSERTS

    def filtered_by_kind(self) -> Changelog:
        """Returns the changelog after events were dropped by kind, not by values: an insert may pass although its delete is
        dropped."""
        if self.opcodes is not Opcodes.RESOLVED:
            return self
        return Changelog(Opcodes.RESOLVED, Keys.ONCE if self.keys is Keys.ONCE else Keys.ANY, evictions=self.evictions)


PUBLISHED = Changelog(Opcodes.PUBLISHED, Keys.ANY)
UPSERTS = Changelog(Opcodes.PUBLISHED, Keys.ANY, values=Values.WHOLE)
INSERTS = Changelog(Opcodes.INSERTS, Keys.ANY, Deletes.OLDEST)
DISTINCT = Changelog(Opcodes.INSERTS, Keys.ONCE, Deletes.OLDEST)
RELATION = Changelog(Opcodes.RESOLVED, Keys.NEW)
