"""Snapshots in object storage: S3 and compatible services, by fsspec.

Pages first, then the manifest, then the seal, which is created by compare-and-set (`If-None-Match` of S3) and makes it a snapshot.
`layout` defines the names. The storage must write an object as a whole, list every object written before, and let one of several
clients create an object. Storage without the last is refused: writing and reading alone cannot decide between a frozen writer and a
collector.

Claims need no locks, renames or trusted clocks. A writer claims existing pages, then reads which are doomed, then checks that they
are still stored. A collector announces the doomed pages, then reads claims and manifests, and deletes those that none of them
names. The second of the two sees the first: either the page is kept, or the writer writes one of its own, under a name that is not
doomed. Neither ever waits, and either may freeze anywhere. A doomed page does not count while the collector may still delete it,
which is until the collector reports its end or the page is gone. A deleted page never returns under its name.

A writer without a sign of life for `writer_timeout_s` is abandoned: a collector creates its seal, with that value. If the writer
does live, it cannot create the seal, and writes again. The time is that of the storage, from a claim that the collector writes
itself, so a host with a wrong clock does no harm. If the driver does not report it, clocks of hosts decide when garbage is deleted,
and nothing else. The seal of an abandoned writer stays forever; it has nine bytes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from hotspare.base.errors import SnapshotFormat, StoreError
from hotspare.stores import lazy_pages, limits
from hotspare.stores.content import Blob, blob_of
from hotspare.stores.contract import Access, Content, SnapshotInfo, SnapshotStatus, StoredSnapshot
from hotspare.stores.directory_layout import Manifest, manifest_text
from hotspare.stores.memory import clock_us
from hotspare.stores.objects.bucket import CONCURRENT_CALLS_MAX, Bucket
from hotspare.stores.objects.layout import (
    ABANDONED,
    CONFIRMED,
    REPLACED,
    WHOLE,
    GroupObjects,
    Listing,
    ManifestObject,
    hash_of,
    page_name,
    pages_of,
    writer_of,
)
from hotspare.stores.settings import DEFAULT, StoreSettings
from hotspare.stores.writing import HEADER, Given, checked_contents, write_new

_CLAIM_EVERY_US = 60_000_000
_ENDED_US = -(1 << 62)
"""The time of the last sign of life of a writer without claims, which has ended or has sealed its snapshot."""
_IDENTITY, _PROBE = ".store-id", ".probe-"
_WRITE_TRIES_MAX = 5


class ObjectStore:
    """A `Store` (contract). Transfers up to eight pages of a snapshot concurrently."""

    def __init__(self, url: str, access: Access = Access.CHANGE, settings: StoreSettings = DEFAULT) -> None:
        """Raises UsageError if the URL names no object storage."""
        self._bucket, self._access, self._settings = Bucket(url), access, settings
        self._is_checked = False
        self._referenced_pages: dict[str, frozenset[str]] = {}

    def identity(self) -> str:
        self._check()
        made = limits.new_identity()
        if self._bucket.create(_IDENTITY, made.encode()):
            return made
        found = (self._bucket.get_object(_IDENTITY) or b"").decode("ascii", "replace")
        if not limits.is_identity(found):
            raise limits.damaged_identity("the object storage", found)
        return found

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_snapshot(group, name, engine, order)
        objects = GroupObjects(self._bucket, group)
        objects.entry(SnapshotInfo(name, engine, order, SnapshotStatus.CANDIDATE, clock_us(), limits.ORDER_MAX), uuid.uuid4().hex)
        self._check()
        given = checked_contents(name, header, pages)
        for _ in range(_WRITE_TRIES_MAX):
            if (info := _written(objects, name, engine, order, given)) is not None:
                return info
        raise limits.pages_deleted_repeatedly(name)

    def confirm(self, group: str, name: str) -> None:
        objects = GroupObjects(self._bucket, group)
        entry = _found(objects, name)
        if not objects.decide_fate(entry.writer, CONFIRMED) or entry not in objects.snapshots().entries:
            raise limits.snapshot_missing(group, name)

    def discard(self, group: str, name: str) -> None:
        self._discard(group, {name})

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        listing = GroupObjects(self._bucket, group).snapshots()
        return limits.newest_first(entry.info(listing.status(entry)) for entry in listing.current())

    def get(self, group: str, name: str) -> StoredSnapshot:
        objects = GroupObjects(self._bucket, group)
        entry = _found(objects, name)
        try:
            manifest = objects.manifest(entry)
        except SnapshotFormat:
            raise
        except ValueError as error:
            raise limits.snapshot_damaged(group, name, str(error)) from None
        if manifest is None:
            raise limits.snapshot_missing(group, name)
        is_large = manifest.bytes_total > self._settings.eager_bytes_max
        if is_large and (reader := _acquire_hold(objects, manifest.blobs)) is not None:
            placed = {hash_of(blob.hash): blob for blob in manifest.blobs}

            def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
                found = self._contents(objects, entry, [placed[blob.hash] for blob in wanted])
                return {hash_of(each): content for each, content in found.items()}

            pages = lazy_pages.LazyPages(
                {page: Blob(hash_of(b.hash), b.size) for page, b in manifest.pages}, read, reader, self._settings
            )
            if entry not in objects.snapshots().entries:
                raise limits.snapshot_missing(group, name)
            return StoredSnapshot(self._contents(objects, entry, [manifest.header])[manifest.header.hash], pages)
        blobs = sorted({blob.hash: blob for blob in manifest.blobs}.values(), key=lambda blob: blob.hash)
        whole = self._contents(objects, entry, blobs)
        return StoredSnapshot(whole[manifest.header.hash], {page: whole[blob.hash] for page, blob in manifest.pages})

    def _contents(self, objects: GroupObjects, entry: ManifestObject, blobs: Sequence[Blob]) -> dict[str, bytes]:
        """Returns the contents of all blobs, by name. Raises the errors of `get` if one of them is missing or damaged."""
        contents = self._bucket.call_concurrently(self._bucket.get_object, (objects.page(blob.hash) for blob in blobs))
        found = {blob.hash: content for blob, content in zip(blobs, contents, strict=True) if _is_whole(blob, content)}
        damaged = [blob.hash for blob in blobs if blob.hash not in found]
        if damaged:
            if entry not in objects.snapshots().entries:
                raise limits.snapshot_missing(objects.group, entry.name)
            if self._access is Access.CHANGE:
                self._bucket.delete(map(objects.page, damaged))
            raise limits.snapshot_damaged(objects.group, entry.name, limits.missing_or_changed(f"object {damaged[0]}"))
        return {each: content for each, content in found.items() if content is not None}

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        limits.check_confirmed_max(confirmed_max)
        self._discard(group, set(limits.excess_snapshots(self.list(group), confirmed_max)))

    def discard_group(self, group: str) -> None:
        self._discard(group, {info.name for info in self.list(group)})

    def close(self) -> None:
        """Does nothing: the store holds no resources."""

    def _discard(self, group: str, names: set[str]) -> None:
        objects = GroupObjects(self._bucket, group)
        if names:
            for entry in objects.snapshots().entries:
                if entry.name in names:
                    objects.remove_manifest(entry)
        _collect(objects, self._referenced_pages, self._settings.writer_timeout_s)

    def _check(self) -> None:
        """Raises StoreError if the storage creates an object that exists already; checks this once."""
        if self._is_checked:
            return
        key = _PROBE + uuid.uuid4().hex
        self._bucket.create(key, b"")
        is_refused = not self._bucket.create(key, b"twice")
        self._bucket.delete([key])
        if not is_refused:
            raise StoreError(
                "this object storage created an object that exists already", hint="use one with conditional writes (If-None-Match)"
            )
        self._is_checked = True


def _found(objects: GroupObjects, name: str) -> ManifestObject:
    found = objects.snapshots().snapshots_named(name)
    if not found:
        raise limits.snapshot_missing(objects.group, name)
    return found[0]


def _is_whole(blob: Blob, content: bytes | None) -> bool:
    return content is not None and blob_of(content) == Blob(hash_of(blob.hash), blob.size)


def _written(objects: GroupObjects, name: str, engine: str, order: int, given: Mapping[str, Given]) -> SnapshotInfo | None:
    """Writes the snapshot once; None if the writer was abandoned meanwhile, so that its pages may be deleted."""
    with _Writing(objects) as writing:
        writing.hold({blob.hash for content in given.values() if isinstance(blob := getattr(content, "store_key", None), Blob)})
        blobs = write_new(given, writing.hold, writing.write)
        writing.finish()
        placed = {page: writing.stored_blob(blob) for page, blob in blobs.items()}
        header = placed.pop(HEADER)
        listing = objects.snapshots()
        before = listing.snapshots_named(name)
        written_us = max([clock_us(), *(entry.written_time_us + 1 for entry in before)])
        manifest = Manifest(written_us, header, tuple(placed.items()))
        if before and (there := _same_snapshot(objects, listing, before[0], manifest)) is not None:
            return there
        info = SnapshotInfo(name, engine, order, SnapshotStatus.CANDIDATE, manifest.written_time_us, manifest.bytes_total)
        entry = objects.entry(info, writing.writer)
        objects.write_manifest(entry, manifest_text(manifest))
        if not objects.decide_seal(writing.writer, WHOLE):
            objects.remove_manifest(entry)
            return None
        _replace(objects, entry)
    return info


def _same_snapshot(objects: GroupObjects, listing: Listing, entry: ManifestObject, manifest: Manifest) -> SnapshotInfo | None:
    """Returns the stored snapshot if its content is the same. Raises StoreError if it has another one and is confirmed."""
    try:
        old = objects.manifest(entry)
    except SnapshotFormat:
        raise
    except ValueError:
        objects.remove(entry)
        return None
    if old is not None and _contents(old) == _contents(manifest):
        return entry.info(listing.status(entry))
    if old is not None and entry.writer in listing.confirmed:
        raise limits.already_confirmed(objects.group, entry.name)
    return None


def _contents(manifest: Manifest) -> tuple[str, list[tuple[str, str]]]:
    return hash_of(manifest.header.hash), [(page, hash_of(blob.hash)) for page, blob in manifest.pages]


def _replace(objects: GroupObjects, entry: ManifestObject) -> None:
    """Replaces older snapshots of the name of `entry`. Raises StoreError, after removing `entry`, if one of them was confirmed
    meanwhile. Of two concurrent writes, both processes keep the one that `Listing.snapshots_named` returns first."""
    listing = objects.snapshots()
    found = listing.snapshots_named(entry.name)
    below = found[found.index(entry) + 1 :] if entry in found else []
    is_ended = any(other.writer in listing.confirmed and other != entry for other in found)
    if is_ended or not all(objects.decide_fate(other.writer, REPLACED) for other in below):
        objects.remove(entry)
        raise limits.already_confirmed(objects.group, entry.name)
    for other in below:
        objects.remove(other)


class _Writing:
    """A context manager for the write of a snapshot, from claim to seal."""

    def __init__(self, group: GroupObjects) -> None:
        self._group = group
        self.writer = uuid.uuid4().hex
        self._claims = self._claimed_us = 0
        self._pages: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._calls = ThreadPoolExecutor(CONCURRENT_CALLS_MAX, thread_name_prefix="hotspare-pages")
        self._under_way: list[Future[None]] = []

    def __enter__(self) -> _Writing:
        """Writes the first claim, which protects all pages that this writer writes."""
        self._claim(())
        self._pages = {hash_of(page): page for page in self._group.pages()}
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.shutdown()
        with contextlib.suppress(StoreError):
            self._group.release_claims(f"{self.writer},{number}" for number in range(self._claims))

    def hold(self, hashes: set[str]) -> set[str]:
        """Returns the hashes whose pages are stored, and protects these pages until this writer has ended. Waits for started writes
        first."""
        self.finish()
        wanted = {self._pages[each] for each in hashes if each in self._pages and each not in self._held}
        if wanted:
            self._claim(wanted)
            doomed = frozenset().union(*self._group.announced_deletions().values())
            there = self._group.pages()
            self._held |= {hash_of(page): page for page in wanted if page in there and page not in doomed}
        elif clock_us() - self._claimed_us > _CLAIM_EVERY_US:
            self._claim(())
        return hashes & self._held.keys()

    def write(self, name: str, content: bytes) -> None:
        """Starts to write a page; `finish` waits until it is written."""
        page = page_name(name, self.writer)
        self._held[name] = page
        self._under_way.append(self._calls.submit(self._group.bucket.put_object, self._group.page(page), content))

    def finish(self) -> None:
        """Waits for the writes that were started. Raises StoreError if one failed."""
        under_way, self._under_way = self._under_way, []
        for each in under_way:
            each.result()

    def stored_blob(self, blob: Blob) -> Blob:
        """Returns the blob with the name of its object in place of the hash."""
        return Blob(self._held[blob.hash], blob.size)

    def _claim(self, pages: Iterable[str]) -> None:
        self._claimed_us = clock_us()
        self._claims += 1
        self._group.write_claim(self.writer, self._claims - 1, self._claimed_us, pages)


@dataclass(frozen=True, slots=True)
class _HeldObjects:
    """A `Hold` (`stores.lazy_pages`): the claim of a reader, which writes no snapshot."""

    group: GroupObjects
    name: str

    def renew(self) -> None:
        self.group.write_claim(self.name, 0, clock_us(), ())

    def release(self) -> None:
        self.group.release_claims(f"{self.name},{number}" for number in range(2))


def _acquire_hold(group: GroupObjects, blobs: Sequence[Blob]) -> _HeldObjects | None:
    """Returns a claim that holds these pages; None if one is missing, or a collector may still delete it."""
    reader, wanted = _HeldObjects(group, uuid.uuid4().hex), {blob.hash for blob in blobs}
    group.write_claim(reader.name, 1, clock_us(), wanted)
    doomed = frozenset().union(*group.announced_deletions().values())
    if wanted & doomed or not wanted <= group.pages().keys():
        reader.release()
        return None
    return reader


def _collect(group: GroupObjects, known: dict[str, frozenset[str]], writer_timeout_s: float) -> None:
    """Deletes pages that no snapshot and no claim references, and the objects of dead writers. Deletes no page if a manifest has
    another format: the pages that it references cannot be read. After a StoreError the next call deletes the rest. `known`: see
    `pages_of`; keep it from call to call. `writer_timeout_s`: see `StoreSettings`."""
    with contextlib.suppress(StoreError):
        listing = group.snapshots()
        _abandon(group, listing, int(writer_timeout_s * 1e6))
        _remove_superseded(group, listing)
        doomed = group.announced_deletions()
        pages = group.pages().keys()
        group.retract_deletions(collector for collector, names in doomed.items() if not names & pages)
        candidates = set(pages) - _referenced_pages(group, pages, known)
        if candidates:
            collector = uuid.uuid4().hex
            group.announce_deletion(collector, candidates)
            try:
                named = _referenced_pages(group, candidates, known)
            except SnapshotFormat:
                group.retract_deletions([collector])
                raise
            group.bucket.delete(group.page(page) for page in candidates - named)
            group.retract_deletions([collector])
        _remove_strays(group, listing)


def _referenced_pages(group: GroupObjects, pages: Iterable[str], known: dict[str, frozenset[str]]) -> set[str]:
    """Returns the pages that snapshots, claims or living writers need. It reads the claims first, because a writer releases them
    after it has written its snapshot. Raises SnapshotFormat as `pages_of`."""
    claims = group.claims()
    listing = group.snapshots()
    named = claims.pages | pages_of(group, (entry for entry in listing.entries if entry.writer not in listing.abandoned), known)
    return named | {page for page in pages if writer_of(page) in claims.alive_us}


def _abandon(group: GroupObjects, listing: Listing, gone_us: int) -> None:
    """Abandons writers without a sign of life for `gone_us`, and removes their manifests and claims."""
    claims, clock = group.claims(), uuid.uuid4().hex
    unsealed = {entry.writer: entry for entry in listing.entries if entry.writer not in listing.sealed}
    if claims.alive_us:
        group.write_claim(clock, 0, clock_us(), ())
        claims = group.claims()
        group.release_claims([f"{clock},0"])
    now = claims.alive_us.pop(clock, 0)
    for writer in {**unsealed, **claims.alive_us}:
        if now - claims.alive_us.get(writer, _ENDED_US) <= gone_us:
            continue
        if writer not in listing.sealed and group.decide_seal(writer, ABANDONED) and writer in unsealed:
            group.remove_manifest(unsealed[writer])
        group.release_claims(claims.keys.get(writer, ()))


def _remove_superseded(group: GroupObjects, listing: Listing) -> None:
    """Removes older snapshots of a name, in case the writer of the newer one died before it did so."""
    for current in listing.current():
        for entry in listing.snapshots_named(current.name)[1:]:
            if group.decide_fate(entry.writer, REPLACED):
                group.remove(entry)
    for entry in listing.entries:
        if entry.writer in listing.replaced:
            group.remove(entry)


def _remove_strays(group: GroupObjects, before: Listing) -> None:
    """Removes seals and fates without a manifest, which is always written before them and deleted first."""
    there = {entry.writer for entry in group.snapshots().entries}
    group.remove_strays(before.sealed - there, (before.confirmed | before.replaced) - there)
