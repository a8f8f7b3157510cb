"""Answers of a real Redis to a window's outputs (SPEC G13, G14): each output is answered once, and the answer is input."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.adapters.state.layout import index_key, indexes_key, key_fields_key, record_key
from hotspare.base.errors import ProjectError
from hotspare.bus.contract import OUTPUTS_HEADER, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.formats import arrow_block
from hotspare.ha.rules.roles import Role
from hotspare.projects.load import load_text
from hotspare.stores.redis.server import server_of
from hotspare.telemetry.log import Log
from hotspare.testing.cluster import wait_until
from hotspare.testing.redis_server import RedisServer
from tests.adapters.outputs import UB, D, I, N, Row, block

ASKS, ANSWERS = "p.project.cq.source.O", Partition("p.project.cq.asked.I")
PROJECT = """
project: project
queries:
  cq:
    windows:
      source: {type: source, opcodes: any, schema: "id*:int64,value:double"}
      asked: {type: statedb-reader, server: "URL", prefix: PREFIX, OPTIONS}
    edges: [source -> asked]
"""
BY_KEY = """where: {id: user}, schema: "id*:int64,value:double,limit:double,name:string",
  outputs: {limit: query.limit, name: query.name}"""
NOW_US = 1_000_000_000


@functools.cache
def _database(url: str) -> Any:
    return server_of(url, "the test's")


@pytest.fixture(scope="module", autouse=True)
def _closed(redis: RedisServer) -> Iterator[None]:
    yield
    _database(redis.url).close()
    _database.cache_clear()


class Site:
    def __init__(self, url: str, options: str) -> None:
        self.bus = MemoryBus(lambda: NOW_US)
        self.client = self.bus.client("engine")
        for topic in (ASKS, ANSWERS.topic):
            self.client.create_topic(topic)
        self.prefix, self.sequence = f"t{uuid4().hex}", 0
        self.database = _database(url)
        self.text = PROJECT.replace("OPTIONS", options).replace("PREFIX", self.prefix)
        self.resolved = load_text(self.text.replace("URL", url), "project.yaml").resolved

    def writes(self, key: str, *indexes: tuple[str, str]) -> None:
        """Declares key and indexes as a writer does at its start."""
        self.database.set(key_fields_key(self.prefix), key)
        self.database.set(indexes_key(self.prefix), ",".join(f"{name}:{field}" for name, field in indexes))

    def record(self, key: Sequence[str], fields: Mapping[str, str], dies_us: int = 0, *indexes: tuple[str, str]) -> None:
        name = record_key(self.prefix, key)
        told = {"_esp_meta_ttd_": str(dies_us)} if dies_us else {}
        self.database.hset(name, mapping={**fields, **told})
        for index, value in indexes:
            self.database.zadd(index_key(self.prefix, index, [value]), {name: dies_us or 9_000_000_000_000_000})

    def ask(self, *rows: Row) -> None:
        """Appends one message of the window's stream."""
        value = arrow_block.encode(block(rows, self.sequence + 1))
        self.client.append(Partition(ASKS), [Outgoing(value, ((OUTPUTS_HEADER, b"%d" % self.sequence),))])
        self.sequence += len(rows)

    def engine(self) -> ConnectorSet:
        return ConnectorSet(self.resolved, self.client, "p", log=Log())

    def answers(self) -> list[str]:
        found = self.client.read(ANSWERS, 0, messages_max=10_000, bytes_max=1 << 24)
        return [row for message in found for row in message.value.decode().split("\n") if row]

    def answered(self, *expected: str) -> None:
        """Checks that all outputs so far get these answers, and no others."""
        engine = self.engine()
        engine.follow_role(Role.ACTIVE, 1)
        wait_until(lambda: len(self.answers()) >= len(expected), "the answers")
        engine.stop()
        assert self.answers() == list(expected)


