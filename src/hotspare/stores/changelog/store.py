"""Snapshots in a compacted topic of Kafka: the changelog (SPEC G5). All files on a machine's disk are a cache.

`<name>.pages` has the pages, in chunks that fit a message; `<name>.manifests`, of one partition, has all the rest (`records`). A
manifest records the offset of each chunk, so that a page is read without its neighbours, and a list of snapshots reads no pages.

A writer claims other writers' pages before it relies on them; a collector first announces which pages it will delete. Both
records are in one topic, whose order all processes see alike: a claim after the announcement does not hold the page, and a page
claimed before it is kept. A writer without a sign of life for too long is abandoned, in the same topic; a snapshot that it
publishes later does not count, and it writes again. So neither a frozen writer nor a frozen collector does harm, and no process
waits for one.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hotspare.base.errors import SnapshotFormat, StoreError
from hotspare.stores import lazy_pages, limits
from hotspare.stores.changelog.records import ChangelogRecord, GroupRecords, ManifestRecords, changelog_key, changelog_value
from hotspare.stores.changelog.topics import Topic, parse_url
from hotspare.stores.content import Blob, blob_of, checksum_of
from hotspare.stores.contract import Access, Content, SnapshotInfo, StoredSnapshot
from hotspare.stores.memory import clock_us
from hotspare.stores.settings import DEFAULT, StoreSettings
from hotspare.stores.writing import HEADER, Given, checked_contents, write_new

_T = TypeVar("_T")
FORMAT = 1
_REBUILD_AFTER_S = 3600.0
_CLAIM_EVERY_US = 60_000_000
_WRITE_TRIES_MAX = 5
_PAGES_PER_CLAIM = 2_000
"""Limit on the page names in one claim."""
_UNFINISHED = "tmp-"
_CACHED_FILE = re.compile(rf"{_UNFINISHED}[0-9a-f]{{32}}|[0-9a-f]{{32}}-[0-9a-f]{{32}}")
"""The names of files in the folder of `?cache=`: a page being written, and a page by its hash and its writer."""


@dataclass(frozen=True, slots=True)
class PageLocation:
    """A page in the topic: its name is its hash and its writer's id; `offsets` are those of its chunks."""

    name: str
    size: int
    offsets: tuple[int, ...]

    @property
    def hash(self) -> str:
        return self.name.partition("-")[0]

    @property
    def keys(self) -> list[str]:
        return [f"{self.name}/{number}" for number in range(len(self.offsets))]


