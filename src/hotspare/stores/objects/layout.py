"""The objects of a group, and the meaning of their names. No object is written twice, except objects that only one writer writes.

    <root>/.store-id                                        the store's random id, created once
    <root>/<group>/pages/<xxh3-128>-<writer>                a page or header; its name is never used again after deletion
    <root>/<group>/claims/<writer>,<n>                      a sign of life of the writer, and the pages of other writers that it
needs
    <root>/<group>/doomed/<collector>                       pages that a collector is about to delete
    <root>/<group>/snapshots/<order>,<engine>,<name>,<time>,<bytes>,<writer>    a manifest
    <root>/<group>/snapshots/seal-<writer>                  created once: `whole` by the writer, or `abandoned` by a collector
    <root>/<group>/snapshots/fate-<writer>                  created once: `confirmed`, or `replaced`

A snapshot exists if its manifest does and its seal is `whole`. One listing shows everything, because the values of seals and fates
differ in length. `<writer>` is random, one for each write.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from hotspare.base.errors import SnapshotFormat, UsageError
from hotspare.stores import limits
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus
from hotspare.stores.directory_layout import Manifest, parse_manifest, quoted_file_name
from hotspare.stores.objects.bucket import Bucket

WHOLE, ABANDONED = b"whole", b"abandoned"
CONFIRMED, REPLACED = b"confirmed", b"replaced"
_SEAL, _FATE = "seal-", "fate-"
_KEY_BYTES_MAX = 700
"""Limit on the bytes of the group's folder and a key. S3 allows 1,024 bytes, with the bucket's prefix."""
_ORDER_DIGITS = 19


@dataclass(frozen=True, slots=True)
class ManifestObject:
    """A manifest; the fields are decoded from its key."""

    key: str
    order: int
    engine: str
    name: str
    written_time_us: int
    bytes_total: int
    writer: str

    def info(self, status: SnapshotStatus) -> SnapshotInfo:
        return SnapshotInfo(self.name, self.engine, self.order, status, self.written_time_us, self.bytes_total)


@dataclass(frozen=True, slots=True)
class Listing:
    """The snapshots of a group at one moment; the sets hold writers, by their seals and fates."""

    entries: tuple[ManifestObject, ...]
    sealed: frozenset[str]
    abandoned: frozenset[str]
    confirmed: frozenset[str]
    replaced: frozenset[str]

    def status(self, entry: ManifestObject) -> SnapshotStatus:
        return SnapshotStatus.CONFIRMED if entry.writer in self.confirmed else SnapshotStatus.CANDIDATE

    def snapshots_named(self, name: str) -> list[ManifestObject]:
        """Returns the sealed snapshots of that name that are not replaced; the first is the current one. There are others if their
        writers' successors died before replacing them."""
        found = [e for e in self.entries if e.name == name and e.writer in self.sealed and e.writer not in self.replaced]
        return sorted(found, key=lambda e: (e.writer in self.confirmed, e.written_time_us, e.writer), reverse=True)

    def current(self) -> list[ManifestObject]:
        return [self.snapshots_named(name)[0] for name in sorted({e.name for e in self.entries}) if self.snapshots_named(name)]


@dataclass(slots=True)
class Claims:
    """The claims of all writers of a group. `alive_us`: the last sign of life of each writer. `keys`: the keys of each writer's
    claims. `pages`: the pages of other writers on which any of them relies."""

    alive_us: dict[str, int] = field(default_factory=dict)
    keys: dict[str, list[str]] = field(default_factory=dict)
    pages: set[str] = field(default_factory=set)


