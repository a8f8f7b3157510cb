"""Snapshots in Redis: a single server or a cluster, configured to persist to disk.

    hotspare:store                     the random id
    hotspare:{<group>}:content:<hash>  the content of pages and headers, named by its checksum
    hotspare:{<group>}:refs            hash: content to the number of snapshots that name it
    hotspare:{<group>}:infos           hash: name of a snapshot to its entry in `list`; its presence makes it a snapshot
    hotspare:{<group>}:manifests       hash: name to its header and pages, by the hashes of their contents
    hotspare:{<group>}:confirmed       hash: names of the confirmed snapshots
    hotspare:{<group>}:readers         hash: id of a reader to the manifest of the large snapshot that it reads
    hotspare:{<group>}:alive           sorted set: the last sign of life of each reader

Contents are written first; then one script on the server writes the snapshot, if all its contents are stored. Content that expired
meanwhile, for instance because the writer was frozen, is written again. Content is stored while a snapshot references it: `refs`
counts the snapshots. Content without a reference expires by itself, so the content of a dead writer is deleted.

Each atomic step is a script on the server (`_HOLD` to `_RELEASE_HOLD`). All keys of a group are in one slot of a cluster.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import redis

from hotspare.stores import lazy_pages, limits
from hotspare.stores.content import Blob, blob_of
from hotspare.stores.contract import Access, Content, SnapshotInfo, SnapshotStatus, StoredSnapshot
from hotspare.stores.memory import clock_us
from hotspare.stores.redis.server import server_of
from hotspare.stores.settings import DEFAULT, StoreSettings
from hotspare.stores.writing import HEADER, Given, checked_contents, in_batches, write_new

_PUBLISH_TRIES_MAX = 5
_ALL_DEAD_READERS = ""
_RENEWALS_PER_CALL = 1_000
"""Limit on the contents whose expiry one call extends; the server serves no other request during a call."""
_HOLD = """
local found = {}
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 0 then redis.call('EXPIRE', KEYS[i], ARGV[1]) end
    found[#found + 1] = ARGV[i]
  end
end
return found
"""
"""A Lua script. KEYS: refs, content ...; ARGV: seconds, hash .... Returns the hashes whose contents exist, after setting the expiry
of unreferenced ones to `seconds`."""

_WRITE = """
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('SET', KEYS[2], ARGV[3])
else
  redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[1])
end
"""
"""A Lua script that stores a content, which expires after `seconds` unless a snapshot references it. KEYS: refs, content; ARGV:
seconds, hash, bytes."""

_RELEASE = """
local function release(refs, prefix, manifest, seconds)
  local seen = {}
  for _, hash in ipairs(cjson.decode(manifest).hashes) do
    if not seen[hash] then
      seen[hash] = true
      if redis.call('HINCRBY', refs, hash, -1) <= 0 then
        redis.call('HDEL', refs, hash)
        redis.call('EXPIRE', prefix .. hash, seconds)
      end
    end
  end
end
"""

_PUBLISH = (
    _RELEASE
    + """
local name, manifest, prefix = ARGV[1], ARGV[3], ARGV[4]
local seen = {}
local hashes = cjson.decode(manifest).hashes
for _, hash in ipairs(hashes) do
  if redis.call('EXISTS', prefix .. hash) == 0 then return {'missing'} end
end
local before = redis.call('HGET', KEYS[4], name)
if before then
  local confirmed = redis.call('HEXISTS', KEYS[3], name)
  if before == manifest then return {'there', redis.call('HGET', KEYS[2], name), confirmed} end
  if confirmed == 1 then return {'taken'} end
end
for _, hash in ipairs(hashes) do
  if not seen[hash] then
    seen[hash] = true
    redis.call('HINCRBY', KEYS[1], hash, 1)
    redis.call('PERSIST', prefix .. hash)
  end
end
if before then release(KEYS[1], prefix, before, ARGV[5]) end
redis.call('HSET', KEYS[2], name, ARGV[2])
redis.call('HSET', KEYS[4], name, manifest)
return {'written'}
"""
)
"""A Lua script that writes a snapshot. KEYS: refs, infos, confirmed, manifests; ARGV: name, info, manifest, prefix of contents,
seconds. Returns `written`; `missing` if a content is not stored; `there`, with its info and whether it is confirmed, if the same
snapshot exists; `taken` if another snapshot of that name is confirmed."""

_CONFIRM = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], 1)
return 1
"""
"""A Lua script that confirms a snapshot. KEYS: infos, confirmed; ARGV: name. Returns 0 if the snapshot does not exist, else 1."""

