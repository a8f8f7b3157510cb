"""A bus in one SQLite file, for all the processes of one machine (sqlite_machine.py): the embedded default, without a server.

A commit is on the disk when it returns (synchronous=FULL), and the fencing epoch is compared inside the publishing transaction.
Append times are the machine's clock as it is; who reads them makes sense of one that leaps or falls. Measured figures:
benchmarks/bus_sqlite.py.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from hotspare.base.errors import BusLocked, BusUnavailable, UnknownResult
from hotspare.base.sqlite_file import FileErrors, SqliteFile, Sync
from hotspare.bus import limits
from hotspare.bus import sqlite_schema as sql
from hotspare.bus.contract import Commit, Deviation, HeaderGuard, Message, Outgoing, Partition, Progress
from hotspare.bus.naming import own_partition, snapshot_readers
from hotspare.bus.sqlite_machine import WATCH_S, ClaimedFile
from hotspare.bus.sqlite_schema import PartitionSql

BUSY_TIMEOUT_MS = 300
_ERRORS = FileErrors(locked=BusLocked, failed=BusUnavailable, unknown=UnknownResult)
_POLL_FIRST_S = 0.001
_POLL_GROWTH = 1.2
_POLL_MAX_S = 0.004
_SCAN_OFFSETS = 4096
_TRIM_MESSAGES_MAX = 2000
_TRIM_BYTES_MAX = 4 * 1024 * 1024
_TRIM_PAUSE_S = 0.003


def clock_us() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class SqliteBus:
    """A `Bus` (contract). `busy_timeout_ms`: how long a call waits for another process's write before it raises BusLocked.
    `watch_s`: as in `ClaimedFile`."""

    def __init__(
        self,
        path: Path,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        clock: Callable[[], int] = clock_us,
        message_bytes_max: int = limits.MESSAGE_BYTES_MAX,
        watch_s: float = WATCH_S,
    ) -> None:
        self._file = ClaimedFile(SqliteFile(path, sql.KIND, _ERRORS, Sync.FULL, busy_timeout_ms), watch_s)
        self._clock, self._message_bytes_max = clock, message_bytes_max
        self._partitions: dict[Partition, PartitionSql] = {}

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        limits.check_topic(topic, partitions)
        found = self._file.query(sql.FIND_TOPIC, (topic,))
        if not found:
            with self._file.writing() as connection:
                found = connection.execute(sql.FIND_TOPIC, (topic,)).fetchall()
                if not found:
                    connection.execute(sql.ADD_TOPIC, (topic, partitions))
                    _add_partitions(connection, topic, range(partitions))
                    return
        limits.check_same_partitions(topic, found[0][0], partitions)

    def grow_unused(self, topic: str, partitions: int) -> None:
        limits.check_topic(topic, partitions)
        with self._file.writing() as connection:
            found = connection.execute(sql.FIND_TOPIC, (topic,)).fetchall()
            if not found:
                raise limits.topic_missing(topic)
            if not connection.execute(sql.IS_UNUSED, (topic,)).fetchone()[0] or found[0][0] >= partitions:
                return
            connection.execute(sql.GROW_TOPIC, (partitions, topic))
            _add_partitions(connection, topic, range(found[0][0], partitions))

    def topics(self) -> Mapping[str, int]:
        return dict(self._file.query(sql.LIST_TOPICS))

    def append(self, partition: Partition, messages: Sequence[Outgoing]) -> int:
        limits.check_messages(messages, self._message_bytes_max)
        statements = self._statements(partition)
        if not messages:
            return self.end_offset(partition)
        with self._file.writing() as connection:
            return _insert(connection, statements, messages, self._clock())

    def append_guarded(
        self, partition: Partition, messages: Sequence[Outgoing], guard: HeaderGuard, record: bytes | None = None
    ) -> int | None:
        limits.check_messages(messages, self._message_bytes_max)
        limits.check_record(guard.prefix, record)
        statements = self._statements(partition)
        with self._file.writing() as connection:
            end = connection.execute(sql.OFFSETS, (statements.id,)).fetchone()[1]
            known = connection.execute(sql.FIND_RECORD, (statements.id, guard.prefix)).fetchone()
            if (None if known is None else known[0]) != guard.record:
                return None
            if _newest(connection, statements, (guard.since_offset, end), guard.name, guard.prefix) is not None:
                return None
            if record is not None:
                connection.execute(sql.SET_RECORD, (statements.id, guard.prefix, record))
            return _insert(connection, statements, messages, self._clock()) if messages else int(end)

    def read(self, partition: Partition, offset: int, *, messages_max: int, bytes_max: int, wait_ms: int = 0) -> Sequence[Message]:
        limits.check_read(partition, offset, messages_max, bytes_max)
        statements = self._statements(partition)
        if wait_ms > 0:
            self._wait_for(statements, offset, wait_ms)
        begin = self._offsets(statements)[0]
        if offset < begin:
            raise limits.position_lost(partition, offset, begin)
        found = self._file.reading(lambda connection: _take(connection, statements, offset, messages_max, bytes_max))
        if found and found[0].offset != offset:
            # Trimmed since `begin` was read: this bus leaves no holes.
            raise limits.position_lost(partition, offset, found[0].offset)
        return found

    def begin_offset(self, partition: Partition) -> int:
        return self._offsets(self._statements(partition))[0]

    def end_offset(self, partition: Partition) -> int:
        return self._offsets(self._statements(partition))[1]

    def record(self, partition: Partition, key: bytes) -> bytes | None:
        found = self._file.query(sql.FIND_RECORD, (self._statements(partition).id, key))
        return bytes(found[0][0]) if found else None

    def records(self, partition: Partition) -> Mapping[bytes, bytes]:
        return dict(self._file.query(sql.LIST_RECORDS, (self._statements(partition).id,)))

    def forget_record(self, partition: Partition, key: bytes) -> None:
        statements = self._statements(partition)
        with self._file.writing() as connection:
            connection.execute(sql.FORGET_RECORD, (statements.id, key))

    def newest_with_header(self, partition: Partition, name: str, prefix: bytes, since_offset: int = 0) -> Message | None:
        """Scans backwards in short reads, by the headers alone: messages written by a publisher are found near the end."""
        statements = self._statements(partition)
        begin, end, _ = self._offsets(statements)
        begin = max(begin, since_offset)
        while end > begin:
            low = max(begin, end - _SCAN_OFFSETS)
            scan = partial(_newest, statements=statements, between=(low, end), name=name, prefix=prefix)
            found = self._file.reading(scan)
            if found is not None:
                return found
            end = low
        return None

    def retention_ms(self, topic: str) -> int | None:
        """None: this bus forgets nothing by itself."""
        self._statements(Partition(topic))
        return None

    def message_bytes_max(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The same for all."""
        for topic in topics:
            self._statements(Partition(topic))
        return dict.fromkeys(topics, self._message_bytes_max)

    def trim(self, partition: Partition, before_offset: int) -> None:
        """In short transactions with pauses, so that writers get their turn. The file keeps its size; the space is used again."""
        statements = self._statements(partition)
        with self._file.writing() as connection:
            connection.execute(sql.ADVANCE_BEGIN, (before_offset, statements.id, before_offset))
        begin = self._offsets(statements)[0]
        while True:
            last = self._last_to_delete(statements, begin)
            if last is None:
                return
            with self._file.writing() as connection:
                connection.execute(statements.delete, (last,))
            time.sleep(_TRIM_PAUSE_S)

    def note_reader(self, reader: str, offsets: Mapping[Partition, int]) -> None:
        limits.check_reader(reader, offsets)
        rows = [(reader, self._statements(partition).id, offset) for partition, offset in offsets.items()]
        with self._file.writing() as connection:
            connection.executemany(sql.NOTE_READER, rows)

    def readers(self) -> Mapping[str, Mapping[Partition, int]]:
        found: dict[str, dict[Partition, int]] = {}
        for reader, topic, number, offset in self._file.query(sql.LIST_READERS):
            found.setdefault(reader, {})[Partition(topic, number)] = offset
        return found

    def forget_reader(self, reader: str) -> None:
        with self._file.writing() as connection:
            connection.execute(sql.FORGET_READER, (reader,))

    def expire(self, partition: Partition, keep_ms: int, messages_max: int) -> int:
        """In short transactions, as `trim`; the space is used again."""
        statements, total = self._statements(partition), 0
        while total < messages_max:
            last = self._last_expired(statements, self._clock() - keep_ms * 1000, min(_TRIM_MESSAGES_MAX, messages_max - total))
            if last is None:
                break
            with self._file.writing() as connection:
                if _needed(connection, statements, last + 1) <= last:
                    break  # a reader noted what it needs meanwhile
                connection.execute(sql.ADVANCE_BEGIN, (last + 1, statements.id, last + 1))
                total += connection.execute(statements.delete, (last,)).rowcount
            time.sleep(_TRIM_PAUSE_S)
        return total

    def _last_expired(self, statements: PartitionSql, cutoff_us: int, messages_max: int) -> int | None:
        """The newest message that one transaction may delete, looked for outside of it."""
        begin, end, _ = self._offsets(statements)
        needed = self._file.reading(lambda connection: _needed(connection, statements, end))
        last, total = None, 0
        for offset, append_us, size in self._file.query(statements.ages, (begin, messages_max)):
            total += size
            if append_us >= cutoff_us or offset >= needed or (last is not None and total > _TRIM_BYTES_MAX):
                break
            last = int(offset)
        return last

    def producer(self, group: str, output_topics: Sequence[str]) -> SqliteProducer:
        number = own_partition(group)
        claims = {topic: self._statements(Partition(topic, number)) for topic in output_topics}
        with self._file.writing() as connection:
            for topic in claims:
                owner = connection.execute(sql.FIND_OWNER, (topic, number)).fetchone()
                if owner is None:
                    connection.execute(sql.ADD_OWNER, (topic, number, group))
                elif owner[0] != group:
                    raise limits.topic_owned(Partition(topic, number), owner[0], group)
        return SqliteProducer(self._file, group, claims, self._clock, self._message_bytes_max)

    def progress(self, group: str) -> Mapping[str, Progress]:
        return _progress(self._file, group)

    def forget(self, group: str) -> None:
        with self._file.writing() as connection:
            owned = [Partition(*row) for row in connection.execute(sql.FIND_OWNED, (group,)).fetchall()]
            connection.executemany(sql.EMPTY_PARTITION, [(partition.topic, partition.number) for partition in owned])
            connection.execute(sql.FORGET_PROGRESS, (group,))
            connection.execute(sql.FORGET_OWNER, (group,))
            connection.executemany(sql.FORGET_READER, [(reader,) for reader in snapshot_readers(group)])
        for partition in owned:
            self.trim(partition, self.begin_offset(partition))

    def owners(self) -> Mapping[Partition, str]:
        return {Partition(topic, number): group for topic, number, group in self._file.query(sql.LIST_OWNERS, ())}

    def deviations(self, topics: Sequence[str]) -> Sequence[Deviation]:
        """All of a file's settings are hotspare's own."""
        return ()

    def close(self) -> None:
        self._file.close()

    def _statements(self, partition: Partition) -> PartitionSql:
        known = self._partitions.get(partition)
        if known is None:
            found = self._file.query(sql.FIND_PARTITION, (partition.topic, partition.number))
            if not found:
                topic = self._file.query(sql.FIND_TOPIC, (partition.topic,))
                raise limits.partition_missing(partition, topic[0][0]) if topic else limits.topic_missing(partition.topic)
            known = self._partitions[partition] = sql.partition_sql(found[0][0])
        return known

    def _offsets(self, statements: PartitionSql) -> tuple[int, int, int]:
        row: tuple[int, int, int] = self._file.query(sql.OFFSETS, (statements.id,))[0]
        return row

    def _wait_for(self, statements: PartitionSql, offset: int, wait_ms: int) -> None:
        """Return when the message at `offset` is there or the time is over. Costs some 10 us per look, at most every ms."""
        deadline = time.monotonic() + wait_ms / 1000
        pause = _POLL_FIRST_S
        while self._offsets(statements)[1] <= offset:
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(pause * _POLL_GROWTH, _POLL_MAX_S)

    def _last_to_delete(self, statements: PartitionSql, begin: int) -> int | None:
        last: int | None = None
        total = 0
        for offset, size in self._file.query(statements.sizes, (begin, _TRIM_MESSAGES_MAX)):
            total += size
            if last is not None and total > _TRIM_BYTES_MAX:
                break
            last = offset
        return last


