"""The tables of a bus in a SQLite file, the statements over them, and how headers and progress are written there.

Each partition has a message table of its own, keyed by offset: appends then always go to the end of a tree, which measured
1.2 to 1.4 times the rate of one table for all, and less space (benchmarks/bus_sqlite.py measures the rate).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from hotspare.base.sqlite_file import FileKind
from hotspare.bus.contract import OutputId, Progress

KIND = FileKind(
    name="bus",
    application_id=0x68734255,
    version=1,
    schema=(
        "CREATE TABLE topics(topic TEXT PRIMARY KEY, partitions INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE partitions(id INTEGER PRIMARY KEY, topic TEXT NOT NULL, number INTEGER NOT NULL,"
        " begin_offset INTEGER NOT NULL DEFAULT 0, end_offset INTEGER NOT NULL DEFAULT 0,"
        " newest_us INTEGER NOT NULL DEFAULT 0, UNIQUE(topic, number))",
        "CREATE TABLE owners(topic TEXT NOT NULL, number INTEGER NOT NULL, group_name TEXT NOT NULL,"
        " PRIMARY KEY(topic, number)) WITHOUT ROWID",
        "CREATE TABLE fences(group_name TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE progress(group_name TEXT NOT NULL, stream TEXT NOT NULL, sequence INTEGER NOT NULL,"
        " topic INTEGER, partition INTEGER, offset INTEGER, position INTEGER, ordinal INTEGER,"
        " digest INTEGER NOT NULL, epoch INTEGER NOT NULL, PRIMARY KEY(group_name, stream)) WITHOUT ROWID",
        "CREATE TABLE records(partition_id INTEGER NOT NULL, key BLOB NOT NULL, record BLOB NOT NULL,"
        " PRIMARY KEY(partition_id, key)) WITHOUT ROWID",
        "CREATE TABLE readers(reader TEXT NOT NULL, partition_id INTEGER NOT NULL,"
        " offset INTEGER NOT NULL, PRIMARY KEY(reader, partition_id)) WITHOUT ROWID",
        "CREATE TABLE machine(only INTEGER PRIMARY KEY CHECK(only=1), boot TEXT NOT NULL, machine TEXT NOT NULL)",
    ),
)

FIND_TOPIC = "SELECT partitions FROM topics WHERE topic=?"
ADD_TOPIC = "INSERT INTO topics(topic, partitions) VALUES(?, ?)"
IS_UNUSED = "SELECT max(end_offset)=0 FROM partitions WHERE topic=?"
GROW_TOPIC = "UPDATE topics SET partitions=? WHERE topic=?"
LIST_TOPICS = "SELECT topic, partitions FROM topics ORDER BY topic"
FIND_PARTITION = "SELECT id FROM partitions WHERE topic=? AND number=?"
ADD_PARTITION = "INSERT INTO partitions(topic, number) VALUES(?, ?)"
OFFSETS = "SELECT begin_offset, end_offset, newest_us FROM partitions WHERE id=?"
ADVANCE = "UPDATE partitions SET end_offset=?, newest_us=? WHERE id=?"
ADVANCE_BEGIN = "UPDATE partitions SET begin_offset=min(end_offset, ?) WHERE id=? AND begin_offset<?"
FIND_OWNED = "SELECT topic, number FROM owners WHERE group_name=? ORDER BY topic, number"
LIST_OWNERS = "SELECT topic, number, group_name FROM owners ORDER BY topic, number"
FIND_OWNER = "SELECT group_name FROM owners WHERE topic=? AND number=?"
ADD_OWNER = "INSERT INTO owners(topic, number, group_name) VALUES(?, ?, ?)"
FORGET_OWNER = "DELETE FROM owners WHERE group_name=?"
FORGET_PROGRESS = (
    "UPDATE progress SET sequence=0, topic=NULL, partition=NULL, offset=NULL, position=NULL, ordinal=NULL, digest=0"
    " WHERE group_name=?"
)
EMPTY_PARTITION = "UPDATE partitions SET begin_offset=end_offset WHERE topic=? AND number=?"
NOTE_READER = "INSERT OR REPLACE INTO readers(reader, partition_id, offset) VALUES(?, ?, ?)"
LIST_READERS = (
    "SELECT reader, topic, number, offset FROM readers JOIN partitions ON partitions.id=readers.partition_id"
    " ORDER BY reader, topic, number"
)
FORGET_READER = "DELETE FROM readers WHERE reader=?"
FIND_NEEDED = "SELECT min(offset) FROM readers WHERE partition_id=?"
FIND_EPOCH = "SELECT epoch FROM fences WHERE group_name=?"
SET_EPOCH = "INSERT OR REPLACE INTO fences(group_name, epoch) VALUES(?, ?)"
FIND_PROGRESS = (
    "SELECT stream, sequence, topic, partition, offset, position, ordinal, digest, epoch FROM progress WHERE group_name=?"
    " ORDER BY stream"
)
SET_PROGRESS = (
    "INSERT OR REPLACE INTO progress(stream, sequence, topic, partition, offset, position, ordinal, digest, epoch, group_name)"
    " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
FIND_RECORD = "SELECT record FROM records WHERE partition_id=? AND key=?"
LIST_RECORDS = "SELECT key, record FROM records WHERE partition_id=? ORDER BY key"
SET_RECORD = "INSERT OR REPLACE INTO records(partition_id, key, record) VALUES(?, ?, ?)"
FORGET_RECORD = "DELETE FROM records WHERE partition_id=? AND key=?"

_CREATE = "CREATE TABLE messages_#(offset INTEGER PRIMARY KEY, append_us INTEGER NOT NULL, headers BLOB, value BLOB NOT NULL)"
_INSERT = "INSERT INTO messages_#(offset, append_us, headers, value) VALUES(?, ?, ?, ?)"
_READ = "SELECT offset, append_us, value, headers FROM messages_# WHERE offset>=? ORDER BY offset LIMIT ?"
_WITH_HEADER = (
    "SELECT offset, append_us, value, headers FROM messages_# WHERE offset>=? AND offset<? AND headers IS NOT NULL"
    " AND instr(headers, ?)>0 ORDER BY offset DESC"
)
_SIZES = "SELECT offset, length(value) FROM messages_# WHERE offset<? ORDER BY offset LIMIT ?"
_AGES = "SELECT offset, append_us, length(value) FROM messages_# WHERE offset>=? ORDER BY offset LIMIT ?"
_DELETE = "DELETE FROM messages_# WHERE offset<=?"


@dataclass(frozen=True, slots=True)
class PartitionSql:
    """The statements over one partition's message table."""

    id: int
    create: str
    insert: str
    read: str
    with_header: str
    sizes: str
    ages: str
    delete: str


