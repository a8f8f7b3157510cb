"""The files of a snapshot folder: content-addressed blobs, manifests, markers, and how unreferenced ones are collected.

    <root>/.store-id                                   the store's random id
    <root>/<group>/lock                                held by the collector
    <root>/<group>/claims/                             pages that writers rely on (`directory_claims`)
    <root>/<group>/pages/<xxh3-128 of the content>     a page or header; an existing one is not written again
    <root>/<group>/<order>,<engine>,<name>.snapshot    a manifest: lists the content; its presence makes the snapshot
    <root>/<group>/<order>,<engine>,<name>.confirmed   the checksum of the manifest that was confirmed
    <root>/<group>/pages/hidden-...                    about to be deleted, unless a writer relies on it
    tmp-<claim>-... in either folder                   being written

Order, engine and name are in the file's name, so that a snapshot whose manifest is damaged is still listed and gets reported. The
marker holds the manifest's checksum: a marker left behind can never confirm another snapshot of the same name, and a half-written
one confirms nothing.

A page is deleted only if no manifest and no writer's claim names it. Claims end with their process, also by `kill -9`: remains of a
crashed write are garbage from then on, whatever their age. Writers never wait. A collector gives way to an active one, and to other
versions if it finds a manifest of another format, which may name pages that it cannot read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from hotspare.base.errors import StoreError, UsageError
from hotspare.base.retry import Retry
from hotspare.stores import limits
from hotspare.stores.content import Blob, checksum_of
from hotspare.stores.directory_claims import Claim, claimed_pages_by_claim, claiming

FORMAT = 1
FILE_NAME_BYTES_MAX = 240
LOCK_WAIT_S = 10.0
_LOCK_PAUSE_S = 0.01
_ORDER_DIGITS = 19
_MANIFEST = ".snapshot"
_MARKER = ".confirmed"
_TEMPORARY = "tmp-"
_HIDDEN = "hidden-"
_IDENTITY_FILE = ".store-id"
"""The file with the store's id. The name begins with a dot, so that it is not the folder of a group."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content list of a snapshot. `checksum` is that of all other fields in encoded form; "" before encoding."""

    written_time_us: int
    header: Blob
    pages: tuple[tuple[str, Blob], ...]
    checksum: str = ""

    @property
    def bytes_total(self) -> int:
        return sum(blob.size for _, blob in self.pages)

    @property
    def blobs(self) -> tuple[Blob, ...]:
        return (self.header, *(blob for _, blob in self.pages))

    def has_same_content(self, other: Manifest) -> bool:
        return self.header == other.header and self.pages == other.pages


@dataclass(frozen=True, slots=True)
class Entry:
    """A manifest file; the fields are decoded from its name."""

    path: Path
    order: int
    engine: str
    name: str

    @property
    def marker(self) -> Path:
        return self.path.with_suffix(_MARKER)

    def read(self) -> Manifest:
        """Returns the manifest. Raises FileNotFoundError if it does not exist, ValueError if it is damaged, SnapshotFormat if it
        has another format."""
        return parse_manifest(self.path.read_bytes())

    def is_confirmed(self, manifest: Manifest | None) -> bool:
        """Whether the marker has the checksum of this manifest. For an unreadable manifest (None) any marker counts; reading the
        snapshot fails anyway."""
        try:
            marker = self.marker.read_bytes()
        except OSError:
            return False
        return manifest is None or marker == manifest.checksum.encode()

    def confirm(self, manifest: Manifest) -> None:
        with self.marker.open("wb") as file:
            file.write(manifest.checksum.encode())
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.marker.parent)

    def remove(self) -> None:
        """Removes manifest and marker; the manifest first, because the snapshot exists exactly while its manifest does."""
        self.path.unlink(missing_ok=True)
        self.marker.unlink(missing_ok=True)
        sync_folder(self.path.parent)


