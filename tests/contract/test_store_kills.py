"""kill -9 of the process that writes a snapshot, and of the server that it writes to, at the points of a write: one suite for
every store. What was confirmed before stays whole, no half of a snapshot is ever shown, the next write works, and nothing is left
of what was cut off (SPEC G4, G6, H14).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import func, select

from hotspare.errors import StoreError
from hotspare.stores.contract import SnapshotStatus, Store
from hotspare.stores.open import open_store
from hotspare.testing.database_server import DatabaseKind, DatabaseServer, why_no_server
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.redis_server import RedisServer, why_no_redis
from hotspare.testing.s3_server import S3Server
from tests.contract.material import child
from tests.contract.store_points import GROUP, READING, pages_of, points, write
from tests.small_disk import mounted

POINTS = {"directory": 12, "sqlite": 6, "postgresql": 5, "mariadb": 5, "redis": 10, "s3": 3, "changelog": 5}
"""So many points of a write are tried, spread over all of them and others in each run: as many as the time allows."""
TIMES = 1
"""And so many moments between them."""
SERVER_POINTS = {"redis": 3, "postgresql": 2, "mariadb": 2, "s3": 1, "changelog": 1}
"""So many for a server, which has to start again each time."""
THAWED_AFTER_S = 0.7
DISK_MIB, ROOM_BYTES = 512, 8 << 20
"""Of a small disk, and what is left free there."""
GONE_AFTER = (
    "hotspare.stores.sql.store.WRITER_GONE_US",
    "hotspare.stores.objects.collecting.WRITER_GONE_US",
    "hotspare.stores.changelog.collecting.WRITER_GONE_US",
    "hotspare.stores.later.READER_GONE_S",
    "hotspare.stores.redis.scripts.READERS_GONE_S",
)
_WRITER = "import sys; from tests.contract.store_points import main; main(sys.argv[1], sys.argv[2])"


@dataclass
class Place:
    """A store, the server that it is on, and what is past it."""

    kind: str
    url: str
    kill: Callable[[], object] = lambda: None
    restart: Callable[[], object] = lambda: None
    freeze: Callable[[], object] = lambda: None
    thaw: Callable[[], object] = lambda: None
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.url)

    def left(self) -> int:
        """How many contents, records and claims there are beside what goes by itself."""
        return _LEFT[self.kind](self)


def _left_in_folder(place: Place) -> int:
    folder = Path(place.url.removeprefix("file://"))
    return sum(path.is_file() and path.name != "lock" for path in folder.rglob("*"))


def _left_in_database(place: Place) -> int:
    from hotspare.stores.sql.tables import metadata

    database: Any = place.store
    tables = metadata.tables.values()
    return sum(database._database.rows(select(func.count()).select_from(table))[0][0] for table in tables)


def _left_in_redis(place: Place) -> int:
    server = place.store._server  # type: ignore[attr-defined]
    return sum(server.ttl(key) == -1 for key in server.scan_iter("*")) + server.hlen(f"hotspare:{{{GROUP}}}:refs")


def _left_in_bucket(place: Place) -> int:
    """But for the nine bytes of an abandoned writer."""
    sizes = place.store._bucket.sizes(GROUP)  # type: ignore[attr-defined]
    return sum("/seal-" not in key or size != len("abandoned") for key, size in sizes.items())


def _left_in_changelog(place: Place) -> int:
    from hotspare.stores.changelog.topics import Topic, parse_url

    client, name, _ = parse_url(place.url)
    last = {each.key: each.value for part in ("pages", "manifests") for each in Topic(client, f"{name}.{part}").read(0)}
    return sum(value is not None and "/abandoned/" not in key for key, value in last.items())


_LEFT: dict[str, Callable[[Place], int]] = {
    "directory": _left_in_folder,
    "redis": _left_in_redis,
    "s3": _left_in_bucket,
    "changelog": _left_in_changelog,
    **dict.fromkeys(("sqlite", "postgresql", "mariadb"), _left_in_database),
}


def _needed(reason: str) -> None:
    """As root, who can install it, what is missing is a failure."""
    if reason:
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"{reason}; .ci/servers installs it")


@contextlib.contextmanager
def _served(kind: str, folder: Path) -> Iterator[Place]:
    """On a server of its own, which may be killed."""
    if kind == "directory":
        yield Place(kind, (folder / "snapshots").as_uri())
    elif kind == "sqlite":
        yield Place(kind, f"sqlite:///{folder}/snapshots.db")
    elif kind == "changelog":
        with KafkaServers.start(folder / "kafka") as kafka:
            kill, restart = partial(kafka.kill, 1), partial(kafka.restart, 1)
            yield Place(kind, f"{kafka.url}/shots", kill, restart, partial(kafka.freeze, 1), partial(kafka.thaw, 1))
    else:
        _needed(why_no_redis() if kind == "redis" else "" if kind == "s3" else why_no_server(DatabaseKind(kind)))
        with RedisServer() if kind == "redis" else S3Server() if kind == "s3" else DatabaseServer(DatabaseKind(kind)) as server:
            process = server.process
            yield Place(kind, server.url, process.kill, server.restart, process.freeze, process.thaw)


@pytest.fixture(scope="module", params=["directory", "sqlite", "postgresql", "mariadb", "redis", "s3", "changelog"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with _served(request.param, tmp_path_factory.mktemp(f"kills-{uuid4().hex[:6]}")) as made:
        yield made
        made.store.close()


@pytest.fixture
def place(served: Place) -> Place:
    """Without a snapshot."""
    served.store.forget(GROUP)
    return served


@pytest.fixture
def gone_soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A writer counts as dead at once, when it is called."""
    return lambda: [monkeypatch.setattr(name, -1) for name in GONE_AFTER] and None


