"""The contract of a snapshot store: snapshots are written as a whole or not at all, checksummed, and restored only when confirmed.

A snapshot is named by the engine that wrote it and by its input positions. It is written as a candidate. Only a confirmed one may
be restored: progress of every stream has reached its output sequence with the same digest. The store handles
bytes, not their meaning. Pages are named; one whose content is unchanged need not be written twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Access(Enum):
    """The purpose for which a store is opened."""

    CHANGE = "change"
    LOOK = "look"
    """Reading changes nothing and deletes nothing damaged; only the reader of a large snapshot leaves a hold (`lazy_pages`). A
    missing store is not created: it has no snapshots."""


class SnapshotStatus(Enum):
    CANDIDATE = "candidate"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """The description of a snapshot. `order` rises with the input positions (their sum), so the newest is the greatest.
    `bytes_total` counts its pages.

    If only the name is readable, `written_time_us` is 0 and `is_damaged` true; `status` may be wrong then.
    """

    name: str
    engine: str
    order: int
    status: SnapshotStatus
    written_time_us: int
    bytes_total: int

    @property
    def is_damaged(self) -> bool:
        return self.written_time_us == 0


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The content of a snapshot: `header` and `pages` exactly as written; a `Content` that was known, as it was encoded then.

    A large snapshot may be read page by page on access, from any thread. It is kept in the store as long as `pages` lives. `pages`
    raises what `Store.get` does, and has two methods: `store_key_of(page)`, the last argument of `Content.set_store_key`; and
    `prefetch_pages(pages)`, which announces accesses."""

    header: bytes
    pages: Mapping[str, bytes]


class Content(Protocol):
    """A page's content that is encoded only if needed: the store has most pages already, from the snapshot before."""

    @property
    def store_key(self) -> object:
        """The last argument of `set_store_key`, from any store; None if there was none, or the page has changed since."""

    def set_store_key(self, known: object) -> None:
        """Keeps the store's key of this content. It may be lost, and promises nothing: the store checks whether it still has the
        content."""

    def encode(self) -> bytes: ...


class Store(Protocol):
    """Safe to use from several processes at once. `group` separates groups. Bytes are returned as they were written or not at
    all."""

    def identity(self) -> str:
        """Compare-and-set: returns the store's random id, 32 hexadecimal digits, created at the first request. All users of the
        store get the same one for its whole life. StoreError if it cannot be read or created."""

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        """Atomic: writes a candidate; a crash leaves nothing that `list` shows. StoreError if it cannot be written.

        A page that is a `Content` is neither encoded nor written if the group has the content of its `store_key`. The same name
        with the same content changes nothing. With another content it replaces a candidate, never a confirmed one (StoreError).
        """

    def confirm(self, group: str, name: str) -> None:
        """Atomic: makes a candidate restorable. No error if it is already; StoreError if it is gone."""

    def discard(self, group: str, name: str) -> None:
        """Best effort: deletes a snapshot and the pages that only it uses. No error if it is gone."""

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        """Best effort: returns the snapshots, greatest `order` first."""

    def get(self, group: str, name: str) -> StoredSnapshot:
        """Atomic read. SnapshotDamaged if anything is truncated or a checksum differs, StoreError if the snapshot is gone.

        Deletes damaged content unless opened with Access.LOOK, so that the next `write_candidate` writes it again instead of
        relying on it.
        """

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        """Best effort: discards the oldest confirmed snapshots beyond `confirmed_max`, and the remains of crashed writes."""

    def discard_group(self, group: str) -> None:
        """Best effort: discards everything of the group (`hotspare reset`)."""

    def close(self) -> None: ...
