"""The budget of a group's state in memory: which pages are evicted when it is spent.

The budget is checked after steps. Memory that is never evicted (indexes, lists, heaps, pinned texts) counts, too. Of the rest, the
coldest pages are evicted, those of windows with a lower rank first. Evicted pages that were read again keep a share of the budget
as long as they are used. No output and no snapshot depends on any of this.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hotspare.table.page_cache.page_file import PagedSpace, check_folder
from hotspare.table.page_cache.system import PAGE

_FETCHED_SHARE = 4
"""One part in this many of the evictable room is for evicted pages that were read again."""
_AT_ONCE = 32
"""When the budget is spent, one part in this many of the room is evicted in addition."""
_LOOKED = 2048
"""The count of system pages checked after each step, per space."""
_SMALL_SHARE, _SMALL_MAX = 64, 8 << 20
"""Rows of a window that take less than one part in `_SMALL_SHARE` of the budget, at most `_SMALL_MAX` bytes, are never evicted."""


class _Tenant(Protocol):
    """The rows of a window (`memory.Tenant`); called between steps only."""

    @property
    def pinned_bytes(self) -> int: ...

    @property
    def evictable_bytes(self) -> int: ...

    def date_writes(self, now: int) -> None: ...

    def coldest(self) -> tuple[int, int] | None: ...

    def evict_coldest(self, size: int) -> int: ...


class _CountedMemory(Protocol):
    """Structures kept next to rows (`memory.CountedMemory`); called between steps only."""

    @property
    def pinned_bytes(self) -> int: ...


class Budget:
    """The budget of one group, in one thread. `size`: the most bytes of its state in memory. Raises UsageError or PageFileError if
    page files cannot be in `folder`."""

    def __init__(self, size: int, folder: Path) -> None:
        check_folder(folder)
        self.size = size
        self.folder = folder
        self._now = 1
        self._tenants: list[tuple[_WindowMemory, weakref.ref[_Tenant]]] = []
        self._counted: list[tuple[_WindowMemory, weakref.ref[_CountedMemory]]] = []
        self._stays = 0
        """Bytes that cannot be evicted, after the last step."""
        self._spaces: list[tuple[_WindowMemory, weakref.ref[PagedSpace]]] = []

    def window_memory(self, rank: int, window: str = "") -> _WindowMemory:
        """Returns the memory for the rows of one window; rows of windows with lower rank are evicted first."""
        return _WindowMemory(self, rank, window)

    def evict_between_steps(self) -> None:
        """Evicts pages between two steps, if needed. Raises PageFileError."""
        self._now += 1
        self._tenants = [each for each in self._tenants if each[1]() is not None]
        self._counted = [each for each in self._counted if each[1]() is not None]
        spaces = self._live_spaces()
        tenants = [(home.rank, tenant) for home, ref in self._tenants if (tenant := ref()) is not None]
        for space in spaces:
            space.now = self._now
            space.poll_in_memory(_LOOKED)
        for _, tenant in tenants:
            tenant.date_writes(self._now)
        self._stays = self._pinned_now([tenant for _, tenant in tenants])
        room = max(0, self.size - self._stays)
        fetched_max = room // _FETCHED_SHARE
        _drop_fetched(spaces, fetched_max)
        young = sum(tenant.evictable_bytes for _, tenant in tenants)
        if young > room - fetched_max:
            _evict_bytes(tenants, young - (room - fetched_max) + room // _AT_ONCE)

    @property
    def loadable_bytes(self) -> int:
        """Bytes that may be loaded before something is evicted."""
        tenants = [tenant for _, ref in self._tenants if (tenant := ref()) is not None]
        room = max(0, self.size - self._pinned_now(tenants))
        return room - room // _FETCHED_SHARE - sum(tenant.evictable_bytes for tenant in tenants)

    def _pinned_now(self, tenants: Sequence[_Tenant]) -> int:
        beside = (what for _, ref in self._counted if (what := ref()) is not None)
        return sum(each.pinned_bytes for each in tenants) + sum(each.pinned_bytes for each in beside)

    def _live_spaces(self) -> list[PagedSpace]:
        spaces = [space for _, ref in self._spaces if (space := ref()) is not None]
        if len(spaces) < len(self._spaces):
            self._spaces = [each for each in self._spaces if each[1]() is not None]
        return spaces

    def counts(self) -> dict[str, int]:
        """Returns bytes by kind: `budget`; `stays`, never evicted, as of the last step; `may_leave`, evictable; `away`, evicted;
        `fetched`, evicted and read again."""
        tenants = [tenant for _, ref in self._tenants if (tenant := ref()) is not None]
        spaces = self._live_spaces()
        away, fetched = sum(space.away for space in spaces) * PAGE, sum(space.fetched for space in spaces) * PAGE
        leaves = sum(each.evictable_bytes for each in tenants)
        return {"budget": self.size, "stays": self._stays, "may_leave": leaves, "away": away, "fetched": fetched}

    def counts_by_window(self) -> dict[str, dict[str, int]]:
        """Returns the kinds of `counts` except `budget`, by window: for each window whose rows may be evicted, and for texts."""
        found: dict[str, dict[str, int]] = {}

        def add(home: _WindowMemory, **sizes: int) -> None:
            window = found.setdefault(home.window, {"stays": 0, "may_leave": 0, "away": 0, "fetched": 0})
            for what, size in sizes.items():
                window[what] += size

        for home, ref in self._tenants:
            if (tenant := ref()) is not None:
                add(home, stays=tenant.pinned_bytes, may_leave=tenant.evictable_bytes)
        for home, counted_ref in self._counted:
            if (counted := counted_ref()) is not None:
                add(home, stays=counted.pinned_bytes)
        for home, space_ref in self._spaces:
            if (space := space_ref()) is not None:
                add(home, away=space.away * PAGE, fetched=space.fetched * PAGE)
        return found

    def _register_tenant(self, home: _WindowMemory, tenant: _Tenant) -> None:
        self._tenants.append((home, weakref.ref(tenant)))

    def _register_counted(self, home: _WindowMemory, what: _CountedMemory) -> None:
        self._counted.append((home, weakref.ref(what)))

    def _space(self, home: _WindowMemory, dtype: np.dtype[Any], length: int) -> PagedSpace:
        space = PagedSpace(self.folder, dtype, length)
        space.now = self._now
        self._spaces.append((home, weakref.ref(space)))
        return space

    def __deepcopy__(self, memo: object) -> Budget:
        return self


class _WindowMemory:
    """The memory of the rows of one window."""

    def __init__(self, residence: Budget, rank: int, window: str) -> None:
        self._residence = residence
        self.rank = rank
        self.window = window
        self.small_bytes = min(residence.size // _SMALL_SHARE, _SMALL_MAX)

    def space(self, dtype: np.dtype[Any], length: int) -> PagedSpace:
        return self._residence._space(self, dtype, length)

    def register_tenant(self, tenant: _Tenant) -> None:
        self._residence._register_tenant(self, tenant)

    def register_counted(self, what: _CountedMemory) -> None:
        self._residence._register_counted(self, what)

    def evict_during_restore(self) -> None:
        self._residence.evict_between_steps()

    @property
    def loadable_bytes(self) -> int:
        return self._residence.loadable_bytes

    def __deepcopy__(self, memo: object) -> _WindowMemory:
        return self


def _drop_fetched(spaces: Sequence[PagedSpace], fetched_max: int) -> None:
    """Evicts the least recently used of the fetched pages, if they exceed `fetched_max` bytes."""
    allowed = fetched_max // PAGE
    if sum(space.fetched for space in spaces) <= allowed:
        return
    uses = np.concatenate([space.uses() for space in spaces])
    leaving = len(uses) - allowed * 7 // 8
    if leaving <= 0:
        return
    until = int(np.partition(uses, leaving - 1)[leaving - 1])
    for space in spaces:
        space.drop_prefetched(until)


def _evict_bytes(tenants: Sequence[tuple[int, _Tenant]], size: int) -> None:
    """Evicts about `size` bytes, or all evictable bytes if these are fewer: the coldest pages of the lowest rank first."""
    portion = max(size // 8, 1)
    while size > 0:
        ranked = [((rank, *coldest), tenant) for rank, tenant in tenants if (coldest := tenant.coldest()) is not None]
        if not ranked:
            return
        _, tenant = min(ranked, key=lambda each: each[0])
        size -= max(1, tenant.evict_coldest(portion))