class ChangelogStore:
    """A `Store` (contract)."""

    def __init__(self, url: str, access: Access = Access.CHANGE, settings: StoreSettings = DEFAULT) -> None:
        """Raises UsageError if the URL names no brokers."""
        client, name, cache = parse_url(url)
        self._access, self._settings = access, settings
        topics = (Topic(client, f"{name}.{part}", access, settings.kafka_call_s) for part in ("manifests", "pages"))
        self._manifests, self._pages = topics
        self._cache = _PageCache(Path(cache) if cache else None)
        self._lock = threading.Lock()
        self._state = ManifestRecords()
        self._read_s = time.monotonic()
        self._known: dict[str, dict[str, PageLocation]] = {}

    def identity(self) -> str:
        if not (found := self._read(ManifestRecords.identity)):
            self._manifests.append([(f"id/{limits.new_identity()}", b"{}")])
            found = self._read(ManifestRecords.identity)
        if not limits.is_identity(found):
            raise limits.damaged_identity("the changelog", found)
        return found

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_snapshot(group, name, engine, order)
        given = checked_contents(name, header, pages)
        for _ in range(_WRITE_TRIES_MAX):
            with _Writing(self, group) as writing:
                placed = writing.write(given)
                if (there := self._same_snapshot(group, name, placed)) is not None:
                    return there
                total = sum(each.size for page, each in placed.items() if page != HEADER)
                told = {"name": name, "engine": engine, "order": order, "written_time_us": clock_us(), "bytes_total": total}
                shot = writing.publish(placed, told)
                if shot is not None:
                    self._replace(group, shot)
                    return self.group(group).info(shot)
        raise limits.pages_deleted_repeatedly(name)

    def confirm(self, group: str, name: str) -> None:
        shot = self._found(group, name)
        self._append_fields(group, "confirmed", shot.writer_id, uuid.uuid4().hex)
        after = self.group(group)
        if shot not in after.records_of_kind("shot") or after.is_discarded(shot):
            raise limits.snapshot_missing(group, name)

    def discard(self, group: str, name: str) -> None:
        self._discard(group, {name})

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        limits.check_name("group", group)
        state = self.group(group)
        return limits.newest_first(state.info(shot) for shot in state.current())

    def get(self, group: str, name: str) -> StoredSnapshot:
        shot = self._found(group, name)
        try:
            placed = self.manifest(shot)
        except ValueError as error:
            if self._is_discarded(group, shot):
                raise limits.snapshot_missing(group, name) from None
            raise limits.snapshot_damaged(group, name, str(error)) from None
        is_large = shot.value["bytes_total"] > self._settings.eager_bytes_max
        if is_large and (reader := self._acquire_hold(group, placed.values())) is not None:
            by_hash = {each.hash: each for each in placed.values()}

            def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
                return self._all_contents(group, shot, [by_hash[blob.hash] for blob in wanted])

            blobs = {page: Blob(each.hash, each.size) for page, each in placed.items()}
            header = blobs.pop(HEADER)
            pages = lazy_pages.LazyPages(blobs, read, reader, self._settings)
            if self._is_discarded(group, shot):
                raise limits.snapshot_missing(group, name)
            return StoredSnapshot(read([header])[header.hash], pages)
        found = self._all_contents(group, shot, list(placed.values()))
        whole = {page: found[each.hash] for page, each in placed.items()}
        return StoredSnapshot(whole.pop(HEADER), whole)

    def _is_discarded(self, group: str, shot: ChangelogRecord) -> bool:
        state = self.group(group)
        return state.is_discarded(shot) or shot not in state.records_of_kind("shot")

    def _acquire_hold(self, group: str, placed: Iterable[PageLocation]) -> _Reader | None:
        """Returns a claim that holds these pages; None if a collector may still delete one."""
        reader, names = _Reader(self, group, uuid.uuid4().hex), sorted(each.name for each in placed)
        reader.hold(names)
        if self.group(group).pages_to_delete() & set(names):
            reader.release()
            return None
        return reader

    def _all_contents(self, group: str, shot: ChangelogRecord, placed: Sequence[PageLocation]) -> dict[str, bytes]:
        """Returns the contents of all pages in `placed`, by hash. Raises the errors of `get` if one of them is missing or
        damaged."""
        found = self._contents(placed)
        missing = sorted(each.name for each in placed if each.name not in found)
        if missing:
            if self._is_discarded(group, shot):
                raise limits.snapshot_missing(group, shot.value["name"])
            if self._access is Access.CHANGE:
                self._append_fields(group, "doomed", uuid.uuid4().hex, pages=missing)
            raise limits.snapshot_damaged(group, shot.value["name"], limits.missing_or_changed(f"page {missing[0]}"))
        return {each.hash: found[each.name] for each in placed}

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        limits.check_confirmed_max(confirmed_max)
        self._discard(group, set(limits.excess_snapshots(self.list(group), confirmed_max)))

    def discard_group(self, group: str) -> None:
        self._discard(group, {info.name for info in self.list(group)})

    def close(self) -> None:
        """Does nothing: the store holds no resources."""

    def group(self, name: str) -> GroupRecords:
        """Returns the records of the group as they are now."""
        return self._read(lambda state: state.group(name))

    def append_records(self, *records: tuple[str, bytes | None]) -> None:
        self._manifests.append(records)

    def write_page(self, name: str, content: bytes) -> PageLocation:
        self._pages.open()
        room = self._pages.chunk_bytes
        chunks = [content[begin : begin + room] for begin in range(0, len(content), room)] or [b""]
        offsets = self._pages.append((f"{name}/{number}", chunk) for number, chunk in enumerate(chunks))
        return PageLocation(name, len(content), tuple(offsets))

    def delete_pages(self, keys: Iterable[str]) -> None:
        self._pages.append((each, None) for each in keys)

    def page_keys(self, writers: set[str]) -> set[str]:
        """Returns the keys of pages that these writers wrote. Reads the whole topic: only for dead writers."""
        records = self._pages.read(0)
        found = {each.key: each.value is not None for each in records if each.key.partition("/")[0].partition("-")[2] in writers}
        return {each for each, is_there in found.items() if is_there}

    def manifest(self, shot: ChangelogRecord) -> dict[str, PageLocation]:
        """Returns header and pages by name. Raises ValueError if the manifest is damaged, SnapshotFormat if it has another
        format."""
        if shot.writer_id not in self._known:
            name, size, offsets = shot.value["manifest"]
            content = self._contents([PageLocation(name, size, tuple(offsets))]).get(name)
            if content is None:
                raise ValueError(limits.missing_or_changed("its manifest"))
            fields = json.loads(content)
            limits.check_format("a snapshot", fields["format"], FORMAT)
            self._known[shot.writer_id] = {page: PageLocation(name, size, tuple(at)) for page, name, size, at in fields["pages"]}
        return self._known[shot.writer_id]

    def referenced_pages(self, shots: Iterable[ChangelogRecord]) -> dict[str, PageLocation]:
        """Returns the locations of all pages that the snapshots reference, and of their manifests, by name. For a snapshot with a
        damaged manifest, returns only the location of the manifest."""
        found: dict[str, PageLocation] = {}
        for shot in shots:
            name, size, offsets = shot.value["manifest"]
            found[name] = PageLocation(name, size, tuple(offsets))
            with contextlib.suppress(ValueError):
                found |= {each.name: each for each in self.manifest(shot).values()}
        return found

    def _read(self, ask: Callable[[ManifestRecords], _T]) -> _T:
        """Returns the result of `ask` on the current state. A state last read an hour ago is rebuilt, because Kafka deletes
        tombstones after a day, so that reading on would miss them."""
        with self._lock:
            if time.monotonic() - self._read_s > _REBUILD_AFTER_S:
                self._state = ManifestRecords()
            self._state.apply_records(self._manifests.read(self._state.end))
            self._read_s = time.monotonic()
            return ask(self._state)

    def _append_fields(self, group: str, kind: str, *of: str, **fields: object) -> None:
        self._manifests.append([(changelog_key(group, kind, *of), changelog_value(**fields))])

    def _found(self, group: str, name: str) -> ChangelogRecord:
        limits.check_name("group", group)
        found = self.group(group).snapshots_named(name)
        if not found:
            raise limits.snapshot_missing(group, name)
        return found[0]

    def _same_snapshot(self, group: str, name: str, placed: Mapping[str, PageLocation]) -> SnapshotInfo | None:
        """Returns the stored snapshot if its content is the same. Raises StoreError if one with different content is confirmed."""
        state = self.group(group)
        for shot in state.snapshots_named(name)[:1]:
            try:
                old = self.manifest(shot)
            except ValueError:
                self._append_fields(group, "dropped", shot.writer_id)
                return None
            if {page: each.hash for page, each in old.items()} == {page: each.hash for page, each in placed.items()}:
                return state.info(shot)
            if state.is_confirmed(shot.writer_id):
                raise limits.already_confirmed(group, name)
        return None

    def _replace(self, group: str, shot: ChangelogRecord) -> None:
        """Replaces older candidates of the name of `shot`. Raises StoreError, after dropping `shot`, if one of them was confirmed
        meanwhile."""
        others = [other for other in self.group(group).snapshots_named(shot.value["name"]) if other.offset < shot.offset]
        for other in others:
            self._append_fields(group, "replaced", other.writer_id, uuid.uuid4().hex)
        if others:
            after = self.group(group)
            if any(after.is_confirmed(other.writer_id) and not after.is_discarded(other) for other in others):
                self._append_fields(group, "dropped", shot.writer_id)
                raise limits.already_confirmed(group, shot.value["name"])

    def _contents(self, wanted: Iterable[PageLocation]) -> dict[str, bytes]:
        """Returns the contents by page name, from the cache if possible; missing and damaged ones are left out."""
        placed = {each.name: each for each in wanted}
        found = {name: content for name in placed if (content := self._cache.get(name)) is not None}
        missing = {name: each for name, each in placed.items() if name not in found}
        chunks: dict[str, bytes] = {}
        places = [place for each in missing.values() for place in zip(each.keys, each.offsets, strict=True)]
        if places:
            self._pages.read_at(places, chunks.__setitem__)
        for name, each in missing.items():
            content = b"".join(chunks.get(each_key, b"") for each_key in each.keys)
            if all(each_key in chunks for each_key in each.keys) and blob_of(content) == Blob(each.hash, each.size):
                found[name] = content
                self._cache.add_page(name, content)
        return found

    def _discard(self, group: str, names: set[str]) -> None:
        state = self.group(group)
        gone = [shot for shot in state.records_of_kind("shot") if shot.value["name"] in names]
        self.append_records(*((changelog_key(group, "dropped", shot.writer_id), changelog_value()) for shot in gone))
        with contextlib.suppress(StoreError):
            _collect(self, group, self._settings.writer_timeout_s)
            shots = [shot for each in self._read(ManifestRecords.groups) for shot in self.group(each).records_of_kind("shot")]
            there = {shot.writer_id for shot in shots}
            self._known = {writer: pages for writer, pages in self._known.items() if writer in there}
            if self._cache.is_kept:
                self._cache.retain_only(set(self.referenced_pages(shots)))


