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
from hotspare.stores import later, limits
from hotspare.stores.changelog.records import GroupRecords, ManifestRecords, Said, key, value
from hotspare.stores.changelog.topics import Topic, parse_url
from hotspare.stores.content import Blob, blob_of, checksum_of
from hotspare.stores.contract import Access, Content, SnapshotInfo, StoredSnapshot
from hotspare.stores.memory import clock_us
from hotspare.stores.settings import DEFAULT, StoreSettings
from hotspare.stores.writing import HEADER, Given, checked, write_new

_T = TypeVar("_T")
FORMAT = 1
_READ_ANEW_S = 3600.0
_CLAIM_EVERY_US = 60_000_000
_WRITE_TRIES_MAX = 5
_CLAIMED_AT_ONCE = 2_000
"""The number of page names in one message."""
_UNFINISHED = "tmp-"
_CACHED_FILE = re.compile(rf"{_UNFINISHED}[0-9a-f]{{32}}|[0-9a-f]{{32}}-[0-9a-f]{{32}}")
"""The file names of such a cache: a page being written, and a page by its hash and its writer."""


@dataclass(frozen=True, slots=True)
class PagePlace:
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
        """UsageError if the URL names no brokers."""
        client, name, cache = parse_url(url)
        self._access, self._settings = access, settings
        topics = (Topic(client, f"{name}.{part}", access, settings.kafka_call_s) for part in ("manifests", "pages"))
        self._manifests, self._pages = topics
        self._cache = _PageCache(Path(cache) if cache else None)
        self._lock = threading.Lock()
        self._state = ManifestRecords()
        self._read_s = time.monotonic()
        self._known: dict[str, dict[str, PagePlace]] = {}

    def identity(self) -> str:
        if not (found := self._read(ManifestRecords.identity)):
            self._manifests.append([(f"id/{limits.new_identity()}", b"{}")])
            found = self._read(ManifestRecords.identity)
        if not limits.is_identity(found):
            raise limits.damaged_identity("the changelog", found)
        return found

    def put(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_snapshot(group, name, engine, order)
        given = checked(name, header, pages)
        for _ in range(_WRITE_TRIES_MAX):
            with _Writing(self, group) as writing:
                placed = writing.write(given)
                if (there := self._the_same(group, name, placed)) is not None:
                    return there
                total = sum(each.size for page, each in placed.items() if page != HEADER)
                told = {"name": name, "engine": engine, "order": order, "written_time_us": clock_us(), "bytes_total": total}
                shot = writing.publish(placed, told)
                if shot is not None:
                    self._replace(group, shot)
                    return self.group(group).info(shot)
        raise limits.gone_again(name)

    def confirm(self, group: str, name: str) -> None:
        shot = self._found(group, name)
        self._say(group, "confirmed", shot.of, uuid.uuid4().hex)
        after = self.group(group)
        if shot not in after.of("shot") or after.is_gone(shot):
            raise limits.gone(group, name)

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
            if self._is_gone(group, shot):
                raise limits.gone(group, name) from None
            raise limits.damaged(group, name, str(error)) from None
        is_large = shot.value["bytes_total"] > self._settings.at_once_bytes_max
        if is_large and (reader := self._holding(group, placed.values())) is not None:
            by_hash = {each.hash: each for each in placed.values()}

            def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
                return self._whole(group, shot, [by_hash[blob.hash] for blob in wanted])

            blobs = {page: Blob(each.hash, each.size) for page, each in placed.items()}
            header = blobs.pop(HEADER)
            pages = later.PagesLater(blobs, read, reader, self._settings)
            if self._is_gone(group, shot):
                raise limits.gone(group, name)
            return StoredSnapshot(read([header])[header.hash], pages)
        found = self._whole(group, shot, list(placed.values()))
        whole = {page: found[each.hash] for page, each in placed.items()}
        return StoredSnapshot(whole.pop(HEADER), whole)

    def _is_gone(self, group: str, shot: Said) -> bool:
        state = self.group(group)
        return state.is_gone(shot) or shot not in state.of("shot")

    def _holding(self, group: str, placed: Iterable[PagePlace]) -> _Reader | None:
        """Returns a claim that holds these pages; None if a collector may still delete one."""
        reader, names = _Reader(self, group, uuid.uuid4().hex), sorted(each.name for each in placed)
        reader.hold(names)
        if self.group(group).doomed() & set(names):
            reader.let_go()
            return None
        return reader

    def _whole(self, group: str, shot: Said, placed: Sequence[PagePlace]) -> dict[str, bytes]:
        """Returns contents of that snapshot by their hashes: all, or the error that `get` raises."""
        found = self._contents(placed)
        missing = sorted(each.name for each in placed if each.name not in found)
        if missing:
            if self._is_gone(group, shot):
                raise limits.gone(group, shot.value["name"])
            if self._access is Access.CHANGE:
                self._say(group, "doomed", uuid.uuid4().hex, pages=missing)
            raise limits.damaged(group, shot.value["name"], limits.missing_or_changed(f"page {missing[0]}"))
        return {each.hash: found[each.name] for each in placed}

    def keep(self, group: str, confirmed_max: int) -> None:
        limits.check_confirmed_max(confirmed_max)
        self._discard(group, set(limits.beyond(self.list(group), confirmed_max)))

    def forget(self, group: str) -> None:
        self._discard(group, {info.name for info in self.list(group)})

    def close(self) -> None:
        """Does nothing: the store holds no resources."""

    def group(self, name: str) -> GroupRecords:
        """Returns the records of the group as they are now."""
        return self._read(lambda state: state.group(name))

    def say(self, *records: tuple[str, bytes | None]) -> None:
        self._manifests.append(records)

    def write_page(self, name: str, content: bytes) -> PagePlace:
        self._pages.open()
        room = self._pages.chunk_bytes
        chunks = [content[begin : begin + room] for begin in range(0, len(content), room)] or [b""]
        offsets = self._pages.append((f"{name}/{number}", chunk) for number, chunk in enumerate(chunks))
        return PagePlace(name, len(content), tuple(offsets))

    def delete_pages(self, keys: Iterable[str]) -> None:
        self._pages.append((each, None) for each in keys)

    def page_keys(self, writers: set[str]) -> set[str]:
        """Returns the keys of pages that these writers wrote. Reads the whole topic: only for dead writers."""
        records = self._pages.read(0)
        found = {each.key: each.value is not None for each in records if each.key.partition("/")[0].partition("-")[2] in writers}
        return {each for each, is_there in found.items() if is_there}

    def manifest(self, shot: Said) -> dict[str, PagePlace]:
        """Returns header and pages by name. ValueError if the manifest is damaged, SnapshotFormat if it has another format."""
        if shot.of not in self._known:
            name, size, offsets = shot.value["manifest"]
            content = self._contents([PagePlace(name, size, tuple(offsets))]).get(name)
            if content is None:
                raise ValueError(limits.missing_or_changed("its manifest"))
            fields = json.loads(content)
            limits.check_format("a snapshot", fields["format"], FORMAT)
            self._known[shot.of] = {page: PagePlace(name, size, tuple(at)) for page, name, size, at in fields["pages"]}
        return self._known[shot.of]

    def named(self, shots: Iterable[Said]) -> dict[str, PagePlace]:
        """Returns pages by name, and the manifests themselves; a damaged manifest contributes only itself."""
        found: dict[str, PagePlace] = {}
        for shot in shots:
            name, size, offsets = shot.value["manifest"]
            found[name] = PagePlace(name, size, tuple(offsets))
            with contextlib.suppress(ValueError):
                found |= {each.name: each for each in self.manifest(shot).values()}
        return found

    def _read(self, ask: Callable[[ManifestRecords], _T]) -> _T:
        """Calls `ask` on the current state. A state read long ago is rebuilt, because tombstones are deleted after a day."""
        with self._lock:
            if time.monotonic() - self._read_s > _READ_ANEW_S:
                self._state = ManifestRecords()
            self._state.take(self._manifests.read(self._state.end))
            self._read_s = time.monotonic()
            return ask(self._state)

    def _say(self, group: str, kind: str, *of: str, **fields: object) -> None:
        self._manifests.append([(key(group, kind, *of), value(**fields))])

    def _found(self, group: str, name: str) -> Said:
        limits.check_name("group", group)
        found = self.group(group).named(name)
        if not found:
            raise limits.gone(group, name)
        return found[0]

    def _the_same(self, group: str, name: str, placed: Mapping[str, PagePlace]) -> SnapshotInfo | None:
        """Returns the stored snapshot if its content is the same. StoreError if one with another content is confirmed."""
        state = self.group(group)
        for shot in state.named(name)[:1]:
            try:
                old = self.manifest(shot)
            except ValueError:
                self._say(group, "dropped", shot.of)
                return None
            if {page: each.hash for page, each in old.items()} == {page: each.hash for page, each in placed.items()}:
                return state.info(shot)
            if state.is_confirmed(shot.of):
                raise limits.taken(group, name)
        return None

    def _replace(self, group: str, shot: Said) -> None:
        """Replaces older candidates of that name. StoreError if one was confirmed meanwhile, which is then kept."""
        others = [other for other in self.group(group).named(shot.value["name"]) if other.offset < shot.offset]
        for other in others:
            self._say(group, "replaced", other.of, uuid.uuid4().hex)
        if others:
            after = self.group(group)
            if any(after.is_confirmed(other.of) and not after.is_gone(other) for other in others):
                self._say(group, "dropped", shot.of)
                raise limits.taken(group, shot.value["name"])

    def _contents(self, wanted: Iterable[PagePlace]) -> dict[str, bytes]:
        """Returns the intact contents, from the cache if it has them."""
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
                self._cache.put(name, content)
        return found

    def _discard(self, group: str, names: set[str]) -> None:
        state = self.group(group)
        gone = [shot for shot in state.of("shot") if shot.value["name"] in names]
        self.say(*((key(group, "dropped", shot.of), value()) for shot in gone))
        with contextlib.suppress(StoreError):
            _collect(self, group, self._settings.writer_gone_s)
            shots = [shot for each in self._read(ManifestRecords.groups) for shot in self.group(each).of("shot")]
            there = {shot.of for shot in shots}
            self._known = {writer: pages for writer, pages in self._known.items() if writer in there}
            if self._cache.is_kept:
                self._cache.keep(set(self.named(shots)))


@dataclass(slots=True)
class _Reader:
    """A `Hold` (`stores.later`): claims without a write."""

    store: ChangelogStore
    group: str
    name: str
    count: int = 1

    def hold(self, pages: Sequence[str]) -> None:
        for begin in range(0, len(pages), _CLAIMED_AT_ONCE):
            self._claim(self.count, pages[begin : begin + _CLAIMED_AT_ONCE])
            self.count += 1

    def renew(self) -> None:
        self._claim(0, ())

    def let_go(self) -> None:
        self.store.say(*((key(self.group, "claim", self.name, str(number)), None) for number in range(self.count)))

    def _claim(self, number: int, pages: Sequence[str]) -> None:
        self.store.say((key(self.group, "claim", self.name, str(number)), value(alive_us=clock_us(), pages=list(pages))))


class _Writing:
    """The write of a snapshot, from claim to record. Deletes its pages if it does not publish, unless it dies or is unsure of the
    result."""

    def __init__(self, store: ChangelogStore, group: str) -> None:
        self._store, self._group, self.writer = store, group, uuid.uuid4().hex
        self._claims: list[str] = []
        self._claimed_us = 0
        self._there: dict[str, PagePlace] = {}
        self._held: dict[str, PagePlace] = {}
        self._written: list[PagePlace] = []
        self._is_published = self._is_unsure = False

    def __enter__(self) -> _Writing:
        self._claim(())
        self._there = {each.hash: each for each in self._named(self._store.group(self._group)).values()}
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_unsure:
            return  # a later collector finds its pages by the claims
        with contextlib.suppress(StoreError):
            if not self._is_published:
                self._store.delete_pages(name for placed in self._written for name in placed.keys)
            self._store.say(*((claim, None) for claim in self._claims))

    def write(self, given: Mapping[str, Given]) -> dict[str, PagePlace]:
        known = (getattr(content, "known", None) for content in given.values())
        self._hold({blob.hash for blob in known if isinstance(blob, Blob)})
        blobs = write_new(given, self._hold, self._write)
        return {page: self._held[blob.hash] for page, blob in blobs.items()}

    def publish(self, placed: Mapping[str, PagePlace], told: Mapping[str, object]) -> Said | None:
        """Publishes the snapshot; returns None if this writer was abandoned before."""
        pages = [[page, each.name, each.size, each.offsets] for page, each in placed.items()]
        body = json.dumps({"format": FORMAT, "pages": pages}).encode()
        manifest = self._written_page(blob_of(body).hash, body)
        place = [manifest.name, manifest.size, manifest.offsets]
        self._is_unsure = True  # if this fails, the snapshot may exist all the same
        self._store.say((key(self._group, "shot", self.writer), value(**told, manifest=place)))
        state = self._store.group(self._group)
        shot = next((shot for shot in state.of("shot") if shot.of == self.writer), None)
        if shot is None or state.is_abandoned(self.writer):
            self._store.say((key(self._group, "shot", self.writer), None))
            self._is_unsure = False
            return None
        self._is_published, self._is_unsure = True, False
        return shot

    def _hold(self, hashes: set[str]) -> set[str]:
        wanted = {self._there[each].name for each in hashes if each in self._there and each not in self._held}
        if wanted:
            self._claim(wanted)
            state = self._store.group(self._group)
            named = self._named(state)
            doomed = state.doomed()
            self._held |= {named[name].hash: named[name] for name in wanted if name in named and name not in doomed}
        elif clock_us() - self._claimed_us > _CLAIM_EVERY_US:
            self._claim(())
        return hashes & self._held.keys()

    def _write(self, name: str, content: bytes) -> None:
        self._held[name] = self._written_page(name, content)

    def _written_page(self, hash_: str, content: bytes) -> PagePlace:
        self._is_unsure = True
        placed = self._store.write_page(f"{hash_}-{self.writer}", content)
        self._is_unsure = False
        self._written.append(placed)
        return placed

    def _named(self, state: GroupRecords) -> dict[str, PagePlace]:
        """Returns the pages of current snapshots, except those of an unknown format."""
        found: dict[str, PagePlace] = {}
        for shot in state.of("shot"):
            if not state.is_gone(shot):
                with contextlib.suppress(SnapshotFormat):
                    found |= self._store.named([shot])
        return found

    def _claim(self, pages: Iterable[str]) -> None:
        self._claimed_us = clock_us()
        self._claims.append(key(self._group, "claim", self.writer, str(len(self._claims))))
        self._store.say((self._claims[-1], value(alive_us=self._claimed_us, pages=sorted(pages))))


def _collect(store: ChangelogStore, group: str, writer_gone_s: float) -> None:
    """Deletes pages that no snapshot names, by tombstones, then the records about them. SnapshotFormat if a snapshot has another
    format: it may name pages that cannot be read, and nothing is deleted. `writer_gone_s`: as in `StoreSettings`."""
    _abandon(store, group, int(writer_gone_s * 1e6))
    _end_superseded(store, group)
    state = store.group(group)
    gone = [shot for shot in state.of("shot") if state.is_gone(shot)]
    pages = store.named(gone)
    candidates = pages.keys() - store.named(_live(state)).keys() - state.claimed()
    if candidates:
        store.say((key(group, "doomed", uuid.uuid4().hex), value(pages=sorted(candidates))))
        state = store.group(group)
        going = candidates - store.named(_live(state)).keys() - state.claimed()
        store.delete_pages(each for name in sorted(going) for each in pages[name].keys)
    claimed = store.group(group).claimed()
    done = [shot for shot in gone if not store.named([shot]).keys() & claimed]
    _forget(store, state, done)
    _spare(store, group)


def _live(state: GroupRecords) -> list[Said]:
    return [shot for shot in state.of("shot") if not state.is_gone(shot)]


def _abandon(store: ChangelogStore, group: str, gone_us: int) -> None:
    """Ends writers without a recent sign of life, and deletes what they wrote in vain. Uses no host's clock, which might be
    wrong."""
    state = store.group(group)
    old = {writer for writer, alive_us in state.alive_us().items() if state.newest_us - alive_us > gone_us}
    store.say(*((key(group, "abandoned", writer), value()) for writer in sorted(old)))
    state = store.group(group)
    claims = [said for said in state.of("claim") if said.of not in state.alive_us()]
    dead = {said.of for said in claims} - {shot.of for shot in state.of("shot")}
    if dead:
        store.delete_pages(sorted(store.page_keys(dead)))
    store.say(*((said.key, None) for said in claims))


def _end_superseded(store: ChangelogStore, group: str) -> None:
    """Replaces candidates with a successor of the same name, whose writer died before it did so."""
    state = store.group(group)
    old = [shot for current in state.current() for shot in state.named(current.value["name"])[1:]]
    store.say(*((key(group, "replaced", shot.of, uuid.uuid4().hex), value()) for shot in old))


def _forget(store: ChangelogStore, state: GroupRecords, gone: list[Said]) -> None:
    """Deletes the record of the snapshot first, and those that invalidate it after it."""
    writers = {shot.of for shot in gone}
    store.say(*((shot.key, None) for shot in gone))
    there = {shot.of for shot in state.of("shot")} - writers
    kinds = ("confirmed", "replaced", "dropped")
    store.say(*((said.key, None) for kind in kinds for said in state.of(kind) if said.of not in there))


def _spare(store: ChangelogStore, group: str) -> None:
    """Deletes announcements whose pages no record names any more."""
    state = store.group(group)
    named = store.named(state.of("shot")).keys()
    store.say(*((said.key, None) for said in state.of("doomed") if not named & set(said.value["pages"])))


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

    def put(self, name: str, content: bytes) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                temporary = self._folder / f"{_UNFINISHED}{uuid.uuid4().hex}"
                temporary.write_bytes(content)
                temporary.replace(self._folder / name)

    def keep(self, names: set[str]) -> None:
        """Deletes all other pages."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                for path in self._folder.iterdir():
                    if path.name not in names and _CACHED_FILE.fullmatch(path.name):
                        path.unlink(missing_ok=True)
