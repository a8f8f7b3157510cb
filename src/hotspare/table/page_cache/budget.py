"""The budget of a group's state in memory: who leaves when it is spent.

Looked at after steps. What must stay (indexes, lists, heaps, text) is counted too; of the rest the coldest pages leave, first those
of windows that may leave, then of those that prefer not to. Of what left and was read again a share stays as long as it is used.
Nothing that is put out, and no snapshot, depends on any of this.
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
"""A so-manieth of the room for what may leave is for what is read again."""
_AT_ONCE = 32
"""When the budget is spent, a so-manieth of it leaves at once."""
_LOOKED = 2048
"""Pages of the system's memory that are looked at after each step, for each space."""
_SMALL_SHARE, _SMALL_MAX = 64, 8 << 20
"""Rows of a window that take less than a so-manieth of the budget stay."""


class _Tenant(Protocol):
    """The rows of a window; used between steps only."""

    @property
    def stays_bytes(self) -> int: ...

    @property
    def leaves_bytes(self) -> int: ...

    def tick(self, now: int) -> None: ...

    def coldest(self) -> tuple[int, int] | None: ...

    def send(self, size: int) -> int: ...


class _Counted(Protocol):
    """What stands beside rows; asked between steps only."""

    @property
    def stays_bytes(self) -> int: ...


