"""A snapshot database: its URL, the driver's settings, transactions with retries, the conversion of its errors, and its tables.

References between rows are foreign keys, so that the database itself refuses a snapshot whose content is not stored, whatever other
clients delete meanwhile.

    stores      the database's random id, and the version of these tables
    writers     the active writers of snapshots
    readers     the active readers of large snapshots; the contents that each still needs (`reads`)
    contents    the content of pages and headers, named by its checksum, in pieces of `PIECE_BYTES` (`pieces`)
    snapshots   a snapshot, which exists if its row does
    pages       its pages, in order

Names are compared by their bytes, whatever the collation of the database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    Executable,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    create_engine,
    event,
    inspect,
    literal_column,
    make_url,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.types import TypeEngine

from hotspare.base.errors import StoreError, UsageError
from hotspare.base.passwords import password_alone
from hotspare.base.retry import Pauses, Retry
from hotspare.stores.contract import Access
from hotspare.stores.limits import NAME_LENGTH_MAX, invalid_url, request_failed
from hotspare.stores.memory import clock_us

_T = TypeVar("_T")
FORMAT = 1
PIECE_BYTES = 1 << 20
"""Limit on the bytes of a piece, which one statement writes; every database accepts more."""
_HASH = 32
_MYSQL_FAMILY = "mysql", "mariadb"
_DRIVERS = MappingProxyType(
    {
        "sqlite": "sqlite+pysqlite",
        "postgresql": "postgresql+psycopg",
        "mysql": "mysql+pymysql",
        "mariadb": "mariadb+pymysql",
        "oracle": "oracle+oracledb",
        "mssql": "mssql+pyodbc",
    }
)
"""The SQLAlchemy driver for each scheme. The drivers for Oracle and SQL Server are not tested."""
CONNECT_S = 5
_CALL_S = 30
_CONTENDED = Retry(tries_max=12, pause_s=0.02, pause_max_s=1.0, pauses=Pauses.RANDOM)
_SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "sqlite": {"timeout": _CALL_S},
        "postgresql": {"connect_timeout": CONNECT_S, "tcp_user_timeout": _CALL_S * 1000, "options": f"-c lock_timeout={_CALL_S}s"},
        "mysql": {"connect_timeout": CONNECT_S, "read_timeout": _CALL_S, "write_timeout": _CALL_S, "charset": "utf8mb4"},
        "mariadb": {"connect_timeout": CONNECT_S, "read_timeout": _CALL_S, "write_timeout": _CALL_S, "charset": "utf8mb4"},
    }
)
"""The connection arguments of each driver: timeouts, so that a server that does not answer causes an error."""
_CONTENTION = ("database is locked", "deadlock", "could not serialize", "lock wait timeout", "try restarting transaction")
_CONTENTION_CODES = (1020, 1205, 1213)
"""MariaDB's codes: a record has changed; a lock wait timed out; a deadlock."""
_MYSQL_NOW_US = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
_NOW_US = MappingProxyType(
    {
        "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
        "mysql": _MYSQL_NOW_US,
        "mariadb": _MYSQL_NOW_US,
    }
)


def now_us(of: Connection | Engine) -> Any:
    """Returns microseconds since 1970 UTC by the server's clock, for use in a statement, because clocks of hosts may differ. Uses
    this host's clock if the database is a file, or its server's clock function is not known."""
    said = _NOW_US.get(of.dialect.name)
    return clock_us() if said is None else literal_column(said, BigInteger)


