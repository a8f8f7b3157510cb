"""Snapshots in the memory of one process: behaves as the durable stores do, for tests and the simulation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hotspare.stores import limits
from hotspare.stores.contract import Content, SnapshotInfo, SnapshotStatus, StoredSnapshot


def clock_us() -> int:
    """Returns microseconds since 1970 UTC."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class _Entry:
    info: SnapshotInfo
    stored: StoredSnapshot
    damage: str = ""


class MemoryStore:
    """A `Store` (contract); all engines must share one object. `clock` returns microseconds since 1970 UTC."""

    def __init__(self, clock: Callable[[], int] = clock_us) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, _Entry]] = {}
        self._identity = limits.new_identity()

    def identity(self) -> str:
        return self._identity

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_snapshot(group, name, engine, order)
        kept: dict[str, bytes] = {}
        for page, content in pages:
            limits.check_name("page", page)
            if page in kept:
                raise limits.duplicate_page(name, page)
            kept[page] = bytes(content) if isinstance(content, bytes) else self._new(group, content)
        stored = StoredSnapshot(bytes(header), kept)
        info = SnapshotInfo(name, engine, order, SnapshotStatus.CANDIDATE, self._clock(), sum(map(len, kept.values())))
        with self._lock:
            entries = self._groups.setdefault(group, {})
            there = entries.get(name)
            if there is not None and not there.damage:
                if there.stored == stored:
                    return there.info
                if there.info.status is SnapshotStatus.CONFIRMED:
                    raise limits.already_confirmed(group, name)
            entries[name] = _Entry(info, stored)
        return info

    def _new(self, group: str, content: Content) -> bytes:
        """Returns the content, encoded only if no snapshot of the group has it."""
        known = content.store_key
        with self._lock:
            stored = [each.stored.pages for each in self._groups.get(group, {}).values()]
        if isinstance(known, bytes) and any(known is page for pages in stored for page in pages.values()):
            return known
        encoded = content.encode()
        content.set_store_key(encoded)
        return encoded

    def confirm(self, group: str, name: str) -> None:
        with self._lock:
            entry = self._entry(group, name)
            self._groups[group][name] = replace(entry, info=replace(entry.info, status=SnapshotStatus.CONFIRMED))

    def discard(self, group: str, name: str) -> None:
        with self._lock:
            self._groups.get(group, {}).pop(name, None)

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        with self._lock:
            infos = [entry.info for entry in self._groups.get(group, {}).values()]
        return limits.newest_first(infos)

    def get(self, group: str, name: str) -> StoredSnapshot:
        with self._lock:
            entry = self._entry(group, name)
        if entry.damage:
            raise limits.snapshot_damaged(group, name, entry.damage)
        return entry.stored

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        limits.check_confirmed_max(confirmed_max)
        for name in limits.excess_snapshots(self.list(group), confirmed_max):
            self.discard(group, name)

    def discard_group(self, group: str) -> None:
        with self._lock:
            self._groups.pop(group, None)

    def damage(self, group: str, name: str, detail: str = "damaged on purpose") -> None:
        """Makes every later `get` of this snapshot raise SnapshotDamaged; for tests."""
        with self._lock:
            self._groups[group][name] = replace(self._entry(group, name), damage=detail)

    def close(self) -> None:
        """Does nothing: the store holds no resources."""

    def _entry(self, group: str, name: str) -> _Entry:
        entry = self._groups.get(group, {}).get(name)
        if entry is None:
            raise limits.snapshot_missing(group, name)
        return entry
