"""kill -9 of the process that writes a snapshot, and of its server, before and after each call of a write: the checks that must
pass then, for every kind of store. The tests try some of the points, the campaign (`make store-kills`) all."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from subprocess import Popen
from typing import Any, TypeAlias

from sqlalchemy import func, select

from hotspare.base.errors import StoreError
from hotspare.stores.contract import SnapshotStatus, Store
from hotspare.stores.open import open_store
from hotspare.stores.settings import StoreSettings
from hotspare.testing.database_server import DatabaseKind, DatabaseServer, why_no_server
from hotspare.testing.kafka_server import KafkaServers
from hotspare.testing.redis_server import RedisServer, why_no_redis
from hotspare.testing.s3_server import S3Server
from tests.contract.material import child
from tests.contract.store_points import ARE_GONE, GROUP, Others, pages_of, points, write

KINDS = ("directory", "sqlite", "postgresql", "mariadb", "redis", "s3", "changelog")
SERVERS = ("postgresql", "mariadb", "redis", "s3", "changelog")
"""The kinds with a server."""
SHORT_WAITS = StoreSettings(kafka_call_s=5.0)
"""Short timeouts for a server that is down."""
WRITER = "import sys; from tests.contract.store_points import main; main(sys.argv[1], sys.argv[2])"

Choose: TypeAlias = Callable[[int], Sequence[int]]
"""Returns the points of a write, out of 1 to `count`, at which a process is killed."""


class Lost(AssertionError):
    """A confirmed snapshot is missing."""


class Torn(AssertionError):
    """A listed snapshot is incomplete, or not what was written."""


class Left(AssertionError):
    """An interrupted write has left remains."""


@dataclass
class Place:
    """A store, its server, and access to the data behind it."""

    kind: str
    url: str
    kill: Callable[[], object] = lambda: None
    restart: Callable[[], object] = lambda: None
    freeze: Callable[[], object] = lambda: None
    thaw: Callable[[], object] = lambda: None
    settings: StoreSettings = field(default_factory=StoreSettings)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.url, settings=self.settings)

    @contextlib.contextmanager
    def opened(self, settings: StoreSettings) -> Iterator[Place]:
        """Yields the same place with a store of other settings, which is closed after the block."""
        other = replace(self, settings=settings)
        with contextlib.closing(other.store):
            yield other

    def left(self) -> int:
        """Returns the number of stored contents, records and claims, without those that expire."""
        return _LEFT[self.kind](self)


def _left_in_folder(place: Place) -> int:
    folder = Path(place.url.removeprefix("file://"))
    return sum(path.is_file() and path.name != "lock" for path in folder.rglob("*"))


def _left_in_database(place: Place) -> int:
    from hotspare.stores.sql.database import metadata

    database: Any = place.store
    tables = metadata.tables.values()
    return sum(database._database.fetch_rows(select(func.count()).select_from(table))[0][0] for table in tables)


def _left_in_redis(place: Place) -> int:
    server = place.store._server  # type: ignore[attr-defined]
    return sum(server.ttl(key) == -1 for key in server.scan_iter("*")) + server.hlen(f"hotspare:{{{GROUP}}}:refs")


def _left_in_bucket(place: Place) -> int:
    """Counts all objects except the nine-byte seals of abandoned writers."""
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


def why_no_hosts(kind: str) -> str:
    """Returns why the kind's server is not installed; "" if it is."""
    if kind in ("postgresql", "mariadb"):
        return why_no_server(DatabaseKind(kind))
    return why_no_redis() if kind == "redis" else ""


@contextlib.contextmanager
def served(kind: str, folder: Path) -> Iterator[Place]:
    """Yields the store on a server of its own, which may be killed."""
    if kind == "directory":
        yield Place(kind, (folder / "snapshots").as_uri())
    elif kind == "sqlite":
        yield Place(kind, f"sqlite:///{folder}/snapshots.db")
    elif kind == "changelog":
        with KafkaServers.start(folder / "kafka") as kafka:
            kill, restart = partial(kafka.kill, 1), partial(kafka.restart, 1)
            yield Place(kind, f"{kafka.url}/shots", kill, restart, partial(kafka.freeze, 1), partial(kafka.thaw, 1))
    else:
        with RedisServer() if kind == "redis" else S3Server() if kind == "s3" else DatabaseServer(DatabaseKind(kind)) as server:
            process = server.process
            yield Place(kind, server.url, process.kill, server.restart, process.freeze, process.thaw)


def check(store: Store, before: int, *cut: int) -> None:
    """Checks the store after interrupted writes of `cut`: every snapshot is whole, and `before` or one of `cut` is confirmed. Lost,
    Torn."""
    infos, known = store.list(GROUP), {before, *cut}
    if not known & {info.order for info in infos if info.status is SnapshotStatus.CONFIRMED}:
        raise Lost(f"none of {known} is confirmed: {infos}")
    for info in infos:
        try:
            stored = store.get(GROUP, info.name)
            found = (info.order in known, stored.header, dict(stored.pages))
        except StoreError as error:
            raise Torn(f"{info} cannot be read") from error
        if found != (True, b"header %d" % info.order, pages_of(info.order)):
            raise Torn(f"{info} is not what was written")


def is_confirmed(store: Store, order: int) -> bool:
    return any(info.order == order and info.status is SnapshotStatus.CONFIRMED for info in store.list(GROUP))