_DISCARD = (
    _RELEASE
    + """
local manifest = redis.call('HGET', KEYS[4], ARGV[1])
if not manifest then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
release(KEYS[1], ARGV[2], manifest, ARGV[3])
return 1
"""
)
"""A Lua script that deletes a snapshot; unreferenced contents expire after `seconds`. KEYS: refs, infos, confirmed, manifests;
ARGV: name, prefix of contents, seconds. Returns 0 if the snapshot does not exist, else 1."""

_READ = """
local manifest = redis.call('HGET', KEYS[4], ARGV[1])
if not manifest then return {'gone'} end
local seen, decoded = {}, cjson.decode(manifest)
for _, hash in ipairs(decoded.hashes) do
  if redis.call('EXISTS', ARGV[3] .. hash) == 0 then return {'missing', hash} end
end
for _, hash in ipairs(decoded.hashes) do
  if not seen[hash] then
    seen[hash] = true
    redis.call('HINCRBY', KEYS[1], hash, 1)
  end
end
redis.call('HSET', KEYS[2], ARGV[2], manifest)
redis.call('ZADD', KEYS[3], redis.call('TIME')[1], ARGV[2])
return {'read', manifest}
"""
"""A Lua script that holds the contents of a snapshot for a reader. KEYS: refs, readers, alive, manifests; ARGV: name, reader,
prefix of contents. Returns `read` with the manifest; `gone` if the snapshot does not exist; `missing` with the hash of a missing
content."""

_RENEW = "return redis.call('ZADD', KEYS[1], 'XX', redis.call('TIME')[1], ARGV[1])"
"""A Lua script that records a sign of life of a reader that still has its hold. KEYS: alive; ARGV: reader."""

_RELEASE_HOLD = (
    _RELEASE
    + """
local readers = {ARGV[1]}
if ARGV[1] == '' then
  readers = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', redis.call('TIME')[1] - ARGV[4])
end
for _, reader in ipairs(readers) do
  local manifest = redis.call('HGET', KEYS[2], reader)
  redis.call('HDEL', KEYS[2], reader)
  redis.call('ZREM', KEYS[3], reader)
  if manifest then release(KEYS[1], ARGV[2], manifest, ARGV[3]) end
end
return #readers
"""
)
"""A Lua script that releases the hold of a reader, or of all dead readers if `reader` is "". KEYS: refs, readers, alive; ARGV:
reader, prefix of contents, seconds until unreferenced contents expire, seconds without a sign of life after which a reader is
dead."""


