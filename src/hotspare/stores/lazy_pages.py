"""Pages of a large snapshot that are read from a server on access: a restore reads only the pages that it needs.

A reader holds its pages by a record on the server, so that they survive if their snapshot is discarded meanwhile. The record is
renewed as long as the reader uses the pages; a reader not renewed for `reader_timeout_s` counts as dead. If it was only frozen,
its pages may have been deleted, and its next access raises an error. A read is retried while the server is briefly unreachable,
because a reader cannot continue without its pages.
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

_READ_AHEAD_PAGES = 16


class Hold(Protocol):
    """A reader's hold on pages of a server: `renew` extends it, `release` ends it. Both may raise StoreError."""

    def renew(self) -> None: ...
    def release(self) -> None: ...


class LazyPages(Mapping[str, bytes]):
    """Maps page names to contents. `blobs`: the pages by name; `read`: returns the contents of some blobs by hash, all or an error,
    from any thread. `hold` is released when the mapping is freed. A failed access raises StoreError, whatever the cause."""

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
        threading.Thread(target=_renew_until_ended, args=(hold, ended, settings.renew_s), name="hotspare-hold", daemon=True).start()
        weakref.finalize(self, ended.set)

    def store_key_of(self, page: str) -> Blob:
        """Returns the value for `Content.set_store_key` of the page."""
        return self._blobs[page]

    def prefetch_pages(self, pages: Sequence[str]) -> None:
        """Announces the next accesses; this replaces earlier announcements."""
        with self._lock:
            self._expected = {self._blobs[page].hash: self._blobs[page] for page in pages}
            self._ahead = {name: content for name, content in self._ahead.items() if name in self._expected}

    def __getitem__(self, page: str) -> bytes:
        blob = self._blobs[page]
        with self._lock:
            self._detect_sequential_reads(self._places[page])
            self._expected.pop(blob.hash, None)
            if (content := self._ahead.pop(blob.hash, None)) is not None:
                return content
            wanted = self._with_next(blob)
        try:
            found = self._settings.unavailable_retry.call(lambda: self._read(wanted), _may_pass)
        except HotspareError:
            raise
        except Exception as error:  # a foreign error would be blamed on the event that needs the page
            raise StoreError("a page of a snapshot cannot be read", detail=f"{type(error).__name__}: {error}"[:300]) from error
        with self._lock:
            self._ahead |= {each.hash: found[each.hash] for each in wanted if each.hash in self._expected}
        return found[blob.hash]

    def _detect_sequential_reads(self, place: int) -> None:
        """Expects the following pages after accesses to two consecutive ones, unless accesses were announced."""
        if place == self._last + 1 and place and not self._expected:
            self._expected = {each.hash: each for each in islice(self._blobs.values(), place, place + _READ_AHEAD_PAGES)}
        self._last = place

    def _with_next(self, blob: Blob) -> list[Blob]:
        """Returns the blob, followed by expected blobs as far as they fit into the same read."""
        wanted, room = [blob], self._settings.read_ahead_bytes - blob.size
        for each in self._expected.values():
            room -= each.size
            if room < 0 or len(wanted) == _READ_AHEAD_PAGES:
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


def _renew_until_ended(hold: Hold, ended: threading.Event, renew_s: float) -> None:
    """Renews the hold until `ended`, then releases it. Ignores errors, for instance of a store just closed: a reader that is not
    renewed counts as dead."""
    while not ended.wait(renew_s):
        with contextlib.suppress(Exception):
            hold.renew()
    with contextlib.suppress(Exception):
        hold.release()
