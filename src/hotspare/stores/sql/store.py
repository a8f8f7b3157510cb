"""Snapshots in a SQL database: PostgreSQL, MariaDB, MySQL or SQLite.

Contents are written first, a few at a time, each in a transaction of its own; then one transaction writes the snapshot with all its
pages. A concurrent collector deletes contents that no snapshot names and on which no living writer relies. If one is missing all
the same, for instance because its writer was frozen, the foreign keys refuse the snapshot, and missing contents are written again.
So a frozen writer does no harm, and no process ever waits for it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, and_, delete, exists, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from hotspare.base.errors import StoreError
from hotspare.stores import lazy_pages, limits
from hotspare.stores.content import Blob, blob_of
from hotspare.stores.contract import Access, Content, SnapshotInfo, SnapshotStatus, StoredSnapshot
from hotspare.stores.memory import clock_us
from hotspare.stores.settings import DEFAULT, StoreSettings
from hotspare.stores.sql import database as db
from hotspare.stores.writing import HEADER, Given, checked_contents, in_batches, write_new

_NAMES_AT_ONCE = 200
_PUBLISH_TRIES_MAX = 5
"""Limit on the attempts to write a snapshot's row. An attempt fails if contents were collected, or another process wrote the name
concurrently; then missing contents are written again."""


class SqlStore:
    """A `Store` (contract)."""

    def __init__(self, url: str, access: Access = Access.CHANGE, settings: StoreSettings = DEFAULT) -> None:
        self._database, self._access, self._settings = db.Database(url, access), access, settings
        self._is_prepared = False

    def identity(self) -> str:
        self._prepare()
        found = self._known_identity()
        if not found:
            with contextlib.suppress(IntegrityError):  # another process was quicker
                self._database.execute_change(insert(db.stores).values(number=1, identity=limits.new_identity(), format=db.FORMAT))
            found = self._known_identity()
        if not found:
            raise StoreError("the database of snapshots lost a row that was written just now")
        return found

    def _known_identity(self) -> str:
        """Returns the id; "" if there is none yet."""
        for row in self._database.fetch_rows(select(db.stores.c.identity, db.stores.c.format)):
            limits.check_format("the database of snapshots", row.format, db.FORMAT)
            return str(row.identity)
        return ""

    def write_candidate(
        self, group: str, name: str, engine: str, order: int, header: bytes, pages: Iterable[tuple[str, bytes | Content]]
    ) -> SnapshotInfo:
        limits.check_snapshot(group, name, engine, order)
        self._prepare()
        with _Writing(self._database) as writing:
            given = checked_contents(name, header, pages)
            blobs = writing.write(given)
            total = sum(blob.size for blob in blobs.values()) - len(header)
            info = SnapshotInfo(name, engine, order, SnapshotStatus.CANDIDATE, clock_us(), total)
            for _ in range(_PUBLISH_TRIES_MAX):
                try:
                    return self._database.transaction(lambda c: _publish(c, group, info, blobs))
                except IntegrityError:  # a content is gone, or the same name was written just now
                    writing.write(given)
        raise limits.pages_deleted_repeatedly(name)

    def confirm(self, group: str, name: str) -> None:
        self._prepare()
        if not self._database.execute_change(update(db.snapshots).where(_is(group, name)).values(is_confirmed=True)):
            self._stored(group, name)

    def discard(self, group: str, name: str) -> None:
        self._discard(_is(group, name))

    def list(self, group: str) -> Sequence[SnapshotInfo]:
        rows = self._database.fetch_rows(select(db.snapshots).where(db.snapshots.c.group_name == group)) if self._prepare() else ()
        return limits.newest_first(map(_info, rows))

    def get(self, group: str, name: str) -> StoredSnapshot:
        snapshot = self._stored(group, name)
        if snapshot.bytes_total > self._settings.eager_bytes_max:
            return self._large(group, name, snapshot)
        wanted = select(db.pages.c.page, db.pages.c.hash).where(db.pages.c.snapshot == snapshot.id)
        rows = self._database.fetch_rows(wanted.order_by(db.pages.c.number))
        found = self._contents_of(group, name, {snapshot.header, *(row.hash for row in rows)})
        if not rows and not self._find(group, name):
            raise limits.snapshot_missing(group, name)
        return StoredSnapshot(found[snapshot.header], {row.page: found[row.hash] for row in rows})

    def _large(self, group: str, name: str, snapshot: Any) -> StoredSnapshot:
        """Returns a snapshot whose pages are read on access; only its header is read now."""
        reader = _Reader(self, uuid.uuid4().hex)
        with contextlib.suppress(IntegrityError):  # a content is being deleted: `rows` is empty then
            self._database.transaction(partial(_hold, snapshot=snapshot.id, reader=reader.name))
        wanted = select(db.pages.c.page, db.pages.c.hash, db.contents.c.size).join(
            db.contents, db.contents.c.hash == db.pages.c.hash
        )
        rows = self._database.fetch_rows(wanted.where(db.pages.c.snapshot == snapshot.id).order_by(db.pages.c.number))

        def read(blobs: Sequence[Blob]) -> dict[str, bytes]:
            return self._contents_of(group, name, {blob.hash for blob in blobs})

        pages = lazy_pages.LazyPages({row.page: Blob(row.hash, row.size) for row in rows}, read, reader, self._settings)
        header = self._contents_of(group, name, {snapshot.header})[snapshot.header]
        if not rows or not self._find(group, name):
            raise limits.snapshot_missing(group, name)
        return StoredSnapshot(header, pages)

    def _contents_of(self, group: str, name: str, hashes: set[str]) -> dict[str, bytes]:
        """Returns the contents of all `hashes`. Raises the errors of `get` if one of them is missing or damaged."""
        try:
            return self._contents(hashes)
        except ValueError as error:
            if not self._find(group, name):
                raise limits.snapshot_missing(group, name) from None
            raise limits.snapshot_damaged(group, name, str(error)) from None

    def prune_snapshots(self, group: str, confirmed_max: int) -> None:
        limits.check_confirmed_max(confirmed_max)
        for name in limits.excess_snapshots(self.list(group), confirmed_max):
            self.discard(group, name)
        self._collect()

    def discard_group(self, group: str) -> None:
        self._discard(db.snapshots.c.group_name == group)

    def close(self) -> None:
        self._database.close()

    def renew_hold(self, reader: str) -> None:
        self._database.execute_change(
            update(db.readers).where(db.readers.c.reader == reader).values(alive_us=self._database.now_us)
        )

    def release_hold(self, reader: str) -> None:
        """Releases the reader's hold and deletes content that no snapshot references. Read-only callers leave the deletion to the
        next collector."""
        self._database.execute_change(delete(db.readers).where(db.readers.c.reader == reader))
        if self._access is Access.CHANGE:
            self._collect()

    def _prepare(self) -> bool:
        """Whether the tables exist; creates them first, except with Access.LOOK."""
        if not self._is_prepared:
            if self._access is Access.CHANGE:
                self._database.create_tables()
            self._is_prepared = self._access is Access.CHANGE or self._database.has_tables()
        return self._is_prepared

    def _find(self, group: str, name: str) -> Any | None:
        if not self._prepare():
            return None
        return next(iter(self._database.fetch_rows(select(db.snapshots).where(_is(group, name)))), None)

    def _stored(self, group: str, name: str) -> Any:
        """Returns the row of the snapshot. Raises StoreError if there is none."""
        found = self._find(group, name)
        if found is None:
            raise limits.snapshot_missing(group, name)
        return found

    def _contents(self, hashes: set[str]) -> dict[str, bytes]:
        """Returns the contents. Raises ValueError if one is missing or damaged, which is recorded (except with Access.LOOK)."""
        found: dict[str, bytes] = {}
        for some in in_batches(sorted(hashes)):
            found |= self._database.transaction(partial(_read, hashes=some))
        damaged = sorted(name for name in hashes if name not in found or blob_of(found[name]).hash != name)
        if damaged:
            for some in in_batches(damaged) if self._access is Access.CHANGE else ():
                self._database.execute_change(update(db.contents).where(db.contents.c.hash.in_(some)).values(is_whole=False))
            raise ValueError(limits.missing_or_changed(f"content {damaged[0]}"))
        return found

    def _discard(self, which: Any) -> None:
        self._prepare()
        self._database.execute_change(delete(db.snapshots).where(which))
        self._collect()

    def _collect(self) -> None:
        """Deletes contents that no snapshot, reader or living writer references, in batches: one statement for all could exceed the
        timeout every time. If a process begins to rely on a content concurrently, the database refuses to delete it, and the next
        collector deletes the rest."""
        with contextlib.suppress(IntegrityError, StoreError):
            self._database.transaction(partial(_delete_expired, settings=self._settings))
            unnamed = self._database.fetch_rows(select(db.contents.c.hash).where(~_is_referenced()))
            for some in in_batches(row.hash for row in unnamed):
                self._database.execute_change(delete(db.contents).where(db.contents.c.hash.in_(some), ~_is_referenced()))


@dataclass(frozen=True, slots=True)
class _Reader:
    """A `Hold` (`stores.lazy_pages`) of the contents that one reader needs."""

    store: SqlStore
    name: str

    def renew(self) -> None:
        self.store.renew_hold(self.name)

    def release(self) -> None:
        self.store.release_hold(self.name)


class _Writing:
    """A context manager for the write of a snapshot, during which the contents that it relies on are not collected."""

    def __init__(self, database: db.Database) -> None:
        self._database, self._name = database, uuid.uuid4().hex

    def __enter__(self) -> _Writing:
        self._database.execute_change(insert(db.writers).values(writer=self._name, alive_us=self._database.now_us))
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(StoreError):
            self._database.execute_change(delete(db.writers).where(db.writers.c.writer == self._name))

    def write(self, given: Mapping[str, Given]) -> dict[str, Blob]:
        """Writes the contents not stored yet; returns the blob of each."""
        return write_new(given, self._hold_stored, self._write)

    def _hold_stored(self, hashes: set[str]) -> set[str]:
        """Returns the hashes whose contents are stored, and protects these contents while this writer lives."""

        def hold_stored(connection: Connection) -> set[str]:
            wanted = and_(db.contents.c.hash.in_(sorted(hashes)), db.contents.c.is_whole)
            connection.execute(update(db.writers).where(db.writers.c.writer == self._name).values(alive_us=db.now_us(connection)))
            connection.execute(update(db.contents).where(wanted).values(writer=self._name))
            return set(connection.execute(select(db.contents.c.hash).where(wanted)).scalars())

        return self._database.transaction(hold_stored) if hashes else set()

    def _write(self, name: str, content: bytes) -> None:
        with contextlib.suppress(IntegrityError):  # another process wrote the same just now
            self._database.transaction(partial(_write, name=name, content=content, writer=self._name))
            return
        self._hold_stored({name})


def _is(group: str, name: str) -> Any:
    return and_(db.snapshots.c.group_name == group, db.snapshots.c.name == name)


def _info(row: Any) -> SnapshotInfo:
    status = SnapshotStatus.CONFIRMED if row.is_confirmed else SnapshotStatus.CANDIDATE
    return SnapshotInfo(row.name, row.engine, row.input_order, status, row.written_time_us, row.bytes_total)


def _write(connection: Connection, name: str, content: bytes, writer: str) -> None:
    """Writes a content under the hash `name`; replaces a damaged one."""
    connection.execute(delete(db.pieces).where(db.pieces.c.hash == name))
    changed = update(db.contents).where(db.contents.c.hash == name).values(is_whole=True, writer=writer)
    if not connection.execute(changed).rowcount:
        connection.execute(insert(db.contents).values(hash=name, size=len(content), is_whole=True, writer=writer))
    for number, begin in enumerate(range(0, len(content), db.PIECE_BYTES)):
        piece = content[begin : begin + db.PIECE_BYTES]
        connection.execute(insert(db.pieces).values(hash=name, number=number, bytes=piece))


def _read(connection: Connection, hashes: Sequence[str]) -> dict[str, bytes]:
    there = connection.execute(select(db.contents.c.hash).where(db.contents.c.hash.in_(hashes))).scalars()
    parts: dict[str, list[bytes]] = {name: [] for name in there}
    wanted = select(db.pieces.c.hash, db.pieces.c.bytes).where(db.pieces.c.hash.in_(hashes))
    for row in connection.execute(wanted.order_by(db.pieces.c.hash, db.pieces.c.number)):
        parts[row.hash].append(row.bytes)
    return {name: b"".join(found) for name, found in parts.items()}


def _hold(connection: Connection, snapshot: int, reader: str) -> None:
    """Records the reader and the pages that it needs. Raises IntegrityError if a content is being deleted."""
    connection.execute(insert(db.readers).values(reader=reader, alive_us=db.now_us(connection)))
    pages = select(literal(reader), db.pages.c.hash).where(db.pages.c.snapshot == snapshot).distinct()
    connection.execute(insert(db.reads).from_select(["reader", "hash"], pages))


def _publish(connection: Connection, group: str, info: SnapshotInfo, blobs: dict[str, Blob]) -> SnapshotInfo:
    """Writes the rows of the snapshot and of its pages, and returns its description; if the same snapshot exists, only returns
    that. Raises IntegrityError if a content is missing, StoreError if a different snapshot of that name is confirmed."""
    header, pages = blobs[HEADER].hash, {page: blob.hash for page, blob in blobs.items() if page != HEADER}
    there = connection.execute(select(db.snapshots).where(_is(group, info.name)).with_for_update()).first()
    if there is not None:
        rows = connection.execute(select(db.pages.c.page, db.pages.c.hash).where(db.pages.c.snapshot == there.id)).all()
        if (there.header, {row.page: row.hash for row in rows}) == (header, pages):
            return _info(there)
        if there.is_confirmed:
            raise limits.already_confirmed(group, info.name)
        connection.execute(delete(db.snapshots).where(db.snapshots.c.id == there.id))
    row = {"group_name": group, "name": info.name, "engine": info.engine, "input_order": info.order, "is_confirmed": False}
    row |= {"written_time_us": info.written_time_us, "bytes_total": info.bytes_total, "header": header}
    made = connection.execute(insert(db.snapshots).values(row)).inserted_primary_key
    assert made is not None
    named = [{"snapshot": made[0], "number": i, "page": page, "hash": known} for i, (page, known) in enumerate(pages.items())]
    for some in in_batches(named, _NAMES_AT_ONCE):
        connection.execute(insert(db.pages), some)
    return info


def _delete_expired(connection: Connection, settings: StoreSettings) -> None:
    now = db.now_us(connection)
    connection.execute(delete(db.writers).where(db.writers.c.alive_us < now - int(settings.writer_timeout_s * 1e6)))
    connection.execute(delete(db.readers).where(db.readers.c.alive_us < now - int(settings.reader_timeout_s * 1e6)))


def _is_referenced() -> Any:
    """Returns the SQL condition that a snapshot, a reader or a writer references a row of `contents`."""
    return or_(
        exists().where(db.pages.c.hash == db.contents.c.hash),
        exists().where(db.snapshots.c.header == db.contents.c.hash),
        exists().where(db.reads.c.hash == db.contents.c.hash),
        exists().where(db.writers.c.writer == db.contents.c.writer),
    )