def go_on(store: Store, order: int, *cut: int) -> None:
    """Writes the next snapshot, and discards candidates that will never be confirmed."""
    write(store, order)
    for info in store.list(GROUP):
        if info.status is SnapshotStatus.CANDIDATE:
            assert info.order in cut
            store.discard(GROUP, info.name)
    assert [info.order for info in store.list(GROUP)] == [order]
    check(store, order, order)


def check_left(place: Place, whole: int, what: str) -> None:
    """Checks that one snapshot is stored and takes `whole` entries. Left."""
    if (left := place.left()) != whole:
        raise Left(f"{left - whole} of {what}")


def asked(
    writer: Popen[str], order: int, point: int, wait_s: float = 0.0, others: Others = Others.MAY_LIVE
) -> tuple[int, int, float]:
    """Returns the report of the writing process: exit status, points, seconds."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    print(order, point, wait_s, others.value, file=writer.stdin, flush=True)
    status, count, took_s = writer.stdout.readline().split()
    return int(status), int(count), float(took_s)


def some(wanted: int) -> Choose:
    """Chooses `wanted` points, a random one from each equal part; all points if there are no more."""

    def chosen(count: int) -> Sequence[int]:
        edges = [1 + number * count // wanted for number in range(wanted + 1)]
        return range(1, count + 1) if count <= wanted else [random.randrange(*edge) for edge in itertools.pairwise(edges)]

    return chosen


def kill_writers(place: Place, choose: Choose, moments: int, told: Callable[[int], object] = int) -> int:
    """kill -9 of the writer at the chosen points of a write, and at `moments` random times. Calls `told` before each try. Returns
    the number of kills. Lost, Torn, Left; AssertionError if the next write fails."""
    with place.opened(ARE_GONE) as place, child(WRITER, place.kind, place.url) as writer:
        write(store := place.store, 1)
        go_on(store, 2, 0)
        whole = place.left()
        status, count, took_s = asked(writer, 3, 0)
        assert (status, count > 5) == (0, True)
        go_on(store, order := 4, 3)
        turns = [(point, 0.0) for point in choose(count)]
        turns += [(0, random.uniform(0.1, 1.0) * took_s) for _ in range(moments)]
        killed = 0
        for point, wait_s in turns:
            told(point)
            status, *_ = asked(writer, order + 1, point, wait_s)
            assert status in ((-9,) if point else (-9, 0)), "it was killed, or had ended"
            killed += status == -9
            check(store, order, order + 1)
            go_on(store, order := order + 2, order - 1)
        store.prune_snapshots(GROUP, 1)
        check_left(place, whole, f"{killed} writers")
    return killed


def kill_collectors(place: Place, choose: Choose, told: Callable[[int], object] = int) -> int:
    """Like `kill_writers` for a process that collects, while it writes, the remains of a writer killed at a random point."""
    with place.opened(ARE_GONE) as place, child(WRITER, place.kind, place.url) as writer:
        write(store := place.store, 1)
        go_on(store, order := 2)
        whole = place.left()
        _, before, _ = asked(writer, 3, 0)
        asked(writer, 4, before * 3 // 4)
        status, count, _ = asked(writer, 5, 0, others=Others.ARE_GONE)
        assert status == 0
        go_on(store, order := 6, 3, 4, 5)
        killed = 0
        for point in choose(count):
            told(point)
            status, *_ = asked(writer, order + 1, random.randrange(1, before + 1))
            assert status == -9
            status, *_ = asked(writer, order + 2, point, others=Others.ARE_GONE)
            killed += status == -9  # the amount to collect depends on where the first one was killed
            check(store, order, order + 1, order + 2)
            go_on(store, order := order + 3, order - 2, order - 1)
        store.prune_snapshots(GROUP, 1)
        check_left(place, whole, f"{killed} collectors")
    return killed


def cut_off(place: Place, order: int, act: Callable[[], object], at: int) -> StoreError | None:
    """Writes a snapshot and calls `act` at point `at`; returns the user's error."""
    with points(place.kind, lambda number: act() if number == at else None):
        try:
            write(place.store, order)
        except StoreError as error:
            return error
    return None


def kill_server(place: Place, choose: Choose, told: Callable[[int], object] = int) -> int:
    """Like `kill_writers` for the server. Its user gets an error without secrets, and goes on when the server is up again."""
    store = place.store
    identity = store.identity()
    write(store, order := 1)
    with points(place.kind, lambda _: None) as passed:
        write(store, order := order + 1)
    killed = 0
    for at in choose(passed.count):
        told(at)
        cause = cut_off(place, order + 1, place.kill, at)
        place.kill()  # a write may take fewer calls than the one before, and end before that point
        place.restart()
        killed += 1
        check(store, order, order + 1)
        assert cause is not None or is_confirmed(store, order + 1), "but for what is best effort, whoever writes hears of it"
        assert "secret" not in f"{cause} {cause and cause.detail}"
        go_on(store, order := order + 2, order - 1)
    assert store.identity() == identity
    with place.opened(ARE_GONE) as place:
        place.store.prune_snapshots(GROUP, 1)
        whole = place.left()
        go_on(place.store, order + 1, 0)
        check_left(place, whole, f"writes during {killed} kills of the server")
    return killed
