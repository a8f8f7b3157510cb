"""Snapshots in a folder of this machine, or one that several machines mount and that honours fsync, rename and flock.

The order of every write makes it safe to stop anywhere: pages, then their folder, then the manifest by rename, then its folder.
directory_layout.py defines the files, directory_claims.py keeps collectors away from writers. Uses plain `os` and `pathlib`: fsspec
has neither fsync nor locks; object storage has a protocol of its own (`objects`).
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hotspare.base.errors import SnapshotFormat, StoreError
from hotspare.stores import limits
from hotspare.stores.content import Blob, blob_of
from hotspare.stores.contract import Access, Content, SnapshotInfo, SnapshotStatus, StoredSnapshot
from hotspare.stores.directory_claims import Claim, claim_lost
from hotspare.stores.directory_layout import (
    Entry,
    GroupFolder,
    Manifest,
    as_store_error,
    manifest_text,
    parse_manifest,
    store_identity,
    sync_folder,
    write_atomically,
)
from hotspare.stores.settings import DEFAULT, StoreSettings

_PAGES_PER_CLAIM = 16
_UNWRITTEN = Blob("", 0)
_FULL = errno.ENOSPC, errno.EDQUOT


class DirectoryStore:
    """A `Store` (contract) in the folder `root`, which is created unless `access` is LOOK. Between calls it holds no locks except
    the claims on large snapshots that are still being read."""

    def __init__(self, root: Path, access: Access = Access.CHANGE, settings: StoreSettings = DEFAULT) -> None:
        self._root, self._access, self._settings = root.absolute(), access, settings
        if access is Access.CHANGE:
            with as_store_error("create", self._root):
                self._root.mkdir(parents=True, exist_ok=True)

    def identity(self) -> str:
        with as_store_error("identify", self._root):
            return store_identity(self._root)

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_name("snapshot", name)
        limits.check_name("engine", engine)
        limits.check_order(order)
        folder = GroupFolder(self._root, group)
        entry = folder.entry(order, engine, name)
        with as_store_error("write", entry.path), _collecting_if_full(folder):
            folder.create()
            with folder.claiming() as claim:
                blobs = _write_pages(folder, claim, name, pages)
                new = Manifest(time.time_ns() // 1000, _write(folder, claim, header), blobs)
                there = folder.find(name)
                if there is not None:
                    old = _intact_manifest(there)
                    if old is not None and old.has_same_content(new):
                        return _info(there, old)
                    if old is not None and there.is_confirmed(old):
                        raise limits.already_confirmed(group, name)
                return _write_manifest(folder, claim, entry, there, new)

    def confirm(self, group: str, name: str) -> None:
        folder, entry = GroupFolder(self._root, group), self._find(group, name)
        with as_store_error("confirm", entry.path):
            try:
                manifest = entry.read()
            except FileNotFoundError as error:
                raise limits.snapshot_missing(group, name) from error
            except ValueError as error:
                raise limits.snapshot_damaged(group, name, str(error)) from error
            if not all(folder.has_manifest_page(blob) for blob in manifest.blobs):
                raise limits.snapshot_damaged(group, name, "a page of it is missing")
            if not entry.is_confirmed(manifest):
                entry.confirm(manifest)
                if not entry.path.exists():
                    raise limits.snapshot_missing(group, name)

    def discard(self, group: str, name: str) -> None:
        folder = GroupFolder(self._root, group)
        entry = folder.find(name)
        if entry is not None:
            _remove(entry)
            folder.collect()

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        """Returns the snapshots. A damaged manifest is listed with 0 bytes; `get` reports the damage."""
        return [_info(entry, manifest) for entry, manifest in _manifests(GroupFolder(self._root, group))]

    def get(self, group: str, name: str) -> StoredSnapshot:
        folder = GroupFolder(self._root, group)
        entry = self._find(group, name)
        manifest: Manifest | None = None
        with as_store_error("read", entry.path):
            try:
                manifest = entry.read()
                is_large = manifest.bytes_total > self._settings.eager_bytes_max
                claim = folder.hold(manifest) if is_large else None
                pages: Mapping[str, bytes] = _Pages(folder, entry, manifest, self._access, claim)
                if not is_large:
                    pages = dict(pages)
                return StoredSnapshot(folder.read_blob(manifest.header), pages)
            except (FileNotFoundError, ValueError) as error:
                raise _unreadable(folder, entry, manifest, self._access, error) from error

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        """Discards old snapshots. A damaged one does not count, and is removed when `confirmed_max` intact ones are newer."""
        limits.check_confirmed_max(confirmed_max)
        folder = GroupFolder(self._root, group)
        kept = 0
        for entry, manifest in _manifests(folder):
            if manifest is not None and not entry.is_confirmed(manifest):
                continue
            if kept >= confirmed_max:
                _remove(entry)
            elif manifest is not None:
                kept += 1
        folder.collect()

    def discard_group(self, group: str) -> None:
        folder = GroupFolder(self._root, group)
        for entry in folder.entries():
            _remove(entry)
        folder.collect()

    def close(self) -> None:
        """Does nothing: the store holds no resources."""

    def _find(self, group: str, name: str) -> Entry:
        entry = GroupFolder(self._root, group).find(name)
        if entry is None:
            raise limits.snapshot_missing(group, name)
        return entry


def _write_pages(
    folder: GroupFolder, claim: Claim, name: str, pages: Iterable[tuple[str, bytes | Content]]
) -> tuple[tuple[str, Blob], ...]:
    """Writes pages in batches, each under one claim, because every claim is synced to the disk. Returns the blob of each page, in
    order. Raises UsageError or StoreError for invalid or duplicate names."""
    blobs: dict[str, Blob] = {}
    seen: set[str] = set()
    some: dict[str, Content] = {}
    for page, content in pages:
        limits.check_name("page", page)
        if page in seen:
            raise limits.duplicate_page(name, page)
        seen.add(page)
        if isinstance(content, bytes):
            blobs[page] = _write(folder, claim, content)
        else:
            blobs[page] = _UNWRITTEN
            some[page] = content
        if len(some) == _PAGES_PER_CLAIM:
            blobs |= _write_new(folder, claim, some)
            some = {}
    return tuple((blobs | _write_new(folder, claim, some)).items())


def _write(folder: GroupFolder, claim: Claim, content: bytes) -> Blob:
    blob = blob_of(content)
    claim.add([blob.hash])
    folder.write_blob(blob, content, claim)
    return blob


def _write_new(folder: GroupFolder, claim: Claim, contents: Mapping[str, Content]) -> dict[str, Blob]:
    """Writes the contents that are not stored yet; returns the blob of each page."""
    known = {page: blob for page, blob in ((page, each.store_key) for page, each in contents.items()) if isinstance(blob, Blob)}
    claim.add([blob.hash for blob in known.values()])
    there = {page: blob for page, blob in known.items() if folder.has_blob(blob)}
    new = {page: content.encode() for page, content in contents.items() if page not in there}
    written = {page: blob_of(content) for page, content in new.items()}
    claim.add([blob.hash for blob in written.values()])
    for page, blob in written.items():
        folder.write_blob(blob, new[page], claim)
        contents[page].set_store_key(blob)
    return there | written


def _write_manifest(folder: GroupFolder, claim: Claim, entry: Entry, replaced: Entry | None, manifest: Manifest) -> SnapshotInfo:
    """Writes the manifest, after all pages are on the disk. Raises StoreError if a collector may have deleted pages because the
    claim was lost."""
    sync_folder(folder.pages)
    text = manifest_text(manifest)
    if not claim.is_still_claimed:
        raise claim_lost(entry.name)
    write_atomically(entry.path, text, claim)
    if replaced is not None and replaced.path != entry.path:
        replaced.path.unlink(missing_ok=True)
    sync_folder(folder.folder)
    return _info(entry, parse_manifest(text))


def _intact_manifest(entry: Entry) -> Manifest | None:
    """Returns the manifest, None if it is damaged. Raises FileNotFoundError if it does not exist, SnapshotFormat if it has another
    format."""
    try:
        return entry.read()
    except ValueError:
        return None


def _manifests(folder: GroupFolder) -> Iterator[tuple[Entry, Manifest | None]]:
    """Yields each entry with its manifest (None if unreadable), greatest order first; skips entries discarded meanwhile."""
    for entry in folder.entries():
        with as_store_error("read", entry.path):
            try:
                manifest = _intact_manifest(entry)
            except FileNotFoundError:
                continue
            except SnapshotFormat:
                manifest = None
        yield entry, manifest


def _remove(entry: Entry) -> None:
    with as_store_error("discard", entry.path):
        entry.remove()


def _info(entry: Entry, manifest: Manifest | None) -> SnapshotInfo:
    return SnapshotInfo(
        name=entry.name,
        engine=entry.engine,
        order=entry.order,
        status=SnapshotStatus.CONFIRMED if entry.is_confirmed(manifest) else SnapshotStatus.CANDIDATE,
        written_time_us=manifest.written_time_us if manifest else 0,
        bytes_total=manifest.bytes_total if manifest else 0,
    )


@contextlib.contextmanager
def _collecting_if_full(folder: GroupFolder) -> Iterator[None]:
    """Context manager: deletes the remains of a failed write at once if the disk is full, because later writes would fail, too."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            folder.collect()
        raise


