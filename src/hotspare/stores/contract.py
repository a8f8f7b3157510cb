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
    """Only for reading: damaged content is not deleted, and the only change is the hold of a reader of a large snapshot
    (`lazy_pages`). A missing store is not created, and counts as empty."""


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
    """The content of a snapshot: `header` and `pages`, exactly as written. If a page was a `Content` that was not encoded again,
    because the store had the content of its `store_key`, its bytes are those of the earlier encoding.

    A large snapshot may be read page by page on access, from any thread. The store keeps its pages as long as `pages` is in use.
    Access to `pages` raises the errors of `Store.get`. A lazy `pages` also has the methods `store_key_of(page)`, which returns the
    value for `Content.set_store_key`, and `prefetch_pages(pages)`, which announces accesses.
    """

    header: bytes
    pages: Mapping[str, bytes]


class Content(Protocol):
    """A page's content that is encoded only if the store lacks it: most pages are unchanged since the previous snapshot."""

    @property
    def store_key(self) -> object:
        """The value that a store last passed to `set_store_key`; None if there was none, or the page has changed since."""

    def set_store_key(self, known: object) -> None:
        """Records the store's key of this content. The key is only a hint: the store checks whether it still has the content."""

    def encode(self) -> bytes: ...


class Store(Protocol):
    """A store of snapshots, which several processes may use at once. `group` separates groups. Bytes are returned as they were
    written or not at all."""

    def identity(self) -> str:
        """Compare-and-set: returns the store's random id, 32 hexadecimal digits, created by the first call. The id never changes.
        Raises StoreError if it cannot be read or created."""

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        """Atomic: writes a candidate; a crash leaves nothing that `list` shows. `order`: as in `SnapshotInfo`. `pages`: the name
        and the content of each page. Raises StoreError if the candidate cannot be written.

        A page that is a `Content` is neither encoded nor written if the group has the content of its `store_key`. The same name
        with the same content changes nothing. With different content it replaces a candidate, never a confirmed one (StoreError).
        """

    def confirm(self, group: str, name: str) -> None:
        """Atomic: makes a candidate restorable; does nothing if it is confirmed already. Raises StoreError if it does not exist."""

    def discard(self, group: str, name: str) -> None:
        """Best effort: deletes a snapshot and the pages that only it references. No error if it does not exist."""

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        """Best effort: returns the snapshots, greatest `order` first."""

    def get(self, group: str, name: str) -> StoredSnapshot:
        """Atomic: returns a snapshot. Raises SnapshotDamaged if any content is truncated or a checksum differs, StoreError if the
        snapshot does not exist.

        Deletes damaged content unless opened with Access.LOOK, so that the next `write_candidate` writes it again instead of
        relying on it.
        """

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        """Best effort: discards the oldest confirmed snapshots beyond `confirmed_max`, and the remains of crashed writes."""

    def discard_group(self, group: str) -> None:
        """Best effort: discards all snapshots of the group (`hotspare reset`)."""

    def close(self) -> None: ...