@contextlib.contextmanager
def as_store_error(verb: str, path: Path) -> Iterator[None]:
    """Converts OSError to StoreError, with the path and the system's reason."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {verb} {path.name}", detail=f"{path}: {error.strerror or error}") from error


def quoted_file_name(text: str) -> str:
    """Returns a reversible file name for free text. It quotes a leading dot, which would hide the file or name a parent folder, and
    commas, which separate the parts of names here."""
    name = quote(text, safe="@+=:#")
    return "%2E" + name[1:] if name.startswith(".") else name


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, content: bytes, claim: Claim) -> None:
    """Writes and syncs the file atomically: it appears complete or not at all. The caller must sync the folder."""
    temporary = path.parent / f"{_TEMPORARY}{claim.name}-{uuid.uuid4().hex}"
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def manifest_text(manifest: Manifest) -> bytes:
    """Encodes a manifest; the first line is the checksum of the rest."""
    body = json.dumps(
        {
            "format": FORMAT,
            "written_time_us": manifest.written_time_us,
            "header": [manifest.header.hash, manifest.header.size],
            "pages": [[page, blob.hash, blob.size] for page, blob in manifest.pages],
        }
    ).encode()
    return checksum_of(body).encode() + b"\n" + body


def parse_manifest(text: bytes) -> Manifest:
    """Decodes a manifest. Raises ValueError if it is damaged, SnapshotFormat if it has another format."""
    checksum, separator, body = text.partition(b"\n")
    if not separator or checksum_of(body).encode() != checksum:
        raise ValueError("its manifest is truncated or its checksum differs")
    fields: dict[str, Any] = json.loads(body)
    limits.check_format("a snapshot", fields["format"], FORMAT)
    pages = tuple((page, Blob(digest, size)) for page, digest, size in fields["pages"])
    return Manifest(fields["written_time_us"], Blob(*fields["header"]), pages, checksum.decode())


def _names_of(blob: Blob) -> tuple[str, str, str]:
    """Returns the file names to try, in order, for a page of a manifest: a collector may hide or restore it meanwhile."""
    return blob.hash, _HIDDEN + blob.hash, blob.hash


def _entry_of(path: Path) -> Entry | None:
    """Returns the entry that the file's name describes; None if it is not the name of a manifest."""
    parts = path.stem.split(",")
    if len(parts) != 3 or not parts[0].isdecimal():
        return None
    return Entry(path, int(parts[0]), unquote(parts[1]), unquote(parts[2]))