def partition_sql(partition_id: int) -> PartitionSql:
    texts = (_CREATE, _INSERT, _READ, _WITH_HEADER, _SIZES, _AGES, _DELETE)
    return PartitionSql(partition_id, *(text.replace("#", str(partition_id)) for text in texts))


_HEADER = struct.Struct("<HI")
_TO_SIGNED = 1 << 63
_WRAP = 1 << 64


def header_needle(name: str, prefix: bytes) -> bytes:
    """Bytes that an encoding holds if one of its headers has this name and a value with this prefix (and seldom otherwise)."""
    return name.encode() + prefix


def encode_headers(headers: tuple[tuple[str, bytes], ...]) -> bytes | None:
    """Per header: length of name and of value, name, value. None where there are none, which takes no space."""
    if not headers:
        return None
    parts: list[bytes] = []
    for name, value in headers:
        key = name.encode()
        parts += (_HEADER.pack(len(key), len(value)), key, value)
    return b"".join(parts)


def decode_headers(encoded: bytes | None) -> tuple[tuple[str, bytes], ...]:
    if encoded is None:
        return ()
    headers: list[tuple[str, bytes]] = []
    place = 0
    while place < len(encoded):
        name_length, value_length = _HEADER.unpack_from(encoded, place)
        value_place = place + _HEADER.size + name_length
        headers.append((encoded[place + _HEADER.size : value_place].decode(), encoded[value_place : value_place + value_length]))
        place = value_place + value_length
    return tuple(headers)


def progress_row(group: str, stream: str, progress: Progress) -> tuple[Any, ...]:
    """For SET_PROGRESS. SQLite's integers are signed, so a digest of 2**63 and more is stored as a negative number."""
    digest = progress.digest - _WRAP if progress.digest >= _TO_SIGNED else progress.digest
    cause = progress.output_id
    place = (None,) * 5 if cause is None else (cause.topic, cause.partition, cause.offset, cause.index, cause.ordinal)
    return (stream, progress.sequence, *place, digest, progress.epoch, group)


def progress_of(row: tuple[Any, ...]) -> tuple[str, Progress]:
    """Of a row of FIND_PROGRESS."""
    stream, sequence, topic, partition, offset, index, ordinal, digest, epoch = row
    cause = None if topic is None else OutputId(topic, partition, offset, index, ordinal)
    return stream, Progress(sequence, cause, digest % _WRAP, epoch)
