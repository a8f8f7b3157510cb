"""Coordination in one SQLite file, for all the engines of one machine.

A change of the epoch (campaign, release, reset) and a new fact must survive a power cut. So both are on the disk when the call
returns (synchronous=FULL); only a removed fact may reappear. Leases and members need not be (NORMAL): after a power cut no engine
runs any more, so a lost lease costs only delay. The clock counts from the start of the machine, is the same in all its processes
and runs on while the machine sleeps. Leases and members written before a restart of the machine count as over.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

from hotspare.base.errors import CoordinationSuspended
from hotspare.base.processes import boot_id
from hotspare.base.sqlite_file import FileErrors, FileKind, SqliteFile, Sync
from hotspare.coordination import record as rules
from hotspare.coordination.contract import Leader, Member, Renewed
from hotspare.coordination.record import RoleRecord

BUSY_TIMEOUT_MS = 300
_REMOVED_AT_ONCE = 1_000
"""The maximum of facts removed per transaction; an engine that needs the file meanwhile waits for some milliseconds."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_ERRORS = FileErrors(locked=CoordinationSuspended, failed=CoordinationSuspended, unknown=CoordinationSuspended)

_KIND = FileKind(
    name="coordination file",
    application_id=0x6873434F,
    version=1,
    schema=(
        "CREATE TABLE roles(group_name TEXT PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT NOT NULL, successor TEXT NOT NULL,"
        " lease_end_ms INTEGER NOT NULL, address TEXT NOT NULL, host TEXT NOT NULL, process_id INTEGER NOT NULL,"
        " process_start INTEGER NOT NULL, asked TEXT, process_space TEXT NOT NULL, boot TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE members(joined INTEGER PRIMARY KEY, group_name TEXT NOT NULL, engine TEXT NOT NULL,"
        " description TEXT NOT NULL, seen_ms INTEGER NOT NULL, boot TEXT NOT NULL, UNIQUE(group_name, engine))",
        "CREATE TABLE facts(group_name TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY(group_name, name))",
    ),
)
_FIND_ROLE = (
    "SELECT epoch, holder, successor, lease_end_ms, address, host, process_id, process_start, asked, process_space, boot"
    " FROM roles WHERE group_name=?"
)
_SET_ROLE = (
    "INSERT OR REPLACE INTO roles(epoch, holder, successor, lease_end_ms, address, host, process_id, process_start, asked,"
    " process_space, boot, group_name) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_LIST_GROUPS = (
    "SELECT group_name FROM roles UNION SELECT group_name FROM members UNION SELECT group_name FROM facts ORDER BY group_name"
)
_REFRESH_MEMBER = "UPDATE members SET description=?, seen_ms=?, boot=? WHERE group_name=? AND engine=?"
_COUNT_MEMBERS = "SELECT count(*) FROM members WHERE group_name=?"
_ADD_MEMBER = "INSERT INTO members(description, seen_ms, boot, group_name, engine) VALUES(?, ?, ?, ?, ?)"
_LIST_MEMBERS = "SELECT description, seen_ms FROM members WHERE group_name=? AND boot=? ORDER BY joined"
_LEAVE = "DELETE FROM members WHERE group_name=? AND engine=?"
_LEAVE_ALL = "DELETE FROM members WHERE group_name=?"
_LEAVE_BEFORE_BOOT = "DELETE FROM members WHERE group_name=? AND boot<>?"
_SEEN = "SELECT engine, seen_ms FROM members WHERE group_name=?"
_FIND_FACT = "SELECT value FROM facts WHERE group_name=? AND name=?"
_ADD_FACT = "INSERT INTO facts(group_name, name, value) VALUES(?, ?, ?)"
_LIST_FACTS = "SELECT name FROM facts WHERE group_name=?"
_REMOVE_FACT = "DELETE FROM facts WHERE group_name=? AND name=?"
_FORGET_FACTS = "DELETE FROM facts WHERE group_name=?"


