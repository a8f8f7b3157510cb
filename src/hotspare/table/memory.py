"""Arrays that grow without being copied: address space is reserved once, and memory comes where it is written to first.

The operating system gives memory page by page at the first write, so an array may be declared far larger than the machine's memory.
Small arrays are ordinary ones: reserving costs system calls, and address space is not endless. Pages of two megabytes are not asked
for: random access would be a fifth faster, but the first write to one takes more than ten milliseconds.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from hotspare.rows import tuning

T = TypeVar("T")

_NO_RESERVE = 0x4000
"""MAP_NORESERVE of Linux, which the module has from Python 3.13 on: the kernel does not count what is not written to."""
_ENDLESS = 1 << 62
"""More bytes than any array has."""


def grown(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """A copy of the first `used` entries, `length` entries long, with zeros behind them. Whoever has the old one keeps it."""
    larger: npt.NDArray[Any] = np.zeros((length, *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


def longer(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """As `grown`; a large one takes memory only where it is written to. OSError where the system does not give so much address
    space."""
    size = length * entry_bytes(array)
    if size <= tuning.current().small_bytes:
        return grown(array, used, length)
    larger: npt.NDArray[Any] = Space(array.dtype, size // array.itemsize).array
    larger = larger.reshape((length, *array.shape[1:]))
    larger[:used] = array[:used]
    return larger


def with_room(array: npt.NDArray[Any], used: int, length: int) -> npt.NDArray[Any]:
    """The array itself where it has so many entries, or a copy with room for more: once it is large, for all that can come."""
    if length <= len(array):
        return array
    length = max(length, 2 * len(array))
    if length * entry_bytes(array) <= tuning.current().small_bytes:
        return grown(array, used, length)
    return as_much(tuning.current().reserved_bytes // entry_bytes(array), length, lambda most: longer(array, used, most))


def entry_bytes(array: npt.NDArray[Any]) -> int:
    """Of each entry of the first dimension."""
    return array.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))


class LeavingSpace(Protocol):
    """As `Space`, of which parts can leave memory. Entries are elements of the array, rows of it taken apart."""

    @property
    def array(self) -> npt.NDArray[Any]: ...

    def give_back(self, begin: int, end: int) -> None:
        """As `Space.give_back`; what left may be written again."""

    def empty(self, begin: int, end: int) -> None:
        """Nobody needs what left of these entries: its room is given back. They are not to be written until they are given back."""

    def send(self, begin: int, end: int) -> None:
        """Entries leave, whole pages of the system's memory: they are read as before, and not to be written until they are given
        back. PageFileError."""

    def send_if_true(self, begin: int, end: int) -> bool:
        """As `send`, where all of these are true: they are in memory once for all, and never fetched. Whether they left."""

    def want(self, begins: npt.NDArray[np.int64], entries: int) -> None:
        """So many entries from each of `begins` on are read soon."""

    def want_all(self, begin: int, end: int) -> None:
        """All entries from `begin` to before `end` are read soon."""

    def want_parts(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """As `want_all`, of several parts, none of which is empty."""

    def read_ahead(self, begin: int, end: int) -> None:
        """As `want_all`, from any thread: they are read once, for a snapshot."""

    def read_parts_ahead(self, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        """As `want_parts`, from any thread."""


class Tenant(Protocol):
    """Rows of which pages may leave memory; called between steps only."""

    @property
    def stays_bytes(self) -> int:
        """Of memory that cannot leave."""

    @property
    def leaves_bytes(self) -> int:
        """Of memory that may leave and has not."""

    def tick(self, now: int) -> None:
        """What was written since the last call was written at `now`."""

    def coldest(self) -> tuple[int, int] | None:
        """What leaves next: how much it is needed, 0 or 1, and when it was written; None where nothing can leave."""

    def send(self, size: int) -> int:
        """That leaves, and what is as little needed and comes behind it, up to about so many bytes; how many did."""


class Counted(Protocol):
    """What stands beside rows; called between steps only."""

    @property
    def stays_bytes(self) -> int:
        """Of memory that cannot leave; told without looking at what is there."""


class Home(Protocol):
    """Where the rows of one window live."""

    @property
    def small_bytes(self) -> int:
        """Up to so many stay in any case."""

    def space(self, dtype: np.dtype[Any], length: int) -> LeavingSpace | None:
        """Address space whose parts can leave; None: nothing leaves. OSError where the system does not give so much."""

    def welcome(self, tenant: Tenant) -> None:
        """From now on it may be asked to send what is cold, as long as it lives."""

    def count(self, what: Counted) -> None:
        """From now on this counts, too, as long as it lives: the more it takes, the earlier rows leave."""

    def relieve(self) -> None:
        """Amid a restore, between two pages: what was read may leave. PageFileError."""

    @property
    def room(self) -> int:
        """Bytes that may still come without that something has to leave."""


class Residence(Protocol):
    """Who decides what leaves memory (`hotspare.table.page_cache`). Nothing that is put out depends on it."""

    def home(self, rank: int, window: str = "") -> Home:
        """For the rows of one window; those of lower rank leave first."""

    def stepped(self) -> None:
        """Between two steps: pages may leave. PageFileError."""

    def counts(self) -> Mapping[str, int]:
        """Bytes by what they are, for people; empty where there is no budget."""

    def counts_by_window(self) -> Mapping[str, Mapping[str, int]]:
        """The same of each window of which anything can leave."""


class _Stays:
    """Nothing leaves."""

    small_bytes = _ENDLESS

    def space(self, dtype: np.dtype[Any], length: int) -> LeavingSpace | None:
        return None

    def welcome(self, tenant: Tenant) -> None:
        pass

    def count(self, what: Counted) -> None:
        pass

    def relieve(self) -> None:
        pass

    @property
    def room(self) -> int:
        return _ENDLESS

    def __deepcopy__(self, memo: object) -> _Stays:
        return self


class _NoBudget:
    def home(self, rank: int, window: str = "") -> Home:
        return STAYS

    def stepped(self) -> None:
        pass

    def counts(self) -> Mapping[str, int]:
        return {}

    def counts_by_window(self) -> Mapping[str, Mapping[str, int]]:
        return {}


STAYS: Home = _Stays()
NO_BUDGET: Residence = _NoBudget()


class CountsItself(ABC):
    """A part that stays in memory, and counts where its window lives. Copies count, too."""

    _home: Home = STAYS

    @property
    @abstractmethod
    def stays_bytes(self) -> int:
        """As `Counted`."""

    def live_in(self, home: Home) -> None:
        self._home = home
        home.count(self)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._home.count(self)


class Space:
    """One array of reserved address space, zeros at first. OSError where the system does not give so much."""

    def __init__(self, dtype: np.dtype[Any], length: int) -> None:
        size = length * dtype.itemsize
        self._memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self.array: npt.NDArray[Any] = np.frombuffer(self._memory, dtype)

    def give_back(self, begin: int, end: int) -> None:
        """Give the memory of entries from `begin` to before `end` back. They read as zeros then, and so do those before `begin` in
        the same page of the system's memory; those in the same one as `end` keep it."""
        first, last = (at * self.array.itemsize // mmap.PAGESIZE * mmap.PAGESIZE for at in (begin, end))
        if last > first:
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)


def as_much(most: int, least: int, make: Callable[[int], T]) -> T:
    """What `make` makes of the greatest length for which the system gives address space: `most`, or half, and so on, but not less
    than `least`. OSError where it does not even give that."""
    length = max(most, least)
    while True:
        try:
            return make(length)
        except OSError:
            if length <= least:
                raise
            length = max(length // 2, least)
