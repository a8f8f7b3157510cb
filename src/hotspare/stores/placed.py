"""A store that keeps the snapshots of a group under another name than the group's: an upgraded project gets a new one per group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hotspare.stores.contract import Content, SnapshotInfo, Store, StoredSnapshot


@dataclass(frozen=True, slots=True)
class PlacedStore:
    """A `Store` (contract). `place` returns the name under which `store` has the snapshots of a group; its errors are passed on."""

    store: Store
    place: Callable[[str], str]

    def identity(self) -> str:
        return self.store.identity()

    def put(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        return self.store.put(self.place(group), name, engine, order, header, pages)

    def confirm(self, group: str, name: str) -> None:
        self.store.confirm(self.place(group), name)

    def discard(self, group: str, name: str) -> None:
        self.store.discard(self.place(group), name)

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        return self.store.list(self.place(group))

    def get(self, group: str, name: str) -> StoredSnapshot:
        return self.store.get(self.place(group), name)

    def keep(self, group: str, confirmed_max: int) -> None:
        self.store.keep(self.place(group), confirmed_max)

    def forget(self, group: str) -> None:
        self.store.forget(self.place(group))

    def close(self) -> None:
        self.store.close()