def clock_ms() -> int:
    """Returns the milliseconds since the machine started, the same in every process."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


class SqliteCoordination:
    """A `Coordination` (contract). Its only errors are UsageError and CoordinationSuspended: a file has no session to lose.

    `boot` identifies this boot of the machine; tests pass another value to simulate a restart. A group has at most `members_max`
    members.
    """

    def __init__(
        self, path: Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS, boot: str = "", members_max: int = rules.MEMBERS_MAX
    ) -> None:
        self._file = SqliteFile(path, _KIND, _ERRORS, Sync.NORMAL, busy_timeout_ms)
        self._boot = boot or boot_id()
        self._members_max = members_max

    def extended_timeouts(self) -> AbstractContextManager[None]:
        return self._file.extended_timeouts()

    def refresh_member(self, group: str, member: Member) -> None:
        rules.check_group(group)
        rules.check_engine(member.engine)
        row = (json.dumps(asdict(member)), clock_ms(), self._boot, group, member.engine)
        with self._file.writing() as connection:
            if connection.execute(_REFRESH_MEMBER, row).rowcount == 0:
                self._remove_expired(connection, group)
                if connection.execute(_COUNT_MEMBERS, (group,)).fetchone()[0] >= self._members_max:
                    raise rules.too_many_members_error(group, self._members_max)
                connection.execute(_ADD_MEMBER, row)

    def _remove_expired(self, connection: sqlite3.Connection, group: str) -> None:
        connection.execute(_LEAVE_BEFORE_BOOT, (group, self._boot))
        seen_ms, holder = dict(connection.execute(_SEEN, (group,)).fetchall()), self._role(connection, group).holder
        silent = rules.expired_members(seen_ms, holder, clock_ms())
        connection.executemany(_LEAVE, [(group, engine) for engine in silent])

    def remove_member(self, group: str, engine: str) -> None:
        with self._file.writing() as connection:
            connection.execute(_LEAVE, (group, engine))

    def members(self, group: str) -> Sequence[Member]:
        rows = self._file.query(_LIST_MEMBERS, (group, self._boot))
        return tuple(Member(**{**json.loads(description), "seen_ms": seen_ms}) for description, seen_ms in rows)

    def groups(self) -> Sequence[str]:
        return tuple(row[0] for row in self._file.query(_LIST_GROUPS))

    def leader(self, group: str) -> Leader:
        record = self._file.reading(lambda connection: self._role(connection, group))
        return rules.leader_of(record, clock_ms())

    def campaign(self, group: str, expected_epoch: int, member: Member, lease_ms: int) -> int | None:
        rules.check_group(group)
        rules.check_engine(member.engine)
        rules.check_lease(lease_ms)
        with self._file.writing(Sync.FULL) as connection:
            record = rules.after_campaign(self._role(connection, group), expected_epoch, member, clock_ms() + lease_ms)
            if record is None:
                return None
            self._set_role(connection, group, record)
            return record.epoch

    def renew(self, group: str, epoch: int, engine: str, lease_ms: int) -> Renewed | None:
        rules.check_lease(lease_ms)
        with self._file.writing() as connection:
            record = rules.after_renewal(self._role(connection, group), epoch, engine, clock_ms() + lease_ms)
            if record is None:
                return None
            self._set_role(connection, group, record)
            return Renewed(record.asked)

    def release(self, group: str, epoch: int, engine: str, successor: str) -> bool:
        with self._file.writing(Sync.FULL) as connection:
            record = rules.after_release(self._role(connection, group), epoch, engine, successor)
            if record is None:
                return False
            self._set_role(connection, group, record)
            return True

    def request_switchover(self, group: str, successor: str) -> None:
        rules.check_group(group)
        with self._file.writing() as connection:
            self._set_role(connection, group, replace(self._role(connection, group), asked=successor))

    def requested_successor(self, group: str) -> str | None:
        return self._file.reading(lambda connection: self._role(connection, group)).asked

    def withdraw_switchover(self, group: str) -> None:
        with self._file.writing() as connection:
            record = self._role(connection, group)
            if record.asked is not None:
                self._set_role(connection, group, replace(record, asked=None))

    def fact(self, group: str, name: str) -> bytes | None:
        rows = self._file.query(_FIND_FACT, (group, name))
        return bytes(rows[0][0]) if rows else None

    def set_fact_once(self, group: str, name: str, value: bytes) -> bytes:
        rules.check_group(group)
        rules.check_fact(name, value)
        with self._file.writing(Sync.FULL) as connection:
            row = connection.execute(_FIND_FACT, (group, name)).fetchone()
            if row is not None:
                return bytes(row[0])
            connection.execute(_ADD_FACT, (group, name, value))
            return value

    def fact_names(self, group: str) -> Sequence[str]:
        return tuple(row[0] for row in self._file.query(_LIST_FACTS, (group,)))

    def remove_facts(self, group: str, names: Sequence[str]) -> None:
        for begin in range(0, len(names), _REMOVED_AT_ONCE):
            with self._file.writing() as connection:
                connection.executemany(_REMOVE_FACT, [(group, name) for name in names[begin : begin + _REMOVED_AT_ONCE]])

    def reset_group(self, group: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> None:
        with self._file.writing(Sync.FULL) as connection:
            record = rules.after_reset(self._role(connection, group))
            if record.epoch:
                self._set_role(connection, group, record)
            connection.execute(_LEAVE_ALL, (group,))
            connection.execute(_FORGET_FACTS, (group,))

    def close(self) -> None:
        self._file.close()

    def _role(self, connection: sqlite3.Connection, group: str) -> RoleRecord:
        row: tuple[Any, ...] | None = connection.execute(_FIND_ROLE, (group,)).fetchone()
        if row is None:
            return RoleRecord()
        *fields, boot = row
        record = RoleRecord(*fields)
        return record if boot == self._boot else replace(record, lease_end_ms=0)

    def _set_role(self, connection: sqlite3.Connection, group: str, record: RoleRecord) -> None:
        connection.execute(_SET_ROLE, (*astuple(record), self._boot, group))