class SqliteProducer:
    """A `Producer` (contract) over the bus's file."""

    def __init__(
        self,
        file: ClaimedFile,
        group: str,
        claims: Mapping[str, PartitionSql],
        clock: Callable[[], int],
        message_bytes_max: int,
    ) -> None:
        self._file, self._message_bytes_max = file, message_bytes_max
        self._group = group
        self._claims = claims
        self._clock = clock

    def fence(self, epoch: int) -> None:
        limits.check_epoch(epoch)
        with self._file.writing() as connection:
            newest = self._newest_epoch(connection)
            if newest > epoch:
                raise limits.fenced(self._group, epoch, newest)
            connection.execute(sql.SET_EPOCH, (self._group, epoch))

    def progress(self) -> Mapping[str, Progress]:
        return _progress(self._file, self._group)

    def publish(self, epoch: int, commit: Commit) -> None:
        limits.check_epoch(epoch)
        limits.check_commit(self._group, tuple(self._claims), commit, self._message_bytes_max)
        with self._file.writing() as connection:
            newest = self._newest_epoch(connection)
            if newest != epoch:
                raise limits.fenced(self._group, epoch, newest)
            now_us = self._clock()
            for topic, messages in commit.messages.items():
                if messages:
                    _insert(connection, self._claims[topic], messages, now_us)
            rows = [sql.progress_row(self._group, stream, progress) for stream, progress in commit.progress.items()]
            connection.executemany(sql.SET_PROGRESS, rows)

    def close(self) -> None:
        """The file is the bus's own to close."""

    def _newest_epoch(self, connection: sqlite3.Connection) -> int:
        row = connection.execute(sql.FIND_EPOCH, (self._group,)).fetchone()
        return 0 if row is None else int(row[0])


