"""Pages of a large snapshot that stay on a server, and are read when they are asked for: a restore is as quick as what it needs.

A reader holds them by a record on the server that names it, so that they stay when their snapshot is discarded meanwhile. The
record is renewed as long as the reader has the pages; a reader that was not heard of for `reader_gone_s` is taken for dead. If it
lives, say because it was frozen, the pages may be gone, and it gets an error. A server that is away for a moment is asked again: a
reader cannot go on without its pages.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Protocol

from hotspare.base.errors import HotspareError, SnapshotDamaged, StoreError
from hotspare.stores.content import Blob
from hotspare.stores.settings import DEFAULT, StoreSettings

_AHEAD_PAGES = 16


class Hold(Protocol):
    """What keeps pages on a server. Both may raise StoreError."""

    def renew(self) -> None: ...
    def let_go(self) -> None: ...


class PagesLater(Mapping[str, bytes]):
    """`blobs` by the names of pages; `read` gives the contents of some of them by their hashes, all or an error, from any thread.
    `hold` is let go when nobody has the mapping any more. What comes of asking for a page is a StoreError, whatever failed."""

    def __init__(
        self,
        blobs: Mapping[str, Blob],
        read: Callable[[Sequence[Blob]], Mapping[str, bytes]],
        hold: Hold,
        settings: StoreSettings = DEFAULT,
    ) -> None:
        self._blobs, self._read, self._settings = dict(blobs), read, settings
        self._lock = threading.Lock()
        self._places = {page: place for place, page in enumerate(self._blobs)}
        self._last = -1
        self._expected: dict[str, Blob] = {}
        self._ahead: dict[str, bytes] = {}
        ended = threading.Event()
        threading.Thread(target=_holding, args=(hold, ended, settings.renew_s), name="hotspare-hold", daemon=True).start()
        weakref.finalize(self, ended.set)

    def known(self, page: str) -> Blob:
        """As `Content.note` was told."""
        return self._blobs[page]

    def expect(self, pages: Sequence[str]) -> None:
        """These are asked for soon, and others that were expected are not."""
        with self._lock:
            self._expected = {self._blobs[page].hash: self._blobs[page] for page in pages}
            self._ahead = {name: content for name, content in self._ahead.items() if name in self._expected}

    def __getitem__(self, page: str) -> bytes:
        blob = self._blobs[page]
        with self._lock:
            self._note_order(self._places[page])
            self._expected.pop(blob.hash, None)
            if (content := self._ahead.pop(blob.hash, None)) is not None:
                return content
            wanted = self._with_next(blob)
        try:
            found = self._settings.away.call(lambda: self._read(wanted), _may_pass)
        except HotspareError:
            raise
        except Exception as error:  # or an event that asks for the page would be taken for what fails
            raise StoreError("a page of a snapshot cannot be read", detail=f"{type(error).__name__}: {error}"[:300]) from error
        with self._lock:
            self._ahead |= {each.hash: found[each.hash] for each in wanted if each.hash in self._expected}
        return found[blob.hash]

    def _note_order(self, place: int) -> None:
        """Who asks for two that stand one behind the other is expected to go on so."""
        if place == self._last + 1 and place and not self._expected:
            self._expected = {each.hash: each for each in islice(self._blobs.values(), place, place + _AHEAD_PAGES)}
        self._last = place

    def _with_next(self, blob: Blob) -> list[Blob]:
        """It, and of those that are expected what fits into one call."""
        wanted, room = [blob], self._settings.ahead_bytes - blob.size
        for each in self._expected.values():
            room -= each.size
            if room < 0 or len(wanted) == _AHEAD_PAGES:
                break
            if each.hash not in self._ahead:
                wanted.append(each)
        return wanted

    def __contains__(self, page: object) -> bool:
        return page in self._blobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


def _may_pass(error: Exception) -> bool:
    return isinstance(error, StoreError) and not isinstance(error, SnapshotDamaged)


def _holding(hold: Hold, ended: threading.Event, renew_s: float) -> None:
    """Until it has ended; a server that does not answer is asked again. Whatever goes wrong, as where the store is closed at this
    moment: a reader that is not heard of is taken for dead."""
    while not ended.wait(renew_s):
        with contextlib.suppress(Exception):
            hold.renew()
    with contextlib.suppress(Exception):
        hold.let_go()
