"""Snapshots in databases: frozen writers, damaged content, several concurrent writers (SPEC G4, G6)."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text

from hotspare.base.errors import SnapshotDamaged, SnapshotFormat, StoreError, UsageError
from hotspare.stores.open import open_store
from hotspare.stores.sql.store import SqlStore
from hotspare.stores.writing import CONTENTS_PER_CALL
from hotspare.testing.database_server import DatabaseServer
from tests.contract.material import Page
from tests.tiers import servers

DRIVERS = {"sqlite": "sqlite", "postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql"}


@pytest.fixture(params=["sqlite", *servers("postgresql", "mariadb")])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db" if request.param == "sqlite" else request.getfixturevalue(request.param).url


@pytest.fixture
def door(url: str) -> Iterator[Callable[[], SqlStore]]:
    with contextlib.ExitStack() as opened:

        def one() -> SqlStore:
            return opened.enter_context(contextlib.closing(SqlStore(url)))

        yield one
        one().discard_group("sql")


def run(url: str, statement: str) -> int:
    """Runs a statement in the database, bypassing the store; returns the number of changed rows."""
    kind, _, rest = url.partition("://")
    engine = create_engine(f"{DRIVERS[kind]}://{rest}")
    with engine.begin() as connection:
        count = connection.execute(text(statement)).rowcount
    engine.dispose()
    return count


def test_what_nobody_names_is_deleted(door: Callable[[], SqlStore], url: str) -> None:
    store = door()
    store.write_candidate("sql", "one", "e", 1, b"only in one", [("p", b"nobody has this but one")])
    counted = "UPDATE hotspare_contents SET size = size WHERE size IN (11, 23)"
    assert run(url, counted) == 2 or url.startswith("mariadb")  # MariaDB counts only rows whose values differ
    store.discard("sql", "one")
    assert run(url, "DELETE FROM hotspare_contents WHERE size IN (11, 23)") == 0


def test_what_nobody_names_is_deleted_a_little_at_a_time(door: Callable[[], SqlStore], url: str) -> None:
    """Deleting a state of gigabytes in one transaction takes longer than the timeout of a call."""
    store = door()
    store.write_candidate("sql", "one", "e", 1, b"", [(f"p{i}", b"%d that nobody else has" % i) for i in range(60)])
    deleted: list[int] = []

    def executed(_: object, cursor: Any, statement: str, *__: object) -> None:
        if statement.startswith("DELETE FROM hotspare_contents"):
            deleted.append(cursor.rowcount)

    event.listen(store._database._engine, "after_cursor_execute", executed)
    store.discard("sql", "one")
    assert (sum(deleted) >= 60, max(deleted) <= CONTENTS_PER_CALL) == (True, True)


def test_a_writer_that_stood_still_writes_again_what_was_collected(door: Callable[[], SqlStore], url: str) -> None:
    """It is abandoned while it encodes its last page: its pages are deleted, and the snapshot is complete all the same."""
    store, other = door(), door()

    def stand_still() -> None:
        run(url, "DELETE FROM hotspare_writers")
        other.prune_snapshots("sql", 1)

    first = Page(b"written before it stood still")
    filler = [(f"f{i}", b"%d filler" % i) for i in range(40)]
    store.write_candidate("sql", "slow", "e", 1, b"head", [("first", first), *filler, ("last", Page(b"the last", stand_still))])
    assert first.encoded == 2
    assert other.get("sql", "slow").pages["first"] == b"written before it stood still"
    assert len(other.get("sql", "slow").pages) == 42


def test_damage_is_told_and_written_anew(door: Callable[[], SqlStore], url: str) -> None:
    store, page = door(), Page(b"a page that will be damaged")
    store.write_candidate("sql", "one", "e", 1, b"", [("p", page)])
    ours = "SELECT hash FROM hotspare_pages WHERE snapshot IN (SELECT id FROM hotspare_snapshots WHERE group_name = 'sql')"
    damage = f"UPDATE hotspare_pieces SET bytes = {{}} WHERE hash IN ({ours})"
    assert run(url, damage.format("'\\x00'::bytea" if url.startswith("postgresql") else "x'00'")) == 1
    with pytest.raises(SnapshotDamaged, match="snapshot one of group sql is damaged"):
        store.get("sql", "one")
    store.write_candidate("sql", "two", "e", 2, b"", [("p", page)])
    assert store.get("sql", "two").pages["p"] == b"a page that will be damaged"
    assert store.get("sql", "one").pages["p"] == b"a page that will be damaged"


def test_two_that_open_an_empty_database_agree(url: str) -> None:
    found: list[str] = []

    def identify() -> None:
        with contextlib.closing(SqlStore(url)) as store:
            found.append(store.identity())

    both = [threading.Thread(target=identify) for _ in range(4)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_tables_of_a_newer_hotspare_are_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    with contextlib.closing(SqlStore(url)) as store:
        store.identity()
        run(url, "UPDATE hotspare_stores SET format = 7")
        with pytest.raises(SnapshotFormat, match="has format 7, this hotspare reads 1"):
            store.identity()


def test_the_password_may_stand_elsewhere(postgresql: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, _, after = postgresql.url.partition(":not%20a%20secret")
    (tmp_path / "password").write_text(postgresql.password + "\n")
    monkeypatch.setenv("SNAPSHOT_PASSWORD", postgresql.password)
    with contextlib.closing(SqlStore(postgresql.url)) as store:
        identity = store.identity()
    for option in (f"password_file={tmp_path}/password", "password_env=SNAPSHOT_PASSWORD"):
        with contextlib.closing(open_store(f"{before}{after}?{option}")) as store:
            assert store.identity() == identity


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://user:secret@host", "names no database"),
        ("postgresql://user:secret@host/db?sslmode=secret", "option 'sslmode' of a database is not known"),
        ("postgresql://user@host/db?password_file=/nowhere", "password_file /nowhere cannot be read"),
        ("postgresql://user@host/db?password_env=NOT_THERE_1", "password_env NOT_THERE_1: no such environment variable"),
        ("postgresql://user:secret@host:port/db", "cannot be read"),
        ("sqlite:///relative.db", "names no database"),
    ],
)
def test_a_url_that_names_no_database_is_refused_without_its_secrets(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        open_store(url)
    assert "secret" not in f"{refused.value} {refused.value.detail} {refused.value.hint}"


def test_a_server_that_is_not_there_is_a_store_error() -> None:
    with contextlib.closing(SqlStore("postgresql://user:secret@127.0.0.1:1/db")) as store:
        with pytest.raises(StoreError) as told:
            store.list("g")
        assert "secret" not in f"{told.value} {told.value.detail}"