@dataclass(slots=True)
class _Reader:
    """A `Hold` (`stores.lazy_pages`): the claims of one reader, which writes no snapshot."""

    store: ChangelogStore
    group: str
    name: str
    count: int = 1

    def hold(self, pages: Sequence[str]) -> None:
        for begin in range(0, len(pages), _PAGES_PER_CLAIM):
            self._claim(self.count, pages[begin : begin + _PAGES_PER_CLAIM])
            self.count += 1

    def renew(self) -> None:
        self._claim(0, ())

    def release(self) -> None:
        self.store.append_records(
            *((changelog_key(self.group, "claim", self.name, str(number)), None) for number in range(self.count))
        )

    def _claim(self, number: int, pages: Sequence[str]) -> None:
        self.store.append_records(
            (changelog_key(self.group, "claim", self.name, str(number)), changelog_value(alive_us=clock_us(), pages=list(pages)))
        )


class _Writing:
    """A context manager for the write of a snapshot, from claim to record. Its end deletes the written pages if the snapshot was
    not published, but not if a failed request left that unknown: then a later collector deletes them."""

    def __init__(self, store: ChangelogStore, group: str) -> None:
        self._store, self._group, self.writer = store, group, uuid.uuid4().hex
        self._claims: list[str] = []
        self._claimed_us = 0
        self._there: dict[str, PageLocation] = {}
        self._held: dict[str, PageLocation] = {}
        self._written: list[PageLocation] = []
        self._is_published = self._is_unsure = False

    def __enter__(self) -> _Writing:
        self._claim(())
        self._there = {each.hash: each for each in self._referenced_pages(self._store.group(self._group)).values()}
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_unsure:
            return  # a later collector finds its pages by the claims
        with contextlib.suppress(StoreError):
            if not self._is_published:
                self._store.delete_pages(name for placed in self._written for name in placed.keys)
            self._store.append_records(*((claim, None) for claim in self._claims))

    def write(self, given: Mapping[str, Given]) -> dict[str, PageLocation]:
        known = (getattr(content, "store_key", None) for content in given.values())
        self._hold({blob.hash for blob in known if isinstance(blob, Blob)})
        blobs = write_new(given, self._hold, self._write)
        return {page: self._held[blob.hash] for page, blob in blobs.items()}

    def publish(self, placed: Mapping[str, PageLocation], told: Mapping[str, object]) -> ChangelogRecord | None:
        """Publishes the snapshot; returns None if this writer was abandoned before."""
        pages = [[page, each.name, each.size, each.offsets] for page, each in placed.items()]
        body = json.dumps({"format": FORMAT, "pages": pages}).encode()
        manifest = self._written_page(blob_of(body).hash, body)
        place = [manifest.name, manifest.size, manifest.offsets]
        self._is_unsure = True  # if this fails, the snapshot may exist all the same
        self._store.append_records((changelog_key(self._group, "shot", self.writer), changelog_value(**told, manifest=place)))
        state = self._store.group(self._group)
        shot = next((shot for shot in state.records_of_kind("shot") if shot.writer_id == self.writer), None)
        if shot is None or state.is_abandoned(self.writer):
            self._store.append_records((changelog_key(self._group, "shot", self.writer), None))
            self._is_unsure = False
            return None
        self._is_published, self._is_unsure = True, False
        return shot

    def _hold(self, hashes: set[str]) -> set[str]:
        wanted = {self._there[each].name for each in hashes if each in self._there and each not in self._held}
        if wanted:
            self._claim(wanted)
            state = self._store.group(self._group)
            named = self._referenced_pages(state)
            doomed = state.pages_to_delete()
            self._held |= {named[name].hash: named[name] for name in wanted if name in named and name not in doomed}
        elif clock_us() - self._claimed_us > _CLAIM_EVERY_US:
            self._claim(())
        return hashes & self._held.keys()

    def _write(self, name: str, content: bytes) -> None:
        self._held[name] = self._written_page(name, content)

    def _written_page(self, hash_: str, content: bytes) -> PageLocation:
        self._is_unsure = True
        placed = self._store.write_page(f"{hash_}-{self.writer}", content)
        self._is_unsure = False
        self._written.append(placed)
        return placed

    def _referenced_pages(self, state: GroupRecords) -> dict[str, PageLocation]:
        """Returns the pages of current snapshots, except those of an unknown format."""
        found: dict[str, PageLocation] = {}
        for shot in state.records_of_kind("shot"):
            if not state.is_discarded(shot):
                with contextlib.suppress(SnapshotFormat):
                    found |= self._store.referenced_pages([shot])
        return found

    def _claim(self, pages: Iterable[str]) -> None:
        self._claimed_us = clock_us()
        self._claims.append(changelog_key(self._group, "claim", self.writer, str(len(self._claims))))
        self._store.append_records((self._claims[-1], changelog_value(alive_us=self._claimed_us, pages=sorted(pages))))


