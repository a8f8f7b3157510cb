"""How long calls wait for the lock of a SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hotspare.base import sqlite_file
from hotspare.base.errors import CoordinationSuspended
from hotspare.coordination.sqlite import SqliteCoordination


def test_a_thread_with_extended_timeouts_outwaits_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that starts would end otherwise, because another one writes slowly."""
    is_busy, refused = sqlite_file._is_busy, list[sqlite3.Error]()
    with closing(SqliteCoordination(tmp_path / "c.db", busy_timeout_ms=1)) as service:
        service.set_fact_once("g", "a", b"1")
        with closing(sqlite3.connect(tmp_path / "c.db", isolation_level=None)) as other:

            def count_and_unlock(error: sqlite3.Error) -> bool:
                refused.append(error)
                if len(refused) == 20:
                    other.execute("ROLLBACK")
                return is_busy(error)

            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CoordinationSuspended):
                service.set_fact_once("g", "b", b"1")
            monkeypatch.setattr(sqlite_file, "_is_busy", count_and_unlock)
            with service.extended_timeouts():
                assert service.set_fact_once("g", "b", b"2") == b"2"
    assert len(refused) == 20