@contextlib.contextmanager
def _locked(path: Path, mode: int, wait_s: float, what: str) -> Iterator[int]:
    """Yields the handle of a locked file, which is created if missing. Raises StoreError if the lock is not free within
    `wait_s`."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        lock = Retry(lasting_s=wait_s, pause_s=_LOCK_PAUSE_S)
        try:
            lock.call(lambda: fcntl.flock(handle, mode | fcntl.LOCK_NB), lambda error: isinstance(error, BlockingIOError))
        except BlockingIOError:
            message = f"{what} are locked by another process (waited {wait_s:g} s)"
            raise StoreError(message, hint="retry, or end that process") from None
        yield handle
    finally:
        os.close(handle)


def store_identity(root: Path) -> str:
    """Returns the id of the store at `root`. Creates it under a lock if there is none, or only a partly written one."""
    path = root / _IDENTITY_FILE
    with contextlib.suppress(FileNotFoundError):
        if limits.is_identity(known := path.read_text("ascii", "replace")):
            return known
    with _locked(path, fcntl.LOCK_EX, LOCK_WAIT_S, "the store's files"):
        if not limits.is_identity(known := path.read_text("ascii", "replace")):
            known = limits.new_identity()
            with path.open("w", encoding="ascii") as file:
                file.write(known)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(root)
    return known


class GroupFolder:
    """The folder of one group: its paths, its lock, its entries and blobs."""

    def __init__(self, root: Path, group: str) -> None:
        limits.check_name("group", group)
        self.group = group
        self.folder = root / quoted_file_name(group)
        self.pages = self.folder / "pages"
        self.claims = self.folder / "claims"
        if len(self.folder.name) > FILE_NAME_BYTES_MAX:
            raise UsageError(f"group name {group[:40]!r} is too long for a folder", hint="use a shorter prefix")

    def create(self) -> None:
        if not (self.pages.is_dir() and self.claims.is_dir()):
            self.pages.mkdir(parents=True, exist_ok=True)
            self.claims.mkdir(exist_ok=True)
            sync_folder(self.folder)
            sync_folder(self.folder.parent)

    def entry(self, order: int, engine: str, name: str) -> Entry:
        """Returns the entry of a snapshot with these properties. Raises UsageError if the names are too long together."""
        stem = f"{order:0{_ORDER_DIGITS}d},{quoted_file_name(engine)},{quoted_file_name(name)}"
        if len(stem) > FILE_NAME_BYTES_MAX:
            raise UsageError(f"snapshot name {name[:40]!r} is too long for a file", hint="use shorter engine and snapshot names")
        return Entry(self.folder / (stem + _MANIFEST), order, engine, name)

    def entries(self) -> list[Entry]:
        """Returns the entries, greatest order first, then by name. Raises StoreError if they cannot be listed."""
        with as_store_error("list snapshots in", self.folder):
            try:
                paths = [path for path in self.folder.iterdir() if path.name.endswith(_MANIFEST)]
            except FileNotFoundError:
                return []
        entries = [entry for entry in map(_entry_of, paths) if entry is not None]
        return sorted(entries, key=lambda entry: (-entry.order, entry.name))

    def find(self, name: str) -> Entry | None:
        return next((entry for entry in self.entries() if entry.name == name), None)

    def claiming(self) -> contextlib.AbstractContextManager[Claim]:
        """Returns a context manager with the claim that `write_blob` and `write_atomically` need."""
        return claiming(self.claims)

    def write_blob(self, blob: Blob, content: bytes, claim: Claim) -> None:
        """Writes the blob unless a file of that name and size exists. The caller has claimed it."""
        if not self.has_blob(blob):
            write_atomically(self.pages / blob.hash, content, claim)

    def has_blob(self, blob: Blob) -> bool:
        """Whether a file of that name and size exists. Only a caller that claimed the blob before can rely on the answer."""
        return self._has(blob.hash, blob)

    def has_manifest_page(self, blob: Blob) -> bool:
        """Whether the page of a manifest exists, also while a collector hides or restores it."""
        return any(self._has(name, blob) for name in _names_of(blob))

    def _has(self, name: str, blob: Blob) -> bool:
        try:
            return (self.pages / name).stat().st_size == blob.size
        except FileNotFoundError:
            return False

    def hold(self, manifest: Manifest) -> Claim | None:
        """Returns a claim on the pages of a snapshot for later reads; None if the folder is not writable. Raises ValueError if a
        page is missing."""
        claim: Claim | None = None
        with contextlib.suppress(OSError):
            claim = Claim.for_reader(self.claims, [blob.hash for blob in manifest.blobs])
        there = {name.removeprefix(_HIDDEN) for name in os.listdir(self.pages)}  # noqa: PTH208 - half the time, of many pages
        missing = next((blob.hash for blob in manifest.blobs if blob.hash not in there), None)
        if missing is not None:
            raise ValueError(f"page file {missing} is missing")
        return claim

    def read_ahead(self, blob: Blob) -> None:
        """Asks the operating system to read the blob ahead; best effort."""
        with contextlib.suppress(OSError):
            handle = os.open(self.pages / blob.hash, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.posix_fadvise(handle, 0, blob.size, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(handle)

    def read_blob(self, blob: Blob) -> bytes:
        """Reads a blob. Raises ValueError if it is missing or damaged."""
        content: bytes | None = None
        for name in _names_of(blob):
            with contextlib.suppress(FileNotFoundError):
                content = (self.pages / name).read_bytes()
                break
        if content is None:
            raise ValueError(f"page file {blob.hash} is missing")
        if len(content) != blob.size or checksum_of(content) != blob.hash:
            raise ValueError(f"page file {blob.hash} is truncated or its checksum differs")
        return content

    def drop_damaged(self, manifest: Manifest) -> None:
        """Deletes the damaged blobs of a manifest, so that the next write stores them again instead of relying on them."""
        with contextlib.suppress(StoreError, OSError), self._collecting():
            for blob in manifest.blobs:
                try:
                    self.read_blob(blob)
                except ValueError:
                    (self.pages / blob.hash).unlink(missing_ok=True)

    def collect(self) -> None:
        """Deletes unreferenced files. Does nothing if another collector is active or a manifest has another format."""
        with contextlib.suppress(StoreError, OSError), self._collecting():
            left = [path for folder in (self.folder, self.pages) for path in folder.iterdir() if path.name.startswith(_TEMPORARY)]
            markers = [path for path in self.folder.iterdir() if path.suffix == _MARKER]
            writers = claimed_pages_by_claim(self.claims)
            entries = self.entries()
            self._collect_pages(self._referenced_pages())
            kept = {entry.marker for entry in entries}
            for path in (path for path in markers if path not in kept):
                path.unlink(missing_ok=True)
            for path in (path for path in left if path.name.split("-")[1] not in writers):
                path.unlink(missing_ok=True)

    def _collect_pages(self, named: set[str]) -> None:
        """Hides pages that are not in `named`, reads claims and manifests again, deletes the hidden pages that nothing names, and
        unhides the rest."""
        try:
            for path in list(self.pages.iterdir()):
                if path.name not in named and not path.name.startswith((_TEMPORARY, _HIDDEN)):
                    path.rename(path.with_name(_HIDDEN + path.name))
            named = self._referenced_pages()
            for path in self.pages.glob(_HIDDEN + "*"):
                if path.name.removeprefix(_HIDDEN) not in named:
                    path.unlink()
        finally:
            for path in list(self.pages.glob(_HIDDEN + "*")):
                path.rename(path.with_name(path.name.removeprefix(_HIDDEN)))

    @contextlib.contextmanager
    def _collecting(self) -> Iterator[None]:
        """Context manager: holds the collector's lock. Raises StoreError at once if another process holds it."""
        with _locked(self.folder / "lock", fcntl.LOCK_EX, 0.0, f"the snapshots of group {self.group}"):
            yield

    def _referenced_pages(self) -> set[str]:
        """Returns the pages that claims or manifests name. It reads the claims first, because a writer releases its claim after it
        has written its manifest."""
        named = {name for names in claimed_pages_by_claim(self.claims).values() for name in names}
        for entry in self.entries():
            with contextlib.suppress(ValueError, FileNotFoundError):
                named.update(blob.hash for blob in entry.read().blobs)
        return named
