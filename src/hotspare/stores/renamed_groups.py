"""A store in which the snapshots of a group have another name than the group: each project of an upgraded group has its own
name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hotspare.stores.contract import Content, SnapshotInfo, Store, StoredSnapshot


@dataclass(frozen=True, slots=True)
class RenamedGroupsStore:
    """A `Store` (contract). `stored_group_name` returns the name under which `store` has the snapshots of a group; all methods may
    raise its errors."""

    store: Store
    stored_group_name: Callable[[str], str]

    def identity(self) -> str:
        return self.store.identity()

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        return self.store.write_candidate(self.stored_group_name(group), name, engine, order, header, pages)

    def confirm(self, group: str, name: str) -> None:
        self.store.confirm(self.stored_group_name(group), name)

    def discard(self, group: str, name: str) -> None:
        self.store.discard(self.stored_group_name(group), name)

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        return self.store.list(self.stored_group_name(group))

    def get(self, group: str, name: str) -> StoredSnapshot:
        return self.store.get(self.stored_group_name(group), name)

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        self.store.prune_snapshots(self.stored_group_name(group), confirmed_max)

    def discard_group(self, group: str) -> None:
        self.store.discard_group(self.stored_group_name(group))

    def close(self) -> None:
        self.store.close()