def _needed(connection: sqlite3.Connection, statements: PartitionSql, otherwise: int) -> int:
    """The oldest offset that a reader needs."""
    found = connection.execute(sql.FIND_NEEDED, (statements.id,)).fetchone()[0]
    return otherwise if found is None else int(found)


def _add_partitions(connection: sqlite3.Connection, topic: str, numbers: range) -> None:
    for number in numbers:
        partition_id = connection.execute(sql.ADD_PARTITION, (topic, number)).lastrowid
        connection.execute(sql.partition_sql(int(partition_id or 0)).create)


def _insert(connection: sqlite3.Connection, statements: PartitionSql, messages: Sequence[Outgoing], now_us: int) -> int:
    """Append within a write transaction; the first offset."""
    _, first, _ = connection.execute(sql.OFFSETS, (statements.id,)).fetchone()
    rows = [(offset, now_us, sql.encode_headers(message.headers), message.value) for offset, message in enumerate(messages, first)]
    connection.executemany(statements.insert, rows)
    connection.execute(sql.ADVANCE, (first + len(rows), now_us, statements.id))
    return int(first)


def _newest(
    connection: sqlite3.Connection, statements: PartitionSql, between: tuple[int, int], name: str, prefix: bytes
) -> Message | None:
    """The newest message from the first offset up to before the second whose header begins so."""
    cursor = connection.execute(statements.with_header, (*between, sql.header_needle(name, prefix)))
    try:
        for row in cursor:
            message = Message(row[0], row[1], row[2], sql.decode_headers(row[3]))
            if limits.stands_against(HeaderGuard(name, prefix, 0), message):
                return message
        return None
    finally:
        cursor.close()


def _take(
    connection: sqlite3.Connection, statements: PartitionSql, offset: int, messages_max: int, bytes_max: int
) -> list[Message]:
    """Messages from `offset` on, fetched one by one so that what is over the limit is not read from the file."""
    cursor = connection.execute(statements.read, (offset, messages_max))
    taken: list[Message] = []
    total = 0
    try:
        for row in cursor:
            total += len(row[2])
            if taken and total > bytes_max:
                break
            taken.append(Message(row[0], row[1], row[2], sql.decode_headers(row[3])))
        return taken
    finally:
        cursor.close()


def _progress(file: ClaimedFile, group: str) -> dict[str, Progress]:
    return dict(sql.progress_of(row) for row in file.query(sql.FIND_PROGRESS, (group,)))
