"""The stored bytes of a group in each kind of store, and damage done to them from outside."""

from __future__ import annotations

from functools import singledispatch
from typing import Any, TypeAlias

import pytest
from sqlalchemy import select, update

from hotspare.stores.changelog.store import ChangelogStore
from hotspare.stores.changelog.topics import Topic
from hotspare.stores.contract import Store
from hotspare.stores.directory import DirectoryStore
from hotspare.stores.memory import MemoryStore
from hotspare.stores.objects.store import ObjectStore
from hotspare.stores.redis.store import RedisStore
from hotspare.stores.sql import database as db
from hotspare.stores.sql.store import SqlStore

Held: TypeAlias = dict[Any, Any]


@singledispatch
def held(store: Store, group: str) -> Held:
    """Returns all that the store holds of the group, with the claims of readers and writers."""
    raise NotImplementedError(type(store))


@held.register
def _(store: MemoryStore, group: str) -> Held:
    return dict(store._groups.get(group, {}))


@held.register
def _(store: DirectoryStore, group: str) -> Held:
    return {path: path.read_bytes() if path.is_file() else None for path in (store._root / group).rglob("*")}


@held.register
def _(store: SqlStore, group: str) -> Held:
    database = store._database
    snapshots = database.fetch_rows(select(db.snapshots).where(db.snapshots.c.group_name == group))
    pages = database.fetch_rows(select(db.pages).where(db.pages.c.snapshot.in_([row.id for row in snapshots])))
    hashes = [*(row.header for row in snapshots), *(row.hash for row in pages)]
    of_content = (select(each).where(each.c.hash.in_(hashes)) for each in (db.contents, db.pieces, db.reads))
    return dict(enumerate(sorted(map(tuple, rows)) for rows in (snapshots, pages, *map(database.fetch_rows, of_content))))


@held.register
def _(store: RedisStore, group: str) -> Held:
    """Omits keys that expire."""
    server = store._server
    return {key: server.dump(key) for key in server.scan_iter(f"hotspare:{{{group}}}:*") if server.ttl(key) == -1}


@held.register
def _(store: ObjectStore, group: str) -> Held:
    return {key: store._bucket.get_object(f"{group}/{key}") for key in store._bucket.sizes(group)}


@held.register
def _(store: ChangelogStore, group: str) -> Held:
    """Returns the records that compaction keeps."""
    found = {(each.key, topic.name): each.value for topic in (store._manifests, store._pages) for each in topic.read(0)}
    return {key: value for key, value in found.items() if value is not None}


@singledispatch
def damage(store: Store, group: str, name: str, patched: pytest.MonkeyPatch) -> None:
    """Damages every page of a snapshot."""
    raise NotImplementedError(type(store))


@damage.register
def _(store: MemoryStore, group: str, name: str, _: pytest.MonkeyPatch) -> None:
    store.damage(group, name)


@damage.register
def _(store: DirectoryStore, group: str, _name: str, _: pytest.MonkeyPatch) -> None:
    for path in (store._root / group / "pages").iterdir():
        path.write_bytes(b"?" * path.stat().st_size)


@damage.register
def _(store: SqlStore, group: str, _name: str, _: pytest.MonkeyPatch) -> None:
    of_group = select(db.snapshots.c.id).where(db.snapshots.c.group_name == group)
    hashes = [row.hash for row in store._database.fetch_rows(select(db.pages.c.hash).where(db.pages.c.snapshot.in_(of_group)))]
    assert store._database.execute_change(update(db.pieces).where(db.pieces.c.hash.in_(hashes)).values(bytes=b"?")) == len(hashes)


@damage.register
def _(store: RedisStore, group: str, _name: str, _: pytest.MonkeyPatch) -> None:
    for key in store._server.scan_iter(f"hotspare:{{{group}}}:content:*"):
        store._server.setrange(key, 0, b"?")


@damage.register
def _(store: ObjectStore, group: str, _name: str, _: pytest.MonkeyPatch) -> None:
    for key in store._bucket.sizes(f"{group}/pages"):
        store._bucket.put_object(f"{group}/pages/{key}", b"?")


@damage.register
def _(_store: ChangelogStore, _group: str, _name: str, patched: pytest.MonkeyPatch) -> None:
    """Damages the records when they are read, because a topic can only be appended to."""
    real = Topic.read_at
    patched.setattr(Topic, "read_at", lambda self, wanted, found: real(self, wanted, lambda key, got: found(key, got[:-1])))