def test_a_record_is_found_by_its_key(redis: RedisServer) -> None:
    """SPEC G13: fields of the event and of the record; without a record, those of the event alone. Another program may have written
    any data."""
    site = Site(redis.url, BY_KEY)
    site.record(["1"], {"user": "1", "limit": "5.5", "name": 'a;b,"c"'})
    site.record(["2"], {"user": "2", "limit": "much", "_esp_meta_timestamp_": "today", "_esp_meta_ttd_": "²"})
    site.database.hset(record_key(site.prefix, ["2"]), mapping={b"\xff": b"\xfe"})
    site.database.set(record_key(site.prefix, ["3"]), "no record")
    site.ask((I, N, 1, 1.5), (I, N, 2, 2.5))
    site.ask((I, N, 3, 3.5), (UB, N, 1, 9.0), (D, N, 1, 1.5))
    site.ask((D, N, 2, 2.5))
    site.answered('P,N,1,1.5,5.5,"a;b,""c"""', "P,N,2,2.5,,", "P,N,3,3.5,,", 'P,N,1,9,5.5,"a;b,""c"""', "SD,N,2,2.5,,")


def test_a_record_that_is_dead_by_the_time_of_the_event_does_not_count(redis: RedisServer) -> None:
    """SPEC G13: by the append time of the event, not by a clock."""
    site = Site(redis.url, BY_KEY)
    site.record(["1"], {"limit": "1"}, NOW_US)
    site.record(["2"], {"limit": "2"}, NOW_US + 1)
    site.ask((I, N, 1, 0.0), (I, N, 2, 0.0))
    site.answered("P,N,1,0,,", "P,N,2,0,2,")


def test_aggregates_are_of_all_records_that_an_index_finds(redis: RedisServer) -> None:
    """SPEC G13: in any order; an invalid value does not count."""
    options = """index: empty, where: {id: owner},
      schema: "id*:int64,total:double,least:int64,most:int64,mean:double,n:int64",
      outputs: {total: sum(query.x), least: min(query.k), most: max(query.k), mean: avg(query.x), n: count(query.x)}"""
    site = Site(redis.url, options)
    site.writes("card", ("by_owner", "owner"))
    for card, x, k in (("a", "0.1", "7"), ("b", "0.2", "x"), ("c", "0.3", "-2")):
        site.record([card], {"owner": "1", "x": x, "k": k}, 0, ("by_owner", "1"))
    site.record(["d"], {"owner": "2", "x": "100", "k": "100"}, 0, ("by_owner", "1"))  # an index that was not maintained
    site.ask((I, N, 1, 0.0), (I, N, 2, 0.0))
    site.answered("I,N,1,0.6,-2,7,0.19999999999999998,3", "I,N,2,,,,,0")


def test_many_records_are_as_many_rows_and_may_go_again_at_once(redis: RedisServer) -> None:
    """SPEC G13: one row for each record, in the order of keys; with generated deletes no later window keeps them."""
    options = """where: {id: owner}, generate: deletes, schema: "id*:int64,card*:string,value:double",
      outputs: {card: query.card}"""
    site = Site(redis.url, options)
    site.writes("card", ("other", "card"), ("by_owner", "owner"))
    for card in ("b", "a"):
        site.record([card], {"owner": "1", "card": card}, 0, ("by_owner", "1"))
    site.ask((I, N, 1, 2.0), (I, N, 2, 0.0), (D, N, 1, 2.0))
    site.answered("P,N,1,a,2", "SD,N,1,a,2", "P,N,1,b,2", "SD,N,1,b,2")