def check(store: Store, before: int, cut: int) -> None:
    """After a write of `cut` that was cut off: whole snapshots alone, `before` or `cut` confirmed."""
    infos = store.list(GROUP)
    confirmed = {info.order for info in infos if info.status is SnapshotStatus.CONFIRMED}
    assert confirmed & {before, cut}
    assert {info.order for info in infos} <= {before, cut}
    for info in infos:
        stored = store.get(GROUP, info.name)
        assert (stored.header, dict(stored.pages)) == (b"header %d" % info.order, pages_of(info.order))


def is_confirmed(store: Store, order: int) -> bool:
    return any(info.order == order and info.status is SnapshotStatus.CONFIRMED for info in store.list(GROUP))


def go_on(store: Store, order: int, cut: int) -> None:
    """The next write; a candidate that nobody will confirm goes."""
    write(store, order)
    for info in store.list(GROUP):
        if info.status is SnapshotStatus.CANDIDATE:
            assert info.order == cut
            store.discard(GROUP, info.name)
    assert [info.order for info in store.list(GROUP)] == [order]
    check(store, order, order)


def asked(writer: Popen[str], order: int, point: int, wait_s: float = 0.0) -> tuple[int, int, float]:
    """What the writing process says: exit status, points, seconds."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    print(order, point, wait_s, file=writer.stdin, flush=True)
    status, count, took_s = writer.stdout.readline().split()
    return int(status), int(count), float(took_s)


def spread(count: int, wanted: int, choice: random.Random) -> list[int]:
    """`wanted` of the numbers 1 to `count`, one from each part of them; all where there are no more."""
    if count <= wanted:
        return list(range(1, count + 1))
    edges = [1 + number * count // wanted for number in range(wanted + 1)]
    return [choice.randrange(begin, end) for begin, end in itertools.pairwise(edges)]


def test_a_writer_that_is_killed_anywhere(place: Place, gone_soon: Callable[[], None]) -> None:
    choice, store = random.Random(), place.store
    write(store, 1)
    gone_soon()
    go_on(store, 2, 0)
    whole = place.left()
    killed = 0
    with child(_WRITER, place.kind, place.url) as writer:
        status, count, took_s = asked(writer, 3, 0)
        assert (status, count > 5) == (0, True)
        go_on(store, order := 4, 3)
        turns = [(point, 0.0) for point in spread(count, POINTS[place.kind], choice)]
        turns += [(0, choice.uniform(0.1, 1.0) * took_s) for _ in range(TIMES)]
        for point, wait_s in turns:
            status, *_ = asked(writer, order + 1, point, wait_s)
            assert status in ((-9,) if point else (-9, 0)), "it was killed, or had ended"
            killed += status == -9
            check(store, order, order + 1)
            go_on(store, order := order + 2, order - 1)
    assert killed >= min(count, POINTS[place.kind])
    store.keep(GROUP, 1)
    assert place.left() == whole, f"what is left of {killed} writers"


def test_a_reader_that_is_killed_leaves_nothing(place: Place, gone_soon: Callable[[], None]) -> None:
    """It held the pages of a large snapshot, which was discarded meanwhile."""
    store = place.store
    write(store, 1)
    gone_soon()
    go_on(store, 2, 0)
    whole = place.left()
    with child(_WRITER, place.kind, place.url) as reader:
        assert asked(reader, 2, READING)[0] == -9
    go_on(store, 3, 0)
    go_on(store, 4, 0)
    assert place.left() == whole


def cut_off(place: Place, order: int, act: Callable[[], object], at: int) -> StoreError | None:
    """A write at whose point `at` something happens; what its user is told."""
    with points(place.kind, lambda number: act() if number == at else None):
        try:
            write(place.store, order)
        except StoreError as error:
            return error
    return None


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a server that is not there."""
    monkeypatch.setattr("hotspare.stores.changelog.topics._TIMEOUT_S", 2.0)