def _collect(store: ChangelogStore, group: str, writer_timeout_s: float) -> None:
    """Deletes the pages of discarded snapshots that no valid snapshot and no claim references, then the records of these snapshots.
    Raises SnapshotFormat, and deletes no page, if a snapshot has another format: the pages that it references cannot be read.
    `writer_timeout_s`: see `StoreSettings`."""
    _abandon(store, group, int(writer_timeout_s * 1e6))
    _end_superseded(store, group)
    state = store.group(group)
    gone = [shot for shot in state.records_of_kind("shot") if state.is_discarded(shot)]
    pages = store.referenced_pages(gone)
    candidates = pages.keys() - store.referenced_pages(_live(state)).keys() - state.claimed_pages()
    if candidates:
        store.append_records((changelog_key(group, "doomed", uuid.uuid4().hex), changelog_value(pages=sorted(candidates))))
        state = store.group(group)
        going = candidates - store.referenced_pages(_live(state)).keys() - state.claimed_pages()
        store.delete_pages(each for name in sorted(going) for each in pages[name].keys)
    claimed = store.group(group).claimed_pages()
    done = [shot for shot in gone if not store.referenced_pages([shot]).keys() & claimed]
    _delete_snapshot_records(store, state, done)
    _retract_deletions(store, group)