def test_each_output_is_answered_once_whoever_asks(redis: RedisServer) -> None:
    """SPEC G14, E9: earlier answers stay unchanged, also if the record changes."""
    site = Site(redis.url, BY_KEY)
    old, new = site.engine(), site.engine()
    site.record(["1"], {"limit": "1"})
    site.ask((I, N, 1, 1.0))
    old.follow_role(Role.ACTIVE, 1)
    wait_until(lambda: len(site.answers()) == 1, "the first answer")
    site.record(["1"], {"limit": "2"})
    new.follow_role(Role.ACTIVE, 2)
    for number in range(2, 30):
        site.ask((I, N, 1, float(number)))
    wait_until(lambda: len(site.answers()) >= 29, "all answers")
    for each in (old, new):
        each.stop()
    assert site.answers() == ["P,N,1,1,1,"] + [f"P,N,1,{number},2," for number in range(2, 30)]


def test_records_without_the_index_that_is_needed_are_told(redis: RedisServer) -> None:
    site = Site(redis.url, BY_KEY)
    site.writes("card", ("by_owner", "owner"))
    engine = site.engine()
    site.ask((I, N, 1, 1.0))
    engine.follow_role(Role.ACTIVE, 1)
    wait_until(lambda: engine.states()["cq/asked/statedb"] is ConnectorState.FAILED, "the failure")
    engine.stop()
    assert site.answers() == []


def test_a_database_that_refuses_the_request_is_no_reason_to_wait(redis: RedisServer) -> None:
    """A wrong password, and an index that is a key of another type: the look-ups fail, with the server's answer."""
    wrong = Site(redis.url.replace(redis.password, "wrong"), BY_KEY)
    index = Site(redis.url, BY_KEY)
    index.writes("card", ("by_user", "user"))
    index.database.set(index_key(index.prefix, "by_user", ["1"]), "another program's")
    for site, reason in ((wrong, "invalid username-password"), (index, "WRONGTYPE")):
        engine = site.engine()
        site.ask((I, N, 1, 1.0))
        engine.follow_role(Role.ACTIVE, 1)
        wait_until(lambda engine=engine: engine.states()["cq/asked/statedb"] is ConnectorState.FAILED, reason)
        engine.stop()
        assert reason in engine.facts()["cq/asked/statedb"].last_error


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("publish: false", "window source is not published, so no output of it would be answered by asked"),
        ("quality: simple", "window source has the quality simple: answers of asked would be missing, or repeated"),
    ],
)
def test_a_stream_of_which_not_every_output_would_be_answered_once_is_refused(option: str, told: str) -> None:
    text = PROJECT.replace("OPTIONS", BY_KEY).replace("URL", "redis://localhost").replace("PREFIX", "x")
    with pytest.raises(ProjectError) as error:
        load_text(text.replace("opcodes: any", f"opcodes: any, {option}"), "project.yaml")
    assert [mistake.message for mistake in error.value.mistakes] == [told]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ('schema: "id*:int64"', "has no condition that selects records"),
        ('where: {no: id}, schema: "id*:int64"', "selects records by the unknown field 'no'"),
        ('where: {id: id}, schema: "id*:int64,x:double"', "comes from the unknown field 'x' of its input"),
        ('where: {id: id}, schema: "id*:string"', "is a string, that of its input a int64"),
        ('where: {id: id}, schema: "id*:int64,x:string", outputs: {x: sum(query.x)}', "is a string, its value is sum(query.x)"),
        ('where: {id: id}, schema: "id*:int64,x:double", outputs: {x: sum(input.value)}', "aggregate of a field of its input"),
        ('where: {id: id}, schema: "id*:int64,x:double", outputs: {x: value}', "'value' is not a field of an event or a record"),
        (
            'where: {id: id}, schema: "id*:int64,x:double,y:double", outputs: {x: query.x, y: sum(query.y)}',
            "has aggregates of records, and values of single ones",
        ),
    ],
)
def test_mistakes_are_told(options: str, told: str) -> None:
    text = PROJECT.replace("OPTIONS", options).replace("URL", "redis://localhost").replace("PREFIX", "x")
    with pytest.raises(ProjectError) as error:
        load_text(text, "project.yaml")
    assert any(told in mistake.message for mistake in error.value.mistakes), error.value
