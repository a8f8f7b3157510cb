"""State in a real Redis while active engines are killed (SPEC G13, G14): records written once, events answered once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hotspare.stores.redis.server import server_of
from hotspare.testing.cluster import wait_until
from hotspare.testing.redis_server import RedisServer
from tests.e2e.site import Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
PROJECT = """\
project: shop
heartbeat: 200 milliseconds
queries:
  sales:
    windows:
      users: {type: source, opcodes: any, schema: "user*:string,limit:double"}
      known: {type: statedb-writer, server: "URL", prefix: PREFIX}
      orders: {type: source, opcodes: any, index: empty, schema: "id*:int64,user:string,amount:double"}
      kept:
        type: statedb-reader
        index: empty
        server: "URL"
        prefix: PREFIX
        where: {user: user}
        schema: "id*:int64,user:string,limit:double"
        outputs: {limit: query.limit}
        publish: true
    edges: [users -> known, orders -> kept]
"""
ROUNDS, ROWS, USERS = 3, 40, 8


@pytest.fixture
def database(redis: RedisServer) -> Iterator[Any]:
    found = server_of(redis.url, "the test's")
    yield found
    found.close()


def test_kills_lose_no_record_and_double_no_answer(tmp_path: Path, redis: RedisServer, database: Any) -> None:
    prefix = tmp_path.name
    site = Site(tmp_path, PROJECT.replace("URL", redis.url).replace("PREFIX", prefix))
    try:
        site.cluster.start_engine("one")
        site.cluster.start_engine("two")
        site.cluster.wait_ready(120)
        for turn in range(ROUNDS):
            users = "".join(f"p,n,u{n},{turn * 10 + n}\n" for n in range(USERS))
            site.publish(users, f"users-{turn}.csv", "shop/sales/users")
            wait_until(lambda t=turn: _limits(database, prefix) == [t * 10 + n for n in range(USERS)], "the records")  # type: ignore[misc]
            numbers = range(turn * ROWS, (turn + 1) * ROWS)
            site.publish("".join(f"i,n,{n},u{n % USERS},1\n" for n in numbers), f"orders-{turn}.csv")
            active = site.cluster.wait_active()
            active.kill()
            site.cluster.start_engine(active.name)
            site.cluster.wait_ready(120)
            found = site.wait_for_outputs((turn + 1) * ROWS)
            assert sorted(_id(row) for row in found) == list(range((turn + 1) * ROWS))
        answers = {_id(row): float(row.rpartition(",")[2]) for row in found}
        assert answers == {n: (n // ROWS) * 10 + n % USERS for n in answers}
        note = database.hget(f"{prefix}:_hotspare_written_:e2e.shop.sales.known.O", "sequence")
        # The first turn inserts; each later one updates: two outputs per user, the second of which changes no record.
        assert int(note) == USERS + 2 * USERS * (ROUNDS - 1) - 1
    finally:
        site.stop()


def _limits(database: Any, prefix: str) -> list[float]:
    found = [database.hget(f"{prefix}:u{n}", "limit") for n in range(USERS)]
    return [float(each) for each in found if each is not None]


def _id(row: str) -> int:
    return int(row.split(",")[2])