class _Pages(Mapping[str, bytes]):
    """The pages of a snapshot, read and checked on access; `claim` protects them from collectors. Access raises StoreError, or
    SnapshotDamaged for a damaged page."""

    def __init__(self, folder: GroupFolder, entry: Entry, manifest: Manifest, access: Access, claim: Claim | None) -> None:
        self._folder, self._entry, self._manifest, self._access = folder, entry, manifest, access
        self._blobs = dict(manifest.pages)
        self._claim = claim

    def store_key_of(self, page: str) -> Blob:
        """Returns the value for `Content.set_store_key` of the page."""
        return self._blobs[page]

    def prefetch_pages(self, pages: Sequence[str]) -> None:
        """Asks the operating system to read the files of these pages ahead."""
        for page in pages:
            self._folder.read_ahead(self._blobs[page])

    def __getitem__(self, page: str) -> bytes:
        blob = self._blobs[page]
        with as_store_error("read", self._entry.path):
            try:
                return self._folder.read_blob(blob)
            except ValueError as error:
                raise _unreadable(self._folder, self._entry, self._manifest, self._access, error) from error

    def __contains__(self, page: object) -> bool:
        return page in self._blobs

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


def _unreadable(folder: GroupFolder, entry: Entry, manifest: Manifest | None, access: Access, error: Exception) -> StoreError:
    """Returns the error for an unreadable snapshot, after deleting its damaged pages (not with Access.LOOK)."""
    if not entry.path.exists():
        return limits.snapshot_missing(folder.group, entry.name)  # discarded during the read: not damage
    if manifest is not None and access is Access.CHANGE:
        folder.drop_damaged(manifest)
    return limits.snapshot_damaged(folder.group, entry.name, str(error))
