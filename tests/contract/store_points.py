"""The points of a snapshot's write: each call from a store to its server or disk, so that a process or a server can be killed
before any of them. As a program it is the process that is killed: for each input line it writes in a forked child, and kills that
at the given point.

    python -m tests.contract.store_points KIND URL      lines: ORDER POINT WAIT_S OTHERS; point -1: die reading that snapshot
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import random
import select
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

import pytest

from hotspare.stores.contract import Store
from hotspare.stores.open import open_store
from hotspare.stores.settings import StoreSettings
from tests.contract.material import Page

GROUP = "killed"
READING = -1
_SQL = ("sqlalchemy.engine.default:DefaultDialect", ("do_execute", "do_executemany", "do_commit"))
_DOORS = MappingProxyType(
    {
        "directory": ("os", ("open", "write", "fsync", "rename", "unlink", "mkdir")),
        "sqlite": _SQL,
        "postgresql": _SQL,
        "mariadb": _SQL,
        "redis": ("redis.connection:AbstractConnection", ("send_packed_command", "read_response")),
        "s3": ("aiobotocore.httpsession:AIOHTTPSession", ("send",)),
        "changelog": ("hotspare.stores.changelog.topics:Topic", ("append", "read")),
    }
)
"""The calls of each kind of store; the changelog also passes a point before each message to Kafka's client."""
_MODULES = MappingProxyType(
    {
        "redis": "hotspare.stores.redis.store",
        "s3": "hotspare.stores.objects.store",
        "changelog": "hotspare.stores.changelog.store",
        "directory": "hotspare.stores.directory",
    }
)

ARE_GONE = StoreSettings(writer_timeout_s=-1, reader_timeout_s=-1)
"""Settings by which a writer or reader counts as dead at once."""


class Others(Enum):
    """The view of the killed process on other writers without a recent sign of life."""

    MAY_LIVE = "may live"
    ARE_GONE = "are gone"
    """It collects their remains."""


def pages_of(order: int) -> dict[str, bytes]:
    """Returns pages that are the same in every snapshot, in some, and in one alone; one exceeds a message or a database row."""
    own = random.Random(order).randbytes(1_200_000)
    return {"same": b"s" * 5_000, "old": b"%d" % (order // 4) * 700, "own": own, "empty": b"", "twice": own[:3_000]}


def write(store: Store, order: int) -> None:
    """Writes a snapshot, from its first page to the collection of the older ones."""
    name, pages = f"s{order}", {page: Page(content) for page, content in pages_of(order).items()}
    store.write_candidate(GROUP, name, "e", order, b"header %d" % order, pages.items())
    store.confirm(GROUP, name)
    store.prune_snapshots(GROUP, 1)


@dataclass
class Passed:
    """Counts the points that are passed; calls `act` before each, with its number from 1."""

    act: Callable[[int], object]
    count: int = 0

    def point(self) -> None:
        self.count += 1
        self.act(self.count)


@contextlib.contextmanager
def points(kind: str, act: Callable[[int], object]) -> Iterator[Passed]:
    """Makes stores of that kind pass points inside the block."""
    passed = Passed(act)
    where, methods = _DOORS[kind]
    module, _, owner = where.partition(":")
    place = importlib.import_module(module)
    place = getattr(place, owner) if owner else place
    with pytest.MonkeyPatch.context() as patched:
        for method in methods:
            patched.setattr(place, method, _with_points(getattr(place, method), passed))
        if kind == "changelog":
            patched.setattr("hotspare.stores.changelog.topics.Producer", _producer(passed))
        yield passed


def _with_points(real: Any, passed: Passed) -> Callable[..., Any]:
    """Passes a point before the call, and one after it, when its effect exists and its result is not known yet."""

    async def ended(call: Awaitable[Any]) -> Any:
        result = await call
        passed.point()
        return result

    def call(*arguments: Any, **named: Any) -> Any:
        passed.point()
        result = real(*arguments, **named)
        if inspect.isawaitable(result):
            return ended(result)
        if not inspect.isgenerator(result):
            passed.point()
        return result

    return call


def _producer(passed: Passed) -> type:
    from confluent_kafka import Producer

    class Passing(Producer):
        def produce(self, *arguments: Any, **named: Any) -> None:
            passed.point()
            super().produce(*arguments, **named)

    return Passing


def _read_and_die(store: Store, order: int) -> None:
    """Reads a large snapshot, and kills this process meanwhile."""
    stored = store.get(GROUP, f"s{order}")
    if stored.pages["same"] == pages_of(order)["same"]:
        os.kill(os.getpid(), signal.SIGKILL)


def main(kind: str, url: str) -> None:
    """Answers each input line with exit status, points and seconds; points and seconds of a killed child are 0."""
    importlib.import_module(_MODULES.get(kind, "hotspare.stores.sql.store"))
    importlib.import_module(_DOORS[kind][0].partition(":")[0])
    for line in sys.stdin:
        order, point, wait_s, others = line.split(maxsplit=3)
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            os.close(told)
            settings = ARE_GONE if Others(others.strip()) is Others.ARE_GONE else StoreSettings()
            _write_and_tell(kind, url, int(order), int(point), tell, settings)
        os.close(tell)
        if float(wait_s):
            select.select([told], [], [], float(wait_s))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(told) as said:
            print(os.waitstatus_to_exitcode(status), said.read() or "0 0", flush=True)


def _write_and_tell(kind: str, url: str, order: int, point: int, tell: int, settings: StoreSettings) -> None:
    """Writes, or reads, one snapshot in the forked child. Never returns."""

    def die(number: int) -> None:
        if number == point:
            os.kill(os.getpid(), signal.SIGKILL)

    begin, code = time.perf_counter(), 1
    if point == READING:
        settings = replace(settings, eager_bytes_max=0)
    try:
        with points(kind, die) as passed, contextlib.closing(open_store(url, settings=settings)) as store:
            if point == READING:
                _read_and_die(store, order)
            write(store, order)
        os.write(tell, b"%d %.3f" % (passed.count, time.perf_counter() - begin))
        code = 0
    finally:
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
