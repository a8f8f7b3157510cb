"""What is known of the events that leave a window, before any has come: it decides who needs an index, and what cannot be right.

    published   opcodes as somebody wrote them: an update without old values, an upsert, a partial update, a delete of a key alone
    inserts     nothing but inserts
    resolved    inserts, update blocks with old values, deletes with the values that were put out (SPEC A10-A12)

Whoever computes from rows can be right about resolved events and about inserts. An index resolves published events (SPEC A14):
it knows the row that an update changes. Of published events that are whole, what is computed from each alone is right, too.
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
    """What is known of the keys of inserts."""

    ANY = "any"
    NEW = "new"
    """Never one that is there: the changelog is a relation's."""
    ONCE = "once"
    """Never one that came before, and no row is updated. Dropping rows cannot change that."""


class Deletes(Enum):
    """What is known of the rows that are deleted."""

    ANY = "any"
    OLDEST = "oldest"
    """Each is the oldest of those that came and were not deleted, and no row is updated. So who keeps them, or some of them, finds
    the row of a delete as its oldest, or not at all. Dropping rows, with their deletes, cannot change that."""


class Values(Enum):
    """What is known of the values of published events."""

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
    """Where deletes by retention stand that an event causes; AFTER also where there may be none."""

    @property
    def is_whole(self) -> bool:
        """Whether every event is a row with all its values, which replaces the one of its key, if anything."""
        return self.opcodes is Opcodes.INSERTS or self.values is Values.WHOLE

    @property
    def needs_rows(self) -> bool:
        """Whether what an event says is only known with the row that it changes."""
        return self.opcodes is Opcodes.PUBLISHED and not self.is_whole

    @property
    def is_distinct(self) -> bool:
        """Whether each event is a row of its own, for ever: who keeps such rows learns nothing from them."""
        return self.opcodes is Opcodes.INSERTS and self.keys is Keys.ONCE

    def computed_from(self) -> Changelog:
        """The events that a window with an index computes from: published ones are resolved before."""
        return RELATION if self.opcodes is Opcodes.PUBLISHED else self

    def indexed(self) -> Changelog:
        """What an index without retention makes of it: an insert of a key that is there does not come out."""
        return DISTINCT if self.opcodes is Opcodes.INSERTS else self.forgotten(Deletes.OLDEST)

    def forgotten(self, expelled: Deletes, evictions: Eviction = Eviction.AFTER) -> Changelog:
        """What an index with retention, which expels such rows, makes of it: rows that leave are deleted, and may come again."""
        deletes = expelled if self.deletes is Deletes.OLDEST else Deletes.ANY
        mixed = Eviction.BEFORE if Eviction.BEFORE in (evictions, self.evictions) else Eviction.AFTER
        return Changelog(Opcodes.RESOLVED, Keys.ONCE if self.keys is Keys.ONCE else Keys.NEW, deletes, evictions=mixed)

    def inserts(self) -> Changelog:
        """Its inserts alone."""
        return DISTINCT if self.keys is Keys.ONCE else INSERTS

    def picked(self) -> Changelog:
        """What is left where events are dropped for what they are, not for their values: an insert may pass and its delete not."""
        if self.opcodes is not Opcodes.RESOLVED:
            return self
        return Changelog(Opcodes.RESOLVED, Keys.ONCE if self.keys is Keys.ONCE else Keys.ANY, evictions=self.evictions)


PUBLISHED = Changelog(Opcodes.PUBLISHED, Keys.ANY)
UPSERTS = Changelog(Opcodes.PUBLISHED, Keys.ANY, values=Values.WHOLE)
INSERTS = Changelog(Opcodes.INSERTS, Keys.ANY, Deletes.OLDEST)
DISTINCT = Changelog(Opcodes.INSERTS, Keys.ONCE, Deletes.OLDEST)
RELATION = Changelog(Opcodes.RESOLVED, Keys.NEW)