def _live(state: GroupRecords) -> list[ChangelogRecord]:
    return [shot for shot in state.records_of_kind("shot") if not state.is_discarded(shot)]


def _abandon(store: ChangelogStore, group: str, gone_us: int) -> None:
    """Abandons writers without a sign of life for `gone_us`, and deletes the pages of those that published no snapshot. All times
    are the brokers', because the clock of a host may be wrong."""
    state = store.group(group)
    old = {writer for writer, alive_us in state.alive_us().items() if state.newest_us - alive_us > gone_us}
    store.append_records(*((changelog_key(group, "abandoned", writer), changelog_value()) for writer in sorted(old)))
    state = store.group(group)
    claims = [said for said in state.records_of_kind("claim") if said.writer_id not in state.alive_us()]
    dead = {said.writer_id for said in claims} - {shot.writer_id for shot in state.records_of_kind("shot")}
    if dead:
        store.delete_pages(sorted(store.page_keys(dead)))
    store.append_records(*((said.key, None) for said in claims))


def _end_superseded(store: ChangelogStore, group: str) -> None:
    """Marks older snapshots of a name as replaced, in case the writer of the newer one died before it did so."""
    state = store.group(group)
    old = [shot for current in state.current() for shot in state.snapshots_named(current.value["name"])[1:]]
    store.append_records(*((changelog_key(group, "replaced", shot.writer_id, uuid.uuid4().hex), changelog_value()) for shot in old))


