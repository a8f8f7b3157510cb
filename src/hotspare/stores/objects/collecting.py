"""Claims on pages without locks, renames or trusted clocks: writers claim, collectors announce what they delete.

A writer claims pages that exist, then looks what is doomed, then whether they are there. A collector writes what it dooms, then
reads claims and manifests, and deletes what none of them names. Whichever comes second sees the other: either the page stays, or
the writer writes one of its own, under a name that is not doomed. Neither ever waits, and either may stand still anywhere: what is
doomed counts for nothing as long as the collector could yet delete it, which is until it says that it is done or the pages are
gone, and a page that is gone never comes back under its name.

A writer that was not heard of for `writer_gone_s` is abandoned: its seal is made, and says so. If it does live, it cannot make the
seal, and writes again. What time it is the storage says, by when it wrote a claim of the collector's own, so that a host whose
clock is wrong does no harm; where its driver does not tell, clocks of hosts decide when garbage goes, and nothing else. The seal of
an abandoned writer stays for ever; it has nine bytes.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from hotspare.base.errors import SnapshotFormat, StoreError
from hotspare.stores.content import Blob
from hotspare.stores.memory import clock_us
from hotspare.stores.objects.bucket import CALLS_AT_ONCE
from hotspare.stores.objects.layout import (
    ABANDONED,
    REPLACED,
    GroupObjects,
    Listing,
    hash_of,
    page_name,
    pages_of,
    writer_of,
)

_CLAIM_EVERY_US = 60_000_000
_ENDED_US = -(1 << 62)
"""Of who has no claim any more: he writes no more, or has sealed it meanwhile."""


class Writing:
    """One writer, from its claim to its seal."""

    def __init__(self, group: GroupObjects) -> None:
        self._group = group
        self.writer = uuid.uuid4().hex
        self._claims = self._claimed_us = 0
        self._pages: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._calls = ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="hotspare-pages")
        self._under_way: list[Future[None]] = []

    def __enter__(self) -> Writing:
        """Its own pages are safe from now on."""
        self._claim(())
        self._pages = {hash_of(page): page for page in self._group.pages()}
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.shutdown()
        with contextlib.suppress(StoreError):
            self._group.release(f"{self.writer},{number}" for number in range(self._claims))

    def hold(self, hashes: set[str]) -> set[str]:
        """Those that are there, and stay until this writer has ended. What was written before is there."""
        self.finish()
        wanted = {self._pages[each] for each in hashes if each in self._pages and each not in self._held}
        if wanted:
            self._claim(wanted)
            doomed = frozenset().union(*self._group.doomed().values())
            there = self._group.pages()
            self._held |= {hash_of(page): page for page in wanted if page in there and page not in doomed}
        elif clock_us() - self._claimed_us > _CLAIM_EVERY_US:
            self._claim(())
        return hashes & self._held.keys()

    def write(self, name: str, content: bytes) -> None:
        """Written when `finish` has returned."""
        page = page_name(name, self.writer)
        self._held[name] = page
        self._under_way.append(self._calls.submit(self._group.bucket.put, self._group.page(page), content))

    def finish(self) -> None:
        """What was to be written is; StoreError otherwise."""
        under_way, self._under_way = self._under_way, []
        for each in under_way:
            each.result()

    def placed(self, blob: Blob) -> Blob:
        """By the name of its object."""
        return Blob(self._held[blob.hash], blob.size)

    def _claim(self, pages: Iterable[str]) -> None:
        self._claimed_us = clock_us()
        self._claims += 1
        self._group.write_claim(self.writer, self._claims - 1, self._claimed_us, pages)


@dataclass(frozen=True, slots=True)
class HeldObjects:
    """A `Hold` (`stores.later`): a claim of who writes nothing."""

    group: GroupObjects
    name: str

    def renew(self) -> None:
        self.group.write_claim(self.name, 0, clock_us(), ())

    def let_go(self) -> None:
        self.group.release(f"{self.name},{number}" for number in range(2))


def holding(group: GroupObjects, blobs: Sequence[Blob]) -> HeldObjects | None:
    """Who holds these pages; None where one is missing, or somebody may yet delete it."""
    reader, wanted = HeldObjects(group, uuid.uuid4().hex), {blob.hash for blob in blobs}
    group.write_claim(reader.name, 1, clock_us(), wanted)
    doomed = frozenset().union(*group.doomed().values())
    if wanted & doomed or not wanted <= group.pages().keys():
        reader.let_go()
        return None
    return reader


def collect(group: GroupObjects, known: dict[str, frozenset[str]], writer_gone_s: float) -> None:
    """Delete what no snapshot and no writer names; `known` as in `pages_of`, from call to call. Nothing is deleted where a manifest
    has another format: it may name more than can be read. What cannot be reached is left to the next one. `writer_gone_s`: as in
    `StoreSettings`."""
    with contextlib.suppress(StoreError):
        listing = group.snapshots()
        _abandon(group, listing, int(writer_gone_s * 1e6))
        _remove_superseded(group, listing)
        doomed = group.doomed()
        pages = group.pages().keys()
        group.spare(collector for collector, names in doomed.items() if not names & pages)
        candidates = set(pages) - _named(group, pages, known)
        if candidates:
            collector = uuid.uuid4().hex
            group.doom(collector, candidates)
            try:
                named = _named(group, candidates, known)
            except SnapshotFormat:
                group.spare([collector])
                raise
            group.bucket.delete(group.page(page) for page in candidates - named)
            group.spare([collector])
        _remove_strays(group, listing)


def _named(group: GroupObjects, pages: Iterable[str], known: dict[str, frozenset[str]]) -> set[str]:
    """Those that may not go. Claims first: a writer lets go of them when its snapshot stands. SnapshotFormat as `pages_of`."""
    claims = group.claims()
    listing = group.snapshots()
    named = claims.pages | pages_of(group, (entry for entry in listing.entries if entry.writer not in listing.abandoned), known)
    return named | {page for page in pages if writer_of(page) in claims.alive_us}


def _abandon(group: GroupObjects, listing: Listing, gone_us: int) -> None:
    """End writers that were not heard of for long, and put away what they left."""
    claims, clock = group.claims(), uuid.uuid4().hex
    unsealed = {entry.writer: entry for entry in listing.entries if entry.writer not in listing.sealed}
    if claims.alive_us:
        group.write_claim(clock, 0, clock_us(), ())
        claims = group.claims()
        group.release([f"{clock},0"])
    now = claims.alive_us.pop(clock, 0)
    for writer in {**unsealed, **claims.alive_us}:
        if now - claims.alive_us.get(writer, _ENDED_US) <= gone_us:
            continue
        if writer not in listing.sealed and group.seal(writer, ABANDONED) and writer in unsealed:
            group.remove_manifest(unsealed[writer])
        group.release(claims.keys.get(writer, ()))


def _remove_superseded(group: GroupObjects, listing: Listing) -> None:
    """Candidates in whose place there is another one of the same name: their writer died before it removed them."""
    for current in listing.current():
        for entry in listing.named(current.name)[1:]:
            if group.fate(entry.writer, REPLACED):
                group.remove(entry)
    for entry in listing.entries:
        if entry.writer in listing.replaced:
            group.remove(entry)


def _remove_strays(group: GroupObjects, before: Listing) -> None:
    """Seals and fates whose snapshot is gone: a manifest is there before they are."""
    there = {entry.writer for entry in group.snapshots().entries}
    group.remove_strays(before.sealed - there, (before.confirmed | before.replaced) - there)