class Budget:
    """Of one group, in one thread. `size`: bytes of its state in memory. UsageError, PageFileError where the folder is no use."""

    def __init__(self, size: int, folder: Path) -> None:
        check_folder(folder)
        self.size = size
        self.folder = folder
        self._now = 1
        self._tenants: list[tuple[_WindowHome, weakref.ref[_Tenant]]] = []
        self._counted: list[tuple[_WindowHome, weakref.ref[_Counted]]] = []
        self._stays = 0
        """Bytes of what cannot leave, after the last step."""
        self._spaces: list[tuple[_WindowHome, weakref.ref[PagedSpace]]] = []

    def home(self, rank: int, window: str = "") -> _WindowHome:
        """For the rows of one window; of lower rank leave first."""
        return _WindowHome(self, rank, window)

    def stepped(self) -> None:
        """Between two steps. PageFileError."""
        self._now += 1
        self._tenants = [each for each in self._tenants if each[1]() is not None]
        self._counted = [each for each in self._counted if each[1]() is not None]
        spaces = self._live_spaces()
        tenants = [(home.rank, tenant) for home, ref in self._tenants if (tenant := ref()) is not None]
        for space in spaces:
            space.now = self._now
            space.look(_LOOKED)
        for _, tenant in tenants:
            tenant.tick(self._now)
        self._stays = self._stays_now([tenant for _, tenant in tenants])
        room = max(0, self.size - self._stays)
        fetched_max = room // _FETCHED_SHARE
        _let_go(spaces, fetched_max)
        young = sum(tenant.leaves_bytes for _, tenant in tenants)
        if young > room - fetched_max:
            _send(tenants, young - (room - fetched_max) + room // _AT_ONCE)

    @property
    def room(self) -> int:
        """Bytes that may still come before something leaves."""
        tenants = [tenant for _, ref in self._tenants if (tenant := ref()) is not None]
        room = max(0, self.size - self._stays_now(tenants))
        return room - room // _FETCHED_SHARE - sum(tenant.leaves_bytes for tenant in tenants)

    def _stays_now(self, tenants: Sequence[_Tenant]) -> int:
        beside = (what for _, ref in self._counted if (what := ref()) is not None)
        return sum(each.stays_bytes for each in tenants) + sum(each.stays_bytes for each in beside)

    def _live_spaces(self) -> list[PagedSpace]:
        spaces = [space for _, ref in self._spaces if (space := ref()) is not None]
        if len(spaces) < len(self._spaces):
            self._spaces = [each for each in self._spaces if each[1]() is not None]
        return spaces

    def counts(self) -> dict[str, int]:
        """Bytes: the budget, what must stay (after the last step), what may leave and is in memory, what left, and what of it was
        fetched again."""
        tenants = [tenant for _, ref in self._tenants if (tenant := ref()) is not None]
        spaces = self._live_spaces()
        away, fetched = sum(space.away for space in spaces) * PAGE, sum(space.fetched for space in spaces) * PAGE
        leaves = sum(each.leaves_bytes for each in tenants)
        return {"budget": self.size, "stays": self._stays, "may_leave": leaves, "away": away, "fetched": fetched}

    def counts_by_window(self) -> dict[str, dict[str, int]]:
        """The same but for the budget, of each window whose rows may leave, and of texts."""
        found: dict[str, dict[str, int]] = {}

        def add(home: _WindowHome, **sizes: int) -> None:
            window = found.setdefault(home.window, {"stays": 0, "may_leave": 0, "away": 0, "fetched": 0})
            for what, size in sizes.items():
                window[what] += size

        for home, ref in self._tenants:
            if (tenant := ref()) is not None:
                add(home, stays=tenant.stays_bytes, may_leave=tenant.leaves_bytes)
        for home, counted_ref in self._counted:
            if (counted := counted_ref()) is not None:
                add(home, stays=counted.stays_bytes)
        for home, space_ref in self._spaces:
            if (space := space_ref()) is not None:
                add(home, away=space.away * PAGE, fetched=space.fetched * PAGE)
        return found

    def _join(self, home: _WindowHome, tenant: _Tenant) -> None:
        self._tenants.append((home, weakref.ref(tenant)))

    def _count(self, home: _WindowHome, what: _Counted) -> None:
        self._counted.append((home, weakref.ref(what)))

    def _space(self, home: _WindowHome, dtype: np.dtype[Any], length: int) -> PagedSpace:
        space = PagedSpace(self.folder, dtype, length)
        space.now = self._now
        self._spaces.append((home, weakref.ref(space)))
        return space

    def __deepcopy__(self, memo: object) -> Budget:
        return self


class _WindowHome:
    """Where the rows of one window live."""

    def __init__(self, residence: Budget, rank: int, window: str) -> None:
        self._residence = residence
        self.rank = rank
        self.window = window
        self.small_bytes = min(residence.size // _SMALL_SHARE, _SMALL_MAX)

    def space(self, dtype: np.dtype[Any], length: int) -> PagedSpace:
        return self._residence._space(self, dtype, length)

    def welcome(self, tenant: _Tenant) -> None:
        self._residence._join(self, tenant)

    def count(self, what: _Counted) -> None:
        self._residence._count(self, what)

    def relieve(self) -> None:
        self._residence.stepped()

    @property
    def room(self) -> int:
        return self._residence.room

    def __deepcopy__(self, memo: object) -> _WindowHome:
        return self


def _let_go(spaces: Sequence[PagedSpace], fetched_max: int) -> None:
    """Of what was fetched again the longest unused leaves, where it is more than that."""
    allowed = fetched_max // PAGE
    if sum(space.fetched for space in spaces) <= allowed:
        return
    uses = np.concatenate([space.uses() for space in spaces])
    leaving = len(uses) - allowed * 7 // 8
    if leaving <= 0:
        return
    until = int(np.partition(uses, leaving - 1)[leaving - 1])
    for space in spaces:
        space.let_go(until)


def _send(tenants: Sequence[tuple[int, _Tenant]], size: int) -> None:
    """So many bytes leave, or all that may, the coldest of the lowest rank first."""
    portion = max(size // 8, 1)
    while size > 0:
        ranked = [((rank, *coldest), tenant) for rank, tenant in tenants if (coldest := tenant.coldest()) is not None]
        if not ranked:
            return
        _, tenant = min(ranked, key=lambda each: each[0])
        size -= max(1, tenant.send(portion))
