"""kill -9 of the process that writes a snapshot, and of its server, at some points of a write (`make store-kills` tries all), and
other failures: one suite for all stores. Confirmed snapshots stay whole, no partial snapshot is ever listed, the next write works,
and interrupted writes leave nothing (SPEC G4, G6, H14)."""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from hotspare.base.errors import StoreError
from hotspare.stores.contract import Store
from tests.contract.material import child
from tests.contract.store_kills import (
    KINDS,
    SERVERS,
    SHORT_WAITS,
    WRITER,
    Place,
    asked,
    check,
    cut_off,
    go_on,
    kill_server,
    kill_writers,
    served,
    some,
    why_no_hosts,
)
from tests.contract.store_points import ARE_GONE, GROUP, READING, points, write
from tests.small_disk import mounted

pytestmark = pytest.mark.servers

POINTS = {"directory": 12, "sqlite": 6, "postgresql": 5, "mariadb": 5, "redis": 10, "s3": 3, "changelog": 5}
"""The number of points tried per kind, spread over all of a write, random in each run: as many as the time allows."""
TIMES = 1
"""The number of random times between points."""
SERVER_POINTS = {"redis": 3, "postgresql": 2, "mariadb": 2, "s3": 1, "changelog": 1}
"""The number of points for a server, which has to restart each time."""
THAWED_AFTER_S = 0.7
DISK_MIB, ROOM_BYTES = 512, 8 << 20
"""The size of a small disk, and the space left free on it."""


def needed(kind: str) -> None:
    """Fails for a missing server as root, who can install it; else skips."""
    if reason := why_no_hosts(kind):
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"{reason}; .ci/servers installs it")


@pytest.fixture(scope="module", params=KINDS)
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    needed(request.param)
    with served(request.param, tmp_path_factory.mktemp(f"kills-{uuid4().hex[:6]}")) as made, contextlib.closing(made.store):
        yield made


@pytest.fixture
def place(one: Place) -> Place:
    """The place without a snapshot."""
    one.store.discard_group(GROUP)
    return one


def test_a_writer_that_is_killed_anywhere(place: Place) -> None:
    wanted = POINTS[place.kind]
    assert kill_writers(place, some(wanted), TIMES) >= wanted


def test_a_reader_that_is_killed_leaves_nothing(place: Place) -> None:
    """It held the pages of a large snapshot, which was discarded meanwhile."""
    with place.opened(ARE_GONE) as place:
        store = place.store
        write(store, 1)
        go_on(store, 2, 0)
        whole = place.left()
        with child(WRITER, place.kind, place.url) as reader:
            assert asked(reader, 2, READING)[0] == -9
        go_on(store, 3, 0)
        go_on(store, 4, 0)
        assert place.left() == whole


def test_a_server_that_is_killed_anywhere(place: Place) -> None:
    if place.kind not in SERVERS:
        pytest.skip("there is no server")
    with place.opened(SHORT_WAITS) as place:
        kill_server(place, some(SERVER_POINTS[place.kind]))


def test_a_server_that_stands_still_for_a_while_is_waited_for(place: Place) -> None:
    """A slow server: the writer gets no error."""
    if place.kind not in SERVERS:
        pytest.skip("there is no server")
    with points(place.kind, lambda _: None) as passed:
        write(place.store, order := 1)
    timers: list[threading.Timer] = []

    def stand_still() -> None:
        place.freeze()
        timers.append(threading.Timer(THAWED_AFTER_S, place.thaw))
        timers[-1].start()

    told = cut_off(place, order + 1, stand_still, random.randrange(1, passed.count // 2))
    for each in timers:
        each.join()
    assert told is None
    assert len(timers) == 1
    check(place.store, order + 1, order + 1)


def _full_redis(place: Place) -> tuple[Callable[[], object], Callable[[], object]]:
    server = place.store._server  # type: ignore[attr-defined]
    return (lambda: server.config_set("maxmemory", "1")), (lambda: server.config_set("maxmemory", "0"))


def _full_sqlite(place: Place) -> tuple[Callable[[], object], Callable[[], object]]:
    database = place.store._database  # type: ignore[attr-defined]

    def at_most(pages: int) -> None:
        database.transaction(lambda connection: connection.exec_driver_sql(f"PRAGMA max_page_count={pages}"))

    return (lambda: at_most(1)), (lambda: at_most(1 << 30))


def write_much(store: Store, order: int) -> None:
    """Writes more than there is room for."""
    store.write_candidate(GROUP, "large", "e", order, b"", [("own", random.Random().randbytes(3 * ROOM_BYTES))])


def goes_on_after(place: Place, order: int) -> None:
    """Checks that `order` is whole though the write after it failed; the next ones succeed, and nothing of the failed one
    remains."""
    check(place.store, order, order + 1)
    go_on(place.store, order + 2, order + 1)
    whole = place.left()
    go_on(place.store, order + 3, 0)
    assert place.left() == whole


_FULL = {"redis": _full_redis, "sqlite": _full_sqlite}


def test_a_store_without_room_leaves_what_was_whole(place: Place) -> None:
    """Covers the kinds whose room a test can take away; object storage has its own test."""
    if place.kind not in _FULL:
        pytest.skip("its room cannot be taken away")
    with place.opened(ARE_GONE) as place:
        fill, clear = _FULL[place.kind](place)
        store, order = place.store, 1
        write(store, order)
        fill()
        try:
            with pytest.raises(StoreError):
                write_much(store, order + 1)
        finally:
            clear()
        goes_on_after(place, order)


@pytest.mark.parametrize("kind", ["directory", "postgresql", "mariadb", "changelog"])
def test_a_disk_without_room_leaves_what_was_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills in the middle of a write. The server is restarted when there is room again, as an operator would: some exit on
    a full disk."""
    needed(kind)
    with mounted(DISK_MIB << 20) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
        settings = replace(ARE_GONE, kafka_call_s=SHORT_WAITS.kafka_call_s)
        with served(kind, disk.folder) as made, contextlib.closing(made.store), made.opened(settings) as place:
            write(store := place.store, 1)
            disk.leave(ROOM_BYTES)
            with pytest.raises(StoreError):
                write_much(store, 2)
            disk.resize(DISK_MIB << 20)
            place.kill()
            place.restart()
            goes_on_after(place, 1)