class RedisStore:
    """A `Store` (contract). A page has at most 512 MB, the limit of Redis for a value."""

    def __init__(self, url: str, access: Access = Access.CHANGE, settings: StoreSettings = DEFAULT) -> None:
        """Raises UsageError if the URL names no server."""
        self._access, self.settings = access, settings
        self._server: Any = server_of(url, "a Redis store")
        make = self._server.register_script
        self._hold, self._write, self._publish = make(_HOLD), make(_WRITE), make(_PUBLISH)
        self._confirm, self._discard = make(_CONFIRM), make(_DISCARD)
        self._read, self._renew, self._let_go = make(_READ), make(_RENEW), make(_RELEASE_HOLD)

    def identity(self) -> str:
        with _as_store_error():
            self._server.set("hotspare:store", limits.new_identity(), nx=True)
            found = _text(self._server.get("hotspare:store"))
        if not limits.is_identity(found):
            raise limits.damaged_identity("the Redis store", found)
        return found

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_snapshot(group, name, engine, order)
        keys = _Keys(group)
        given = checked_contents(name, header, pages)
        for _ in range(_PUBLISH_TRIES_MAX):
            blobs = self._written(keys, given)
            total = sum(blob.size for blob in blobs.values()) - len(header)
            info = {"engine": engine, "order": order, "written_time_us": clock_us(), "bytes_total": total}
            manifest = {"names": list(blobs), "hashes": [b.hash for b in blobs.values()], "sizes": [b.size for b in blobs.values()]}
            told = json.dumps(info)
            with _as_store_error():
                arguments = [name, told, json.dumps(manifest), keys.contents, str(self.settings.left_s)]
                answer, *rest = self._publish(keys=keys.of_snapshots, args=arguments)
            if answer == b"taken":
                raise limits.already_confirmed(group, name)
            if answer == b"there":
                told, is_confirmed = rest
                return self._info(name, told, SnapshotStatus.CONFIRMED if is_confirmed else SnapshotStatus.CANDIDATE)
            if answer == b"written":
                return self._info(name, told, SnapshotStatus.CANDIDATE)
        raise limits.pages_deleted_repeatedly(name)

    def confirm(self, group: str, name: str) -> None:
        keys = _Keys(group)
        with _as_store_error():
            done = self._confirm(keys=[keys.infos, keys.confirmed], args=[name])
        if not done:
            raise limits.snapshot_missing(group, name)

    def discard(self, group: str, name: str) -> None:
        keys = _Keys(group)
        with _as_store_error():
            self._discard(keys=keys.of_snapshots, args=[name, keys.contents, self.settings.left_s])

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        keys = _Keys(group)
        with _as_store_error(), self._server.pipeline() as both:
            both.hgetall(keys.infos).hkeys(keys.confirmed)
            infos, confirmed = both.execute()
        found = [
            self._info(_text(name), info, SnapshotStatus.CONFIRMED if name in confirmed else SnapshotStatus.CANDIDATE)
            for name, info in infos.items()
        ]
        return limits.newest_first(found)

    def get(self, group: str, name: str) -> StoredSnapshot:
        keys = _Keys(group)
        manifest = self._manifest(keys, name)
        if manifest is None:
            raise limits.snapshot_missing(group, name)
        if sum(manifest["sizes"]) > self.settings.eager_bytes_max:
            return self._large(keys, group, name)
        found: dict[str, bytes] = {}
        for some in in_batches(sorted(set(manifest["hashes"]))):
            found |= self._contents(keys, group, name, some)
        pages = {page: found[each] for page, each in zip(manifest["names"], manifest["hashes"], strict=True)}
        return StoredSnapshot(pages.pop(HEADER), pages)

    def _large(self, keys: _Keys, group: str, name: str) -> StoredSnapshot:
        """Returns a snapshot whose pages are read on access; only its header is read now."""
        reader = _Reader(self, keys, uuid.uuid4().hex)
        with _as_store_error():
            answer, *said = self._read(keys=keys.of_reading, args=[name, reader.name, keys.contents])
        if answer == b"gone":
            raise limits.snapshot_missing(group, name)
        if answer == b"missing":
            raise limits.snapshot_damaged(group, name, f"content {_text(said[0])} is missing")
        manifest = json.loads(_text(said[0]))
        blobs = dict(zip(manifest["names"], map(Blob, manifest["hashes"], manifest["sizes"]), strict=True))

        def read(wanted: Sequence[Blob]) -> dict[str, bytes]:
            return self._contents(keys, group, name, [blob.hash for blob in wanted])

        header = blobs.pop(HEADER)
        pages = lazy_pages.LazyPages(blobs, read, reader, self.settings)
        return StoredSnapshot(read([header])[header.hash], pages)

    def _contents(self, keys: _Keys, group: str, name: str, hashes: Sequence[str]) -> dict[str, bytes]:
        """Returns the contents of all `hashes`. Raises the errors of `get` if one of them is missing or damaged."""
        with _as_store_error():
            values = self._server.mget([keys.contents + each for each in hashes])
        found = {each: bytes(value) for each, value in zip(hashes, values, strict=True) if value is not None}
        damaged = sorted(each for each in hashes if each not in found or blob_of(found[each]).hash != each)
        if damaged and self._manifest(keys, name) is None:
            raise limits.snapshot_missing(group, name)
        if damaged:
            if self._access is Access.CHANGE:
                with _as_store_error():
                    self._server.delete(*(keys.contents + each for each in damaged))
            raise limits.snapshot_damaged(group, name, limits.missing_or_changed(f"content {damaged[0]}"))
        return found

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        limits.check_confirmed_max(confirmed_max)
        for name in limits.excess_snapshots(self.list(group), confirmed_max):
            self.discard(group, name)
        self.release_hold(_Keys(group), _ALL_DEAD_READERS)

    def discard_group(self, group: str) -> None:
        for info in self.list(group):
            self.discard(group, info.name)

    def close(self) -> None:
        self._server.close()

    def renew_hold(self, keys: _Keys, reader: str) -> None:
        with _as_store_error():
            self._renew(keys=[keys.alive], args=[reader])

    def release_hold(self, keys: _Keys, reader: str) -> None:
        """Releases the contents that `reader` holds, "" for all dead readers; contents without another reference expire after
        `left_s`."""
        arguments: list[str | int] = [reader, keys.contents, self.settings.left_s, int(self.settings.reader_timeout_s)]
        with _as_store_error():
            self._let_go(keys=keys.of_reading[:3], args=arguments)

    def _written(self, keys: _Keys, given: Mapping[str, Given]) -> dict[str, Blob]:
        writing = _Writing(self, keys)
        return write_new(given, writing.hold, writing.write)

    def hold(self, keys: _Keys, hashes: Collection[str]) -> set[str]:
        """Returns the hashes whose contents are stored, and keeps these contents for at least `write_hold_s`."""
        if not hashes:
            return set()
        names = sorted(hashes)
        with _as_store_error():
            found = self._hold(
                keys=[keys.refs, *(keys.contents + each for each in names)], args=[self.settings.write_hold_s, *names]
            )
        return {_text(each) for each in found}

    def write(self, keys: _Keys, name: str, content: bytes) -> None:
        """Stores the content under the hash `name`; it expires after `write_hold_s` unless a snapshot references it."""
        with _as_store_error():
            self._write(keys=[keys.refs, keys.contents + name], args=[self.settings.write_hold_s, name, content])

    def _manifest(self, keys: _Keys, name: str) -> dict[str, Any] | None:
        with _as_store_error():
            found = self._server.hget(keys.manifests, name)
        return None if found is None else dict(json.loads(_text(found)))

    @staticmethod
    def _info(name: str, text: str | bytes, status: SnapshotStatus) -> SnapshotInfo:
        return SnapshotInfo(name=name, status=status, **json.loads(text))