@pytest.mark.usefixtures("short_waits")
def test_a_server_that_is_killed_anywhere(place: Place, gone_soon: Callable[[], None]) -> None:
    """The store's user gets an error without any secret in it, and goes on when the server is there again."""
    if place.kind not in SERVER_POINTS:
        pytest.skip("there is no server")
    choice, store = random.Random(), place.store
    identity = store.identity()
    write(store, order := 1)
    with points(place.kind, lambda _: None) as passed:
        write(store, order := order + 1)
    for at in spread(passed.count, SERVER_POINTS[place.kind], choice):
        told = cut_off(place, order + 1, place.kill, at)
        place.kill()  # a write may take fewer calls than the one before, and end before that point
        place.restart()
        check(store, order, order + 1)
        assert told is not None or is_confirmed(store, order + 1), "but for what is best effort, whoever writes hears of it"
        assert "secret" not in f"{told} {told and told.detail}"
        go_on(store, order := order + 2, order - 1)
    assert store.identity() == identity
    gone_soon()
    store.keep(GROUP, 1)
    whole = place.left()
    go_on(store, order + 1, 0)
    assert place.left() == whole


def test_a_server_that_stands_still_for_a_while_is_waited_for(place: Place) -> None:
    """A slow one: whoever writes hears nothing of it."""
    if place.kind not in SERVER_POINTS:
        pytest.skip("there is no server")
    choice, order = random.Random(), 1
    with points(place.kind, lambda _: None) as passed:
        write(place.store, order)
    timers: list[threading.Timer] = []

    def stand_still() -> None:
        place.freeze()
        timers.append(threading.Timer(THAWED_AFTER_S, place.thaw))
        timers[-1].start()

    told = cut_off(place, order + 1, stand_still, choice.randrange(1, passed.count // 2))
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
    """More than there is room for."""
    store.put(GROUP, "large", "e", order, b"", [("own", random.Random().randbytes(3 * ROOM_BYTES))])


def goes_on_after(place: Place, order: int) -> None:
    """`order` is whole though the write after it was in vain; the next ones succeed, and nothing is left of that one."""
    check(place.store, order, order + 1)
    go_on(place.store, order + 2, order + 1)
    whole = place.left()
    go_on(place.store, order + 3, 0)
    assert place.left() == whole


_FULL = {"redis": _full_redis, "sqlite": _full_sqlite}


def test_a_store_without_room_leaves_what_was_whole(place: Place, gone_soon: Callable[[], None]) -> None:
    """Where a test can take its room away; that of object storage stands in its own tests."""
    if place.kind not in _FULL:
        pytest.skip("its room cannot be taken away")
    fill, clear = _FULL[place.kind](place)
    store, order = place.store, 1
    write(store, order)
    gone_soon()
    fill()
    try:
        with pytest.raises(StoreError):
            write_much(store, order + 1)
    finally:
        clear()
    goes_on_after(place, order)


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize("kind", ["directory", "postgresql", "mariadb", "changelog"])
def test_a_disk_without_room_leaves_what_was_whole(
    kind: str, gone_soon: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a write. A server is begun anew when there is room again, as its people do: some end where there is none."""
    with mounted(DISK_MIB << 20) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
        with _served(kind, disk.folder) as place, contextlib.closing(place.store) as store:
            write(store, 1)
            gone_soon()
            disk.leave(ROOM_BYTES)
            with pytest.raises(StoreError):
                write_much(store, 2)
            disk.resize(DISK_MIB << 20)
            place.kill()
            place.restart()
            goes_on_after(place, 1)
