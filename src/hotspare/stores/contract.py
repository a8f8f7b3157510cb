"""What hotspare asks of a place for snapshots: whole or not at all, checksummed, and never restored before it is confirmed.

A snapshot is named by the engine that wrote it and by its input positions. It is written as a candidate. Only a confirmed one may
be restored: progress of every stream has reached its output sequence with the same digest (DESIGN section 4).
The store knows bytes, not their meaning. Pages are named; one whose content is unchanged need not be written twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Access(Enum):
    """What a store is opened for."""

    CHANGE = "change"
    LOOK = "look"
    """Nothing in it changes by reading, damage least of all; where a large snapshot is read there is the word of its reader
    (`later`). A store that is not there is not made: it has no snapshots."""


class SnapshotStatus(Enum):
    CANDIDATE = "candidate"
    CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """`order` rises with the input positions (their sum), so that the newest is the greatest. `bytes_total` counts its pages.

    `written_time_us` is 0, and `is_damaged` true, where all but its name can no longer be read; `status` may be wrong then.
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
    """`header` and `pages` exactly as they were put; of a `Content` that was known, as it was encoded then. A large snapshot may be
    read page by page, when they are asked for, from any thread, and stays in the store as long as `pages` lives; `pages` raises
    what `Store.get` does. It then has `known(page)`: what
    `Content.note` was told; and `expect(pages)`: these are asked for soon."""

    header: bytes
    pages: Mapping[str, bytes]


class Content(Protocol):
    """A page's content that is made only where it is needed: most are in the store already, from the snapshot before."""

    @property
    def known(self) -> object:
        """What `note` was told last, by whatever store; None where it never was, or the page has changed since."""

    def note(self, known: object) -> None:
        """Keep by what the store knows this content. It may be lost, and is no promise: the store looks whether it is there."""

    def encode(self) -> bytes: ...


class Store(Protocol):
    """Safe to use from several processes at once. `group` separates groups. Bytes come back as they were put or not at all."""

    def identity(self) -> str:
        """Compare-and-set: the store's random id, 32 hexadecimal digits, made when it is first asked for; the same for everybody
        who shares the store, and for its whole life. StoreError where it cannot be read or made."""

    def put(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        """Atomic: write a candidate; a crash on the way leaves nothing that `list` shows. StoreError if it cannot be written.

        A page that is a `Content` is not encoded and not written where the group has what it was known by.
        The same name with the same content changes nothing; with another content it replaces a candidate, never a confirmed one
        (StoreError).
        """

    def confirm(self, group: str, name: str) -> None:
        """Atomic: make a candidate restorable. No error if it is already; StoreError if it is gone."""

    def discard(self, group: str, name: str) -> None:
        """Best effort: forget a snapshot and the pages that only it uses. No error if it is gone."""

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        """Best effort: greatest `order` first."""

    def get(self, group: str, name: str) -> StoredSnapshot:
        """Atomic read. SnapshotDamaged where anything is truncated or a checksum differs, StoreError where it is gone.

        What is found damaged is forgotten, so that the next `put` writes it and does not count on it, but where the store is
        opened to look."""

    def keep(self, group: str, confirmed_max: int) -> None:
        """Best effort: discard the oldest confirmed ones beyond `confirmed_max`, and what crashed writes left behind."""

    def forget(self, group: str) -> None:
        """Best effort: discard everything of the group (`hotspare reset`)."""

    def close(self) -> None: ...
