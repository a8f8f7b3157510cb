"""Snapshots in Redis: frozen writers, damage, remains of discarded snapshots (SPEC G4, G6)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from redis import Redis

from hotspare.base.errors import SnapshotDamaged, StoreError
from hotspare.base.retry import Retry
from hotspare.stores.content import blob_of
from hotspare.stores.open import open_store
from hotspare.stores.redis.store import RedisStore
from hotspare.stores.settings import DEFAULT, StoreSettings
from hotspare.testing.cluster import wait_until
from hotspare.testing.redis_server import RedisServer
from tests.contract.material import Page


@pytest.fixture
def server(redis: RedisServer) -> Iterator[Redis]:
    """A client that bypasses the store; the group `r` is empty."""
    with contextlib.closing(Redis.from_url(redis.url)) as client:
        for key in client.scan_iter("hotspare:{r}:*"):
            client.delete(key)
        yield client


@pytest.fixture
def store(redis: RedisServer, server: Redis) -> Iterator[RedisStore]:
    with contextlib.closing(RedisStore(redis.url)) as opened:
        yield opened


Opened: TypeAlias = Callable[..., RedisStore]


@pytest.fixture
def opened(redis: RedisServer, server: Redis) -> Iterator[Opened]:
    """Opens stores with settings."""
    with contextlib.ExitStack() as stack:
        yield lambda **given: stack.enter_context(contextlib.closing(RedisStore(redis.url, settings=StoreSettings(**given))))


def seconds_left(server: Redis) -> list[int]:
    """Returns the seconds to live of each content of the group; -1: does not expire."""
    return sorted(server.ttl(key) for key in server.scan_iter("hotspare:{r}:content:*"))


def test_content_stays_as_long_as_a_snapshot_names_it(store: RedisStore, server: Redis) -> None:
    store.write_candidate("r", "one", "e", 1, b"head", [("a", b"shared"), ("b", b"one")])
    store.write_candidate("r", "two", "e", 2, b"head", [("a", b"shared"), ("c", b"shared")])
    assert seconds_left(server) == [-1, -1, -1]
    store.discard("r", "one")
    gone, *kept = sorted(seconds_left(server), reverse=True)
    assert (0 < gone <= DEFAULT.left_s, kept) == (True, [-1, -1])
    store.discard("r", "two")
    assert all(0 < left <= DEFAULT.left_s for left in seconds_left(server))
    assert server.hgetall("hotspare:{r}:refs") == {}
    store.write_candidate("r", "three", "e", 3, b"head", [("a", b"shared")])
    assert seconds_left(server).count(-1) == 2


def test_what_a_writer_leaves_that_died_goes_by_itself(store: RedisStore, server: Redis) -> None:
    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.write_candidate(
            "r", "torn", "e", 1, b"head", [*((f"p{i}", b"%d of a writer" % i) for i in range(30)), ("last", Page(b"", die))]
        )
    assert store.list("r") == []
    written = seconds_left(server)
    assert written
    assert all(0 < left <= DEFAULT.write_hold_s for left in written)


def test_what_is_read_later_stays_until_nobody_reads_it(opened: Opened, server: Redis) -> None:
    """Also when its snapshot is discarded; contents of a dead reader are kept until it counts as dead."""
    store = opened(eager_bytes_max=0, renew_s=0.01)
    store.write_candidate("r", "one", "e", 1, b"head", [("a", b"first"), ("b", b"second")])
    stored = store.get("r", "one")
    store.discard("r", "one")
    store.prune_snapshots("r", 1)
    assert seconds_left(server) == [-1, -1, -1]
    assert dict(stored.pages) == {"a": b"first", "b": b"second"}
    del stored
    wait_until(lambda: -1 not in seconds_left(server), "it is let go")
    store.write_candidate("r", "two", "e", 2, b"head", [("a", b"first")])
    held = opened(eager_bytes_max=0, renew_s=1_000).get("r", "two")
    store.discard("r", "two")
    opened(reader_timeout_s=-1).prune_snapshots("r", 1)
    assert -1 not in seconds_left(server)
    assert server.hgetall("hotspare:{r}:refs") == {}
    assert held.header == b"head"


def test_of_what_is_read_later_what_is_missing_or_damaged_is_told(opened: Opened, server: Redis) -> None:
    store = opened(eager_bytes_max=0, unavailable_retry=Retry(tries_max=1))
    store.write_candidate("r", "one", "e", 1, b"head", [("a", b"some content"), ("b", b"other")])
    stored = store.get("r", "one")
    server.setrange(f"hotspare:{{r}}:content:{blob_of(b'some content').hash}", 0, b"?")
    assert stored.pages["b"] == b"other"
    with pytest.raises(SnapshotDamaged, match="snapshot one of group r is damaged"):
        stored.pages["a"]
    with pytest.raises(SnapshotDamaged, match="is missing"):
        store.get("r", "one")
    store.discard("r", "one")
    server.delete(*server.scan_iter("hotspare:{r}:content:*"))
    with pytest.raises(StoreError, match="is not in the store"):
        stored.pages["b"]


def test_a_writer_that_stood_still_writes_again_what_is_gone(store: RedisStore, server: Redis) -> None:
    def stand_still() -> None:
        server.delete(*server.scan_iter("hotspare:{r}:content:*"))

    first = Page(b"written before it stood still")
    filler = [(f"f{i}", b"%d filler" % i) for i in range(40)]
    store.write_candidate("r", "slow", "e", 1, b"head", [("first", first), *filler, ("last", Page(b"the last", stand_still))])
    assert first.encoded == 2
    assert store.get("r", "slow").pages["first"] == b"written before it stood still"


def test_a_writer_that_takes_longer_than_content_is_held_keeps_it(opened: Opened, server: Redis) -> None:
    """Else its first contents would expire before it has written the last, again and again."""
    store = opened(write_hold_renew_s=0.0)
    left: list[int] = []
    pages: dict[str, Page | bytes] = {f"p{i}": b"%d of a long one" % i for i in range(60)}
    pages["p20"] = Page(b"late", lambda: [server.expire(key, 60) for key in server.scan_iter("hotspare:{r}:content:*")])
    pages["p40"] = Page(b"later", lambda: left.extend(seconds_left(server)))
    store.write_candidate("r", "long", "e", 1, b"head", pages.items())
    assert len(left) >= 17
    assert min(left) > 60


def test_damage_is_told_and_written_anew(store: RedisStore, server: Redis) -> None:
    page = Page(b"a page that will be damaged")
    store.write_candidate("r", "one", "e", 1, b"", [("p", page)])
    for key in server.scan_iter("hotspare:{r}:content:*"):
        server.setrange(key, 0, b"?")
    with pytest.raises(SnapshotDamaged, match="snapshot one of group r is damaged"):
        store.get("r", "one")
    store.write_candidate("r", "two", "e", 2, b"", [("p", page)])
    assert store.get("r", "two").pages["p"] == store.get("r", "one").pages["p"] == b"a page that will be damaged"
    assert seconds_left(server) == [-1, -1]


def test_the_password_may_stand_elsewhere(redis: RedisServer, tmp_path: Path) -> None:
    before, _, after = redis.url.partition(f":{redis.password}@")
    (tmp_path / "password").write_text(redis.password + "\n")
    with contextlib.closing(open_store(f"{before}{after}?password_file={tmp_path}/password")) as store:
        assert store.identity() == RedisStore(redis.url).identity()
    with contextlib.closing(open_store(f"{before}{after}")) as store, pytest.raises(StoreError):
        store.identity()