class Database:
    """A database whose connections are opened when needed. Safe to use by several threads."""

    def __init__(self, url: str, access: Access = Access.CHANGE) -> None:
        """Raises UsageError if the URL names no database, or its driver is not installed."""
        parts = _checked(url)
        kind = parts.drivername.partition("+")[0]
        try:
            self._engine = create_engine(
                parts, connect_args=dict(_SETTINGS.get(kind, {})), pool_pre_ping=kind != "sqlite", hide_parameters=True
            )
        except (ImportError, NoSuchModuleError, SQLAlchemyError) as error:
            missing = f"the driver for {kind} databases cannot be loaded"
            raise UsageError(missing, detail=str(error)[:200], hint="pip install 'hotspare[sql]'") from None
        if kind == "sqlite":
            _prepare_sqlite(self._engine, access)
        self._is_closed = False

    def transaction(self, work: Callable[[Connection], _T]) -> _T:
        """Runs `work` in one transaction and returns its result. Retries if another transaction conflicts, so `work` may run
        several times. Raises StoreError if the database cannot be reached or refuses; raises IntegrityError unchanged."""

        def attempt() -> _T:
            with self._engine.begin() as connection:
                return work(connection)

        try:
            return _CONTENDED.call(attempt, _is_contention)
        except IntegrityError:
            raise
        except SQLAlchemyError as error:
            raise _as_store_error(error) from None
        finally:
            if self._is_closed:  # another thread closed it meanwhile, or before
                self.close()

    def fetch_rows(self, query: Executable) -> Sequence[Any]:
        """Returns all rows of a query."""
        return self.transaction(lambda connection: connection.execute(query).all())

    def execute_change(self, statement: Executable) -> int:
        """Executes a statement that changes rows; returns their number. Databases differ in whether a row that already had the
        value counts."""
        return self.transaction(lambda connection: connection.execute(statement).rowcount)

    @property
    def now_us(self) -> Any:
        return now_us(self._engine)

    def create_tables(self) -> None:
        """Creates the missing tables; another client may create them at the same moment."""
        try:
            self.transaction(metadata.create_all)
        except (StoreError, IntegrityError):
            self.transaction(metadata.create_all)

    def has_tables(self) -> bool:
        return self.transaction(lambda connection: bool(inspect(connection).has_table(snapshots.name)))

    def close(self) -> None:
        """Closes idle connections. The connection of a transaction that is running, or starts later, is closed at its end."""
        self._is_closed = True
        self._engine.pool.dispose()  # the engine's own dispose() would orphan connections in use


def _checked(url: str) -> URL:
    """Returns the URL with its driver, and with the password that an option of the URL names (`password_alone`). Raises UsageError
    if the URL is invalid."""
    try:
        parts = make_url(url)
    except (SQLAlchemyError, ValueError):
        raise invalid_url("the database", "postgresql://user@host/database") from None
    secret = password_alone(parts.query, "a database")
    if not parts.database or (parts.drivername == "sqlite" and not Path(parts.database).is_absolute()):
        raise UsageError("the URL names no database", hint="write postgresql://user@host/database or sqlite:////folder/file.db")
    parts = parts.set(drivername=_DRIVERS[parts.drivername], query={})
    return parts if secret is None else parts.set(password=secret)


def _prepare_sqlite(engine: Engine, access: Access) -> None:
    """Sets up connections: foreign keys, durable writes, and the write lock at the beginning of every transaction, because
    transactions that acquire it later may deadlock. With Access.LOOK, transactions begin without the lock, and the journal mode is
    unchanged."""
    is_looking = access is Access.LOOK

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        for setting in ("foreign_keys=ON", *(() if is_looking else ("journal_mode=WAL",)), "synchronous=FULL"):
            connection.execute(f"PRAGMA {setting}")

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if is_looking else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)


def _is_contention(error: Exception) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    said, code = str(error.orig).lower(), next(iter(getattr(error.orig, "args", ())), None)
    return code in _CONTENTION_CODES or any(text in said for text in _CONTENTION)


def _as_store_error(error: SQLAlchemyError) -> StoreError:
    """Returns the error without the SQL statement, whose parameters are contents of pages."""
    cause = getattr(error, "orig", None) or error
    return request_failed("the database of snapshots", " ".join(str(cause).split()))


metadata = MetaData()


def _name() -> TypeEngine[str]:
    exact = mysql.VARCHAR(NAME_LENGTH_MAX, charset="utf8mb4", collation="utf8mb4_bin")
    return String(NAME_LENGTH_MAX).with_variant(exact, *_MYSQL_FAMILY)


def _hash() -> TypeEngine[str]:
    return String(_HASH).with_variant(mysql.VARCHAR(_HASH, charset="ascii", collation="ascii_bin"), *_MYSQL_FAMILY)


def _piece() -> TypeEngine[bytes]:
    return LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL_FAMILY)


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
"""`is_whole` is false if the content was found damaged; `writer`: the last one that relied on it."""
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
"""The contents that each reader of a large snapshot still needs."""
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
