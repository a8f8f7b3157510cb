"""Snapshots in object storage: S3 and what speaks like it, by fsspec.

Pages first, then the manifest, then the seal, which is made by compare-and-set (`If-None-Match` of S3) and makes it a snapshot. How
the objects are named is in `layout`, how collectors keep off writers in `collecting`. What is asked of the storage: an object is
written whole or not at all, a listing shows what was written before, and of several that make the same object one succeeds. Storage
that does not keep the last is refused: with writing and reading alone nobody can decide between a frozen writer and a collector.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from hotspare.base.errors import SnapshotFormat, StoreError
from hotspare.stores import later, limits
from hotspare.stores.content import Blob, blob_of
from hotspare.stores.contract import Access, Content, SnapshotInfo, SnapshotStatus, StoredSnapshot
from hotspare.stores.directory_layout import Manifest, manifest_text
from hotspare.stores.memory import clock_us
from hotspare.stores.objects.bucket import Bucket
from hotspare.stores.objects.collecting import Writing, collect, holding
from hotspare.stores.objects.layout import CONFIRMED, REPLACED, WHOLE, GroupObjects, Listing, ManifestObject, hash_of
from hotspare.stores.settings import DEFAULT, StoreSettings
from hotspare.stores.writing import HEADER, Given, checked, write_new

_IDENTITY, _PROBE = ".store-id", ".probe-"
_WRITE_TRIES_MAX = 5


class ObjectStore:
    """A `Store` (contract). Of a snapshot's pages, eight are on their way at once."""

    def __init__(self, url: str, access: Access = Access.CHANGE, settings: StoreSettings = DEFAULT) -> None:
        """UsageError where the URL names none."""
        self._bucket, self._access, self._settings = Bucket(url), access, settings
        self._is_checked = False
        self._named: dict[str, frozenset[str]] = {}

    def identity(self) -> str:
        self._check()
        made = limits.new_identity()
        if self._bucket.create(_IDENTITY, made.encode()):
            return made
        found = (self._bucket.get(_IDENTITY) or b"").decode("ascii", "replace")
        if not limits.is_identity(found):
            raise StoreError("the id of the object storage is damaged", detail=found[:40])
        return found

    def put(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_snapshot(group, name, engine, order)
        objects = GroupObjects(self._bucket, group)
        objects.entry(SnapshotInfo(name, engine, order, SnapshotStatus.CANDIDATE, clock_us(), limits.ORDER_MAX), uuid.uuid4().hex)
        self._check()
        given = checked(name, header, pages)
        for _ in range(_WRITE_TRIES_MAX):
            if (info := _written(objects, name, engine, order, given)) is not None:
                return info
        raise limits.gone_again(name)

    def confirm(self, group: str, name: str) -> None:
        objects = GroupObjects(self._bucket, group)
        entry = _found(objects, name)
        if not objects.fate(entry.writer, CONFIRMED) or entry not in objects.snapshots().entries:
            raise limits.gone(group, name)

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
            raise limits.damaged(group, name, str(error)) from None
        if manifest is None:
            raise limits.gone(group, name)
        is_large = manifest.bytes_total > self._settings.at_once_bytes_max
        if is_large and (reader := holding(objects, manifest.blobs)) is not None:
            placed = {hash_of(blob.hash): blob for blob in manifest.blobs}

            def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
                found = self._contents(objects, entry, [placed[blob.hash] for blob in wanted])
                return {hash_of(each): content for each, content in found.items()}

            pages = later.PagesLater(
                {page: Blob(hash_of(b.hash), b.size) for page, b in manifest.pages}, read, reader, self._settings
            )
            if entry not in objects.snapshots().entries:
                raise limits.gone(group, name)
            return StoredSnapshot(self._contents(objects, entry, [manifest.header])[manifest.header.hash], pages)
        blobs = sorted({blob.hash: blob for blob in manifest.blobs}.values(), key=lambda blob: blob.hash)
        whole = self._contents(objects, entry, blobs)
        return StoredSnapshot(whole[manifest.header.hash], {page: whole[blob.hash] for page, blob in manifest.pages})

    def _contents(self, objects: GroupObjects, entry: ManifestObject, blobs: Sequence[Blob]) -> dict[str, bytes]:
        """Of that snapshot: all, or what `get` raises."""
        contents = self._bucket.each(self._bucket.get, (objects.page(blob.hash) for blob in blobs))
        found = {blob.hash: content for blob, content in zip(blobs, contents, strict=True) if _is_whole(blob, content)}
        damaged = [blob.hash for blob in blobs if blob.hash not in found]
        if damaged:
            if entry not in objects.snapshots().entries:
                raise limits.gone(objects.group, entry.name)
            if self._access is Access.CHANGE:
                self._bucket.delete(map(objects.page, damaged))
            raise limits.damaged(objects.group, entry.name, f"object {damaged[0]} is missing or its checksum differs")
        return {each: content for each, content in found.items() if content is not None}

    def keep(self, group: str, confirmed_max: int) -> None:
        limits.check_confirmed_max(confirmed_max)
        self._discard(group, set(limits.beyond(self.list(group), confirmed_max)))

    def forget(self, group: str) -> None:
        self._discard(group, {info.name for info in self.list(group)})

    def close(self) -> None:
        """Nothing to give back."""

    def _discard(self, group: str, names: set[str]) -> None:
        objects = GroupObjects(self._bucket, group)
        if names:
            for entry in objects.snapshots().entries:
                if entry.name in names:
                    objects.remove_manifest(entry)
        collect(objects, self._named, self._settings.writer_gone_s)

    def _check(self) -> None:
        """StoreError where the storage makes an object twice."""
        if self._is_checked:
            return
        key = _PROBE + uuid.uuid4().hex
        self._bucket.create(key, b"")
        is_refused = not self._bucket.create(key, b"twice")
        self._bucket.delete([key])
        if not is_refused:
            raise StoreError(
                "this object storage makes an object that is there already", hint="use one with conditional writes (If-None-Match)"
            )
        self._is_checked = True


def _found(objects: GroupObjects, name: str) -> ManifestObject:
    found = objects.snapshots().named(name)
    if not found:
        raise limits.gone(objects.group, name)
    return found[0]


def _is_whole(blob: Blob, content: bytes | None) -> bool:
    return content is not None and blob_of(content) == Blob(hash_of(blob.hash), blob.size)


def _written(objects: GroupObjects, name: str, engine: str, order: int, given: Mapping[str, Given]) -> SnapshotInfo | None:
    """One try; None where the writer was taken for dead meanwhile, and what it wrote may be gone."""
    with Writing(objects) as writing:
        writing.hold({blob.hash for content in given.values() if isinstance(blob := getattr(content, "known", None), Blob)})
        blobs = write_new(given, writing.hold, writing.write)
        writing.finish()
        placed = {page: writing.placed(blob) for page, blob in blobs.items()}
        header = placed.pop(HEADER)
        listing = objects.snapshots()
        before = listing.named(name)
        written_us = max([clock_us(), *(entry.written_time_us + 1 for entry in before)])
        manifest = Manifest(written_us, header, tuple(placed.items()))
        if before and (there := _the_same(objects, listing, before[0], manifest)) is not None:
            return there
        info = SnapshotInfo(name, engine, order, SnapshotStatus.CANDIDATE, manifest.written_time_us, manifest.bytes_total)
        entry = objects.entry(info, writing.writer)
        objects.write_manifest(entry, manifest_text(manifest))
        if not objects.seal(writing.writer, WHOLE):
            objects.remove_manifest(entry)
            return None
        _replace(objects, entry)
    return info


def _the_same(objects: GroupObjects, listing: Listing, entry: ManifestObject, manifest: Manifest) -> SnapshotInfo | None:
    """What is there, if its content is the same. StoreError where it has another one and is confirmed."""
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
        raise limits.taken(objects.group, entry.name)
    return None


def _contents(manifest: Manifest) -> tuple[str, list[tuple[str, str]]]:
    return hash_of(manifest.header.hash), [(page, hash_of(blob.hash)) for page, blob in manifest.pages]


def _replace(objects: GroupObjects, entry: ManifestObject) -> None:
    """End what this one takes the place of. StoreError where that was confirmed meanwhile: then it stays, and this one goes. Of two
    that are written at once the greater one stays, whoever looks."""
    listing = objects.snapshots()
    found = listing.named(entry.name)
    below = found[found.index(entry) + 1 :] if entry in found else []
    is_ended = any(other.writer in listing.confirmed and other != entry for other in found)
    if is_ended or not all(objects.fate(other.writer, REPLACED) for other in below):
        objects.remove(entry)
        raise limits.taken(objects.group, entry.name)
    for other in below:
        objects.remove(other)