class _Keys:
    """The names of the Redis keys of a group."""

    def __init__(self, group: str) -> None:
        limits.check_name("group", group)
        prefix = f"hotspare:{{{quote(group, safe='')}}}:"
        self.refs, self.infos, self.confirmed = f"{prefix}refs", f"{prefix}infos", f"{prefix}confirmed"
        self.manifests, self.contents = f"{prefix}manifests", f"{prefix}content:"
        self.alive = f"{prefix}alive"
        self.of_snapshots = [self.refs, self.infos, self.confirmed, self.manifests]
        self.of_reading = [self.refs, f"{prefix}readers", self.alive, self.manifests]


class _Writing:
    """The contents that one writer holds. It renews the holds during a long write, because unreferenced content expires."""

    def __init__(self, store: RedisStore, keys: _Keys) -> None:
        self._store, self._keys = store, keys
        self._held: set[str] = set()
        self._renewed_s = time.monotonic()

    def hold(self, hashes: set[str]) -> set[str]:
        if time.monotonic() - self._renewed_s >= self._store.settings.write_hold_renew_s:
            for some in in_batches(sorted(self._held), _RENEWALS_PER_CALL):
                self._store.hold(self._keys, some)
            self._renewed_s = time.monotonic()
        found = self._store.hold(self._keys, hashes)
        self._held |= found
        return found

    def write(self, name: str, content: bytes) -> None:
        self._store.write(self._keys, name, content)
        self._held.add(name)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A `Hold` (`stores.lazy_pages`) of the contents that one reader needs."""

    store: RedisStore
    keys: _Keys
    name: str

    def renew(self) -> None:
        self.store.renew_hold(self.keys, self.name)

    def release(self) -> None:
        self.store.release_hold(self.keys, self.name)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _as_store_error() -> Iterator[None]:
    try:
        yield
    except redis.RedisError as error:
        raise limits.request_failed("the Redis store", " ".join(str(error).split())) from None