class GroupObjects:
    """The keys of one group, and the content of its objects."""

    def __init__(self, bucket: Bucket, group: str) -> None:
        limits.check_name("group", group)
        self.bucket, self.group, self._folder = bucket, group, quoted_file_name(group)

    def entry(self, info: SnapshotInfo, writer: str) -> ManifestObject:
        """Returns the manifest of a snapshot by `writer`, with its key. Raises UsageError if the names are too long together."""
        names = f"{quoted_file_name(info.engine)},{quoted_file_name(info.name)}"
        key = f"{info.order:0{_ORDER_DIGITS}d},{names},{info.written_time_us},{info.bytes_total},{writer}"
        if len(self._folder) + len(key) > _KEY_BYTES_MAX:
            hint = "use shorter engine and snapshot names"
            raise UsageError(f"snapshot name {info.name[:40]!r} is too long for an object", hint=hint)
        return ManifestObject(key, info.order, info.engine, info.name, info.written_time_us, info.bytes_total, writer)

    def snapshots(self) -> Listing:
        sizes = self.bucket.sizes(self.path("snapshots"))
        entries = (entry for key in sizes if (entry := _entry_of(key)) is not None)
        return Listing(
            tuple(sorted(entries, key=lambda entry: (-entry.order, entry.name))),
            sealed=_writers(sizes, _SEAL, WHOLE),
            abandoned=_writers(sizes, _SEAL, ABANDONED),
            confirmed=_writers(sizes, _FATE, CONFIRMED),
            replaced=_writers(sizes, _FATE, REPLACED),
        )

    def path(self, *key: str) -> str:
        return "/".join((self._folder, *key))

    def page(self, name: str) -> str:
        return self.path("pages", name)

    def pages(self) -> dict[str, int]:
        return self.bucket.sizes(self.path("pages"))

    def manifest(self, entry: ManifestObject) -> Manifest | None:
        """Returns the manifest, None if it does not exist. Raises ValueError if it is damaged, SnapshotFormat if it has another
        format."""
        text = self.bucket.get_object(self.path("snapshots", entry.key))
        return None if text is None else parse_manifest(text)

    def decide(self, kind: str, writer: str, said: bytes) -> bool:
        """Writes a seal or fate, unless it exists; returns whether its value is `said`."""
        key = self.path("snapshots", kind + writer)
        return self.bucket.create(key, said) or self.bucket.get_object(key) == said

    def decide_seal(self, writer: str, said: bytes) -> bool:
        return self.decide(_SEAL, writer, said)

    def decide_fate(self, writer: str, said: bytes) -> bool:
        return self.decide(_FATE, writer, said)

    def remove(self, entry: ManifestObject) -> None:
        """Removes the manifest, then seal and fate: the snapshot exists only while its manifest does."""
        self.remove_manifest(entry)
        self.remove_strays([entry.writer], [entry.writer])

    def remove_manifest(self, entry: ManifestObject) -> None:
        self.bucket.delete([self.path("snapshots", entry.key)])

    def remove_strays(self, seals: Iterable[str], fates: Iterable[str]) -> None:
        keys = [_SEAL + writer for writer in seals] + [_FATE + writer for writer in fates]
        self.bucket.delete(self.path("snapshots", key) for key in keys)

    def write_manifest(self, entry: ManifestObject, text: bytes) -> None:
        self.bucket.put_object(self.path("snapshots", entry.key), text)

    def write_claim(self, writer: str, number: int, alive_us: int, pages: Iterable[str]) -> None:
        text = json.dumps({"alive_us": alive_us, "pages": sorted(pages)})
        self.bucket.put_object(self.path("claims", f"{writer},{number}"), text.encode())

    def claims(self) -> Claims:
        """Returns all claims of the group. Times are by the storage's clock if its driver reports it, else by the writer's."""
        found, listed = Claims(), self.bucket.list_objects(self.path("claims"))
        texts = self.bucket.call_concurrently(self.bucket.get_object, (self.path("claims", key) for key in listed))
        for (key, each), text in zip(listed.items(), texts, strict=True):
            writer = key.partition(",")[0]
            if text is not None:
                claim = json.loads(text)
                alive_us = claim["alive_us"] if each.written_us is None else each.written_us
                found.alive_us[writer] = max(alive_us, found.alive_us.get(writer, 0))
                found.keys.setdefault(writer, []).append(key)
                found.pages.update(claim["pages"])
        return found

    def release_claims(self, keys: Iterable[str]) -> None:
        self.bucket.delete(self.path("claims", key) for key in keys)

    def announce_deletion(self, collector: str, pages: Iterable[str]) -> None:
        self.bucket.put_object(self.path("doomed", collector), json.dumps(sorted(pages)).encode())

    def announced_deletions(self) -> dict[str, frozenset[str]]:
        """Returns the pages about to be deleted, by collector."""
        keys = list(self.bucket.sizes(self.path("doomed")))
        texts = self.bucket.call_concurrently(self.bucket.get_object, (self.path("doomed", key) for key in keys))
        return {key: frozenset(json.loads(text)) for key, text in zip(keys, texts, strict=True) if text is not None}

    def retract_deletions(self, collectors: Iterable[str]) -> None:
        """Removes the announcements of these collectors, which have ended."""
        self.bucket.delete(self.path("doomed", key) for key in collectors)


def page_name(hash_: str, writer: str) -> str:
    return f"{hash_}-{writer}"


def writer_of(page: str) -> str:
    return page.rpartition("-")[2]


def hash_of(page: str) -> str:
    return page.partition("-")[0]


def _writers(sizes: Mapping[str, int], kind: str, said: bytes) -> frozenset[str]:
    return frozenset(key.removeprefix(kind) for key, size in sizes.items() if key.startswith(kind) and size == len(said))


def _entry_of(key: str) -> ManifestObject | None:
    """Returns the manifest that a key describes; None if it is not the key of a manifest."""
    parts = key.split(",")
    if len(parts) != 6 or not all(part.isdecimal() for part in (parts[0], parts[3], parts[4])):
        return None
    order, written, total = int(parts[0]), int(parts[3]), int(parts[4])
    return ManifestObject(key, order, unquote(parts[1]), unquote(parts[2]), written, total, parts[5])


def pages_of(group: GroupObjects, entries: Iterable[ManifestObject], known: dict[str, frozenset[str]]) -> set[str]:
    """Returns the pages that the manifests of `entries` reference; damaged ones reference none. Raises SnapshotFormat if one has
    another format. A manifest never changes: its pages are kept in `known`, as long as it is among `entries`."""

    def pages(entry: ManifestObject) -> frozenset[str]:
        try:
            manifest = None if entry.writer in known else group.manifest(entry)
        except SnapshotFormat:
            raise
        except ValueError:
            return frozenset()
        if manifest is None:
            return known.get(entry.writer, frozenset())
        return frozenset(blob.hash for blob in manifest.blobs)

    asked = list(entries)
    found = dict(zip((entry.writer for entry in asked), group.bucket.call_concurrently(pages, asked), strict=True))
    known.clear()
    known.update({writer: names for writer, names in found.items() if names})
    return set().union(*found.values())