def _delete_snapshot_records(store: ChangelogStore, state: GroupRecords, gone: list[ChangelogRecord]) -> None:
    """Deletes the records of the snapshots `gone`, and only then the confirmations, replacements and discards of snapshots without
    a record."""
    writers = {shot.writer_id for shot in gone}
    store.append_records(*((shot.key, None) for shot in gone))
    there = {shot.writer_id for shot in state.records_of_kind("shot")} - writers
    kinds = ("confirmed", "replaced", "dropped")
    store.append_records(
        *((said.key, None) for kind in kinds for said in state.records_of_kind(kind) if said.writer_id not in there)
    )


def _retract_deletions(store: ChangelogStore, group: str) -> None:
    """Deletes the announcements whose pages no snapshot's record references any more."""
    state = store.group(group)
    named = store.referenced_pages(state.records_of_kind("shot")).keys()
    store.append_records(*((said.key, None) for said in state.records_of_kind("doomed") if not named & set(said.value["pages"])))


class _PageCache:
    """Pages on a machine's disk, in a folder that several engines share and that may be deleted at any time; None caches nothing. A
    missing or damaged page is read from the topic again. Raises no errors and deletes no files of other programs."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    @property
    def is_kept(self) -> bool:
        return self._folder is not None

    def get(self, name: str) -> bytes | None:
        """Returns the page; None if it is missing or damaged."""
        if self._folder is None:
            return None
        with contextlib.suppress(OSError):
            content = (self._folder / name).read_bytes()
            return content if checksum_of(content) == name.partition("-")[0] else None
        return None

    def add_page(self, name: str, content: bytes) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                temporary = self._folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
                temporary.write_bytes(content)
                temporary.replace(self._folder / name)

    def retain_only(self, names: set[str]) -> None:
        """Deletes all cached pages except `names`."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                for path in self._folder.iterdir():
                    if path.name not in names and _CACHED_FILE.fullmatch(path.name):
                        path.unlink(missing_ok=True)
