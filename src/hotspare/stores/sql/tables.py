"""The tables of a snapshot database. What one row promises about another is a foreign key, so that the database itself refuses a
snapshot whose content is not there, whoever deletes what meanwhile.

    stores      the database's random id, and the version of these tables
    writers     who is writing a snapshot now
    contents    what pages and headers consist of, named by its checksum, in pieces of `PIECE_BYTES` (`pieces`)
    snapshots   a snapshot; its row is what makes it one
    pages       its pages, in order

Names are compared by their bytes, whatever the database does else.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from hotspare.stores.limits import NAME_LENGTH_MAX

FORMAT = 1
PIECE_BYTES = 1 << 20
"""Less than any database takes in one statement."""
_HASH = 32
_OF_MYSQL = "mysql", "mariadb"

metadata = MetaData()


def _name() -> TypeEngine[str]:
    exact = mysql.VARCHAR(NAME_LENGTH_MAX, charset="utf8mb4", collation="utf8mb4_bin")
    return String(NAME_LENGTH_MAX).with_variant(exact, *_OF_MYSQL)


def _hash() -> TypeEngine[str]:
    return String(_HASH).with_variant(mysql.VARCHAR(_HASH, charset="ascii", collation="ascii_bin"), *_OF_MYSQL)


def _piece() -> TypeEngine[bytes]:
    return LargeBinary().with_variant(mysql.LONGBLOB(), *_OF_MYSQL)


stores = Table(
    "hotspare_stores",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("identity", _hash(), nullable=False),
    Column("format", Integer, nullable=False),
)
writers = Table(
    "hotspare_writers",
    metadata,
    Column("writer", _hash(), primary_key=True),
    Column("alive_us", BigInteger, nullable=False),
)
readers = Table(
    "hotspare_readers",
    metadata,
    Column("reader", _hash(), primary_key=True),
    Column("alive_us", BigInteger, nullable=False),
)
contents = Table(
    "hotspare_contents",
    metadata,
    Column("hash", _hash(), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("is_whole", Boolean, nullable=False),
    Column("writer", _hash()),
)
"""`is_whole` is false where it was found damaged; `writer`: the last one who counted on it."""
pieces = Table(
    "hotspare_pieces",
    metadata,
    Column("hash", _hash(), ForeignKey(contents.c.hash, ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("bytes", _piece(), nullable=False),
)
reads = Table(
    "hotspare_reads",
    metadata,
    Column("reader", _hash(), ForeignKey(readers.c.reader, ondelete="CASCADE"), primary_key=True),
    Column("hash", _hash(), ForeignKey(contents.c.hash), primary_key=True),
)
"""What each reader of a large snapshot will yet ask for."""
snapshots = Table(
    "hotspare_snapshots",
    metadata,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    Column("group_name", _name(), nullable=False),
    Column("name", _name(), nullable=False),
    Column("engine", _name(), nullable=False),
    Column("input_order", BigInteger, nullable=False),
    Column("is_confirmed", Boolean, nullable=False),
    Column("written_time_us", BigInteger, nullable=False),
    Column("bytes_total", BigInteger, nullable=False),
    Column("header", _hash(), ForeignKey(contents.c.hash), nullable=False),
    UniqueConstraint("group_name", "name"),
)
pages = Table(
    "hotspare_pages",
    metadata,
    Column("snapshot", snapshots.c.id.type, ForeignKey(snapshots.c.id, ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("page", _name(), nullable=False),
    Column("hash", _hash(), ForeignKey(contents.c.hash), nullable=False),
)
Index("hotspare_reads_by_hash", reads.c.hash)
Index("hotspare_pages_by_hash", pages.c.hash)
Index("hotspare_snapshots_by_header", snapshots.c.header)
