"""Records in a real Redis (SPEC G13, G14): each output once and in order, if writers or the server die, freeze or lose data."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.adapters.files.subscriber import Until
from hotspare.adapters.state.layout import NEVER_EXPIRES_US, stream_progress_key
from hotspare.adapters.state.records import RecordForm
from hotspare.adapters.state.writer import RECORDS_MAX, StateWriter
from hotspare.adapters.topics.subscriber import SendOptions, send_topic
from hotspare.base.errors import BusError, Fenced, ProjectError
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.formats import arrow_block
from hotspare.ha.rules.roles import Role
from hotspare.model.statedb import RecordKeeping
from hotspare.projects.load import load_text
from hotspare.stores.redis.server import server_of
from hotspare.testing.cluster import wait_until
from hotspare.testing.redis_server import RedisServer
from tests.adapters.killed import Killed, Mortal
from tests.adapters.outputs import SCHEMA, TOPIC, UB, D, I, N, R, Row, block

_FIELDS = (("id", "id"), ("value", "amount"))


class Site:
    """An output stream, and its own prefix in the database."""

    def __init__(self, url: str, records_max: int = RECORDS_MAX, **kept: Any) -> None:
        self.now_us, self.records_max = 1_000_000, records_max
        self.bus = MemoryBus(lambda: self.now_us)
        self.client().create_topic(TOPIC)
        self.kept = RecordKeeping(**{"server": url, "prefix": f"t{uuid4().hex}", "key": ("id",), "fields": _FIELDS} | kept)
        self.database = _database(url)
        self.sequence = 0
        self.written: list[tuple[int, int]] = []

    def client(self) -> MemoryBusClient:
        return self.bus.client("engine")

    def put(self, *rows: Row) -> None:
        """Appends one message of the stream."""
        self.client().append(Partition(TOPIC), [Outgoing(arrow_block.encode(block(rows, self.sequence + 1)))])
        self.sequence += len(rows)

    def write(self, epoch: int = 1, act: Callable[[], None] = lambda: None) -> None:
        """Writes all outputs so far, as an engine that dies at `act`."""
        door = StateWriter(self.kept, TOPIC, epoch, self.records_max)
        door._write = _struck(door._write, act, self.written)
        form = RecordForm(self.kept, SCHEMA)
        options = SendOptions(TOPIC, form, until=Until.END)
        try:
            send_topic(Mortal(self.client(), act), TOPIC, Mortal(door, act), options, threading.Event())
        finally:
            door.close()

    def records(self) -> Mapping[str, Mapping[str, str]]:
        """Returns records by the rest of their key; without meta fields."""
        found = {}
        for key in self.database.scan_iter(f"{self.kept.prefix}:*"):
            name = key.decode().removeprefix(f"{self.kept.prefix}:")
            if not name.startswith(("_", "SK:")):
                fields = {field.decode(): value.decode() for field, value in self.database.hgetall(key).items()}
                found[name] = {field: value for field, value in fields.items() if not field.startswith("_")}
        return found

    def index(self, name: str) -> Mapping[str, int]:
        found = self.database.zrange(f"{self.kept.prefix}:SK:{name}", 0, -1, withscores=True)
        return {key.decode().removeprefix(f"{self.kept.prefix}:"): int(score) for key, score in found}

    def note(self, field: str) -> str:
        return (self.database.hget(stream_progress_key(self.kept.prefix, TOPIC), field) or b"").decode()


@functools.cache
def _database(url: str) -> Any:
    """Returns a database client for the tests."""
    return server_of(url, "the test's")


@pytest.fixture(scope="module", autouse=True)
def _closed(redis: RedisServer) -> Iterator[None]:
    yield
    _database(redis.url).close()
    _database.cache_clear()


@pytest.fixture
def url(redis: RedisServer) -> str:
    return redis.url


def _struck(call: Callable[..., Any], act: Callable[[], None], written: list[tuple[int, int]]) -> Callable[..., Any]:
    """Dies before the call, or before its answer. `written`: sequences before and after each successful write."""

    def called(**named: Any) -> Any:
        act()
        answer = call(**named)
        if answer:
            written.append((named["args"][1], named["args"][2]))
        act()
        return answer

    return called


def folded(rows: Sequence[Row]) -> dict[str, dict[str, str]]:
    """Returns the expected records after these outputs, by a plain model."""
    found: dict[str, dict[str, str]] = {}
    for before, (opcode, _, key, value) in zip([None, *rows], rows, strict=False):
        if opcode is D and (before is None or before[0] is not UB):
            found.pop(str(key), None)
        elif opcode is not D:
            found[str(key)] = {"id": str(key)} | ({} if value is None else {"amount": f"{value:g}"})
    return found


def test_a_record_is_what_its_window_holds(url: str) -> None:
    """SPEC G13: a hash for each key, replaced by an update, removed by a delete; a field without a value is left out."""
    site = Site(url)
    site.put((I, N, 1, 1.5), (I, N, 2, 2.5))
    site.put((UB, N, 1, 3.25), (D, N, 1, 1.5))
    site.put((I, N, 3, None), (D, R, 2, 2.5))
    site.write()
    assert site.records() == {"1": {"id": "1", "amount": "3.25"}, "3": {"id": "3"}}
    assert site.note("sequence") == "6"
    assert site.database.get(f"{site.kept.prefix}:_esp_meta_primarykey_fields_") == b"id"
    assert site.database.hget(f"{site.kept.prefix}:3", "_esp_meta_ttd_") == str(NEVER_EXPIRES_US).encode()


def test_secondary_indexes_follow_their_records(url: str) -> None:
    """SPEC G13: a sorted set for each value; a record is only in that of its newest value."""
    site = Site(url, indexes=(("by_value", ("value",)),))
    site.put((I, N, 1, 1.5), (I, N, 2, 1.5))
    site.write()
    assert site.index("by_value:1.5") == {"1": NEVER_EXPIRES_US, "2": NEVER_EXPIRES_US}
    site.put((UB, N, 1, 7.0), (D, N, 1, 1.5))
    site.put((D, N, 2, 1.5))
    site.write()
    assert site.index("by_value:1.5") == {}
    assert site.index("by_value:7") == {"1": NEVER_EXPIRES_US}
    assert site.database.get(f"{site.kept.prefix}:_esp_meta_secondary_indexes_") == b"by_value:amount"


HOUR_US = 3_600_000_000


def test_a_record_dies_so_long_after_the_time_of_its_event(url: str) -> None:
    """SPEC G13: the time to live begins at the append time of the output, so every writer writes the same. The server expires the
    record later by itself, and the next record of its index removes its member. An index expires with its last one."""
    site = Site(url, ttl_us=HOUR_US, ttl_offset_us=HOUR_US, indexes=(("by_value", ("value",)),))
    now_us = time.time_ns() // 1000
    for key, time_us in ((1, now_us - 4 * HOUR_US), (2, now_us - HOUR_US // 2), (3, now_us)):
        site.now_us = time_us
        site.put((I, N, key, 1.5))
        site.write()
        if key == 1:  # dead for longer than the offset already
            assert site.index("by_value:1.5") == {}
    assert sorted(site.records()) == ["2", "3"]
    found = {name.decode(): value.decode() for name, value in site.database.hgetall(f"{site.kept.prefix}:3").items()}
    assert (found["_esp_meta_timestamp_"], found["_esp_meta_ttd_"]) == (str(now_us), str(now_us + HOUR_US))
    assert site.database.pexpiretime(f"{site.kept.prefix}:3") == (now_us + 2 * HOUR_US) // 1000
    assert site.index("by_value:1.5") == {"2": now_us + HOUR_US // 2, "3": now_us + HOUR_US}
    assert site.database.pexpiretime(f"{site.kept.prefix}:SK:by_value:1.5") == (now_us + 2 * HOUR_US) // 1000
    site.kept = replace(site.kept, ttl_us=0)
    site.put((I, N, 4, 1.5))
    site.write()
    assert site.database.pexpiretime(f"{site.kept.prefix}:SK:by_value:1.5") > NEVER_EXPIRES_US // 1000


@given(
    steps=st.lists(st.tuples(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=4), st.integers(0, 12)), max_size=6)
)
def test_records_are_right_though_engines_die_anywhere(redis: RedisServer, steps: list[tuple[list[tuple[int, int]], int]]) -> None:
    """SPEC G13, E9: each step emits some changes, then runs an engine of the next epoch that dies before its action `lives`, also
    between the parts of a write. Nothing is lost or written twice."""
    site, rows, there = Site(redis.url, records_max=2), list[Row](), dict[int, float]()
    for epoch, (changes, lives) in enumerate(steps, 1):
        for key, value in changes:
            new = float(value)
            change: list[Row] = [(I, N, key, new)]
            if key in there:
                change = [(D, N, key, there.pop(key))] if not value else [(UB, N, key, new), (D, N, key, there[key])]
            if change[0][0] is not D:
                there[key] = new
            rows += change
        if rows[site.sequence :]:
            site.put(*rows[site.sequence :])
        with Killed.after(lives) as act:
            site.write(epoch, act)
        assert int(site.note("sequence") or 0) <= len(rows)
    site.write(len(steps) + 1)
    assert site.records() == folded(rows)
    assert all(begin == before for (_, before), (begin, _) in zip(site.written, site.written[1:], strict=False))


def test_an_engine_that_thaws_writes_nothing(url: str) -> None:
    """SPEC G13, E16: neither its messages in hand, nor after it opens again."""
    site = Site(url)
    form = RecordForm(site.kept, SCHEMA)
    site.put((I, N, 1, 1.0))
    site.put((UB, N, 1, 2.0), (D, N, 1, 1.0))
    old = StateWriter(site.kept, TOPIC, 1)
    old.open()
    first = site.client().read(Partition(TOPIC), 0, messages_max=1, bytes_max=1 << 20)[0]
    in_hand = form.route_rows(form.choice.select_rows(form.decode([first]), update_open=0), 1, None, first)
    site.write(epoch=2)
    with pytest.raises(Fenced):
        old.write(in_hand, b"behind the first")
    with pytest.raises(Fenced, match="newer epoch"):
        old.open()
    old.close()
    assert site.records() == {"1": {"id": "1", "amount": "2"}}
    assert json.loads(site.note("position"))["places"]["0"][0] == 2


def test_what_the_server_forgot_is_written_again_from_the_stream(url: str) -> None:
    """SPEC G14: the server loses its last second, or everything."""
    site = Site(url)
    site.put((I, N, 1, 1.0), (I, N, 2, 2.0))
    site.write()
    site.database.flushdb()
    site.put((I, N, 3, 3.0))
    site.write()
    assert sorted(site.records()) == ["1", "2", "3"]


def test_a_key_that_is_something_else_is_told_and_nothing_is_overwritten(url: str) -> None:
    site = Site(url)
    site.database.set(f"{site.kept.prefix}:1", "another program's")
    site.put((I, N, 1, 1.0))
    with pytest.raises(BusError, match="refuses the request"):
        site.write()
    assert site.database.get(f"{site.kept.prefix}:1") == b"another program's"


def test_a_wrong_password_is_told_as_final(redis: RedisServer) -> None:
    door = StateWriter(Site(redis.url, server=redis.url.replace(redis.password, "wrong")).kept, TOPIC, 1)
    with pytest.raises(BusError, match="refuses the request") as error:
        door.open()
    door.close()
    assert not error.value.retryable


TWO = """
project: project
queries:
  cq:
    windows:
      source: {type: source, opcodes: any, schema: "id*:int64,value:double"}
      one: {type: statedb-writer, server: "redis://h:6379/0", prefix: p, fields: {id: id, value: amount}}
      two: {type: statedb-writer, server: "redis://h?password_env=P", prefix: p, OPTIONS}
    edges: [source -> one, source -> two]
"""


@pytest.mark.parametrize(
    ("options", "declared"),
    [
        ("fields: {id: id, value: x}", ""),
        ("fields: {id: card}", "key id, and key card"),
        ("indexes: {by_value: [value]}", "key id, and key id, index by_value of value"),
        ("fields: {id: card}, publish: false", ""),
    ],
)
def test_two_windows_do_not_declare_the_same_records_differently(options: str, declared: str) -> None:
    """Each start replaces the declaration, so readers would look records up by a key or index that they do not have."""
    text = TWO.replace("OPTIONS", options)
    if not declared:
        load_text(text, "project.yaml")
        return
    with pytest.raises(ProjectError) as error:
        load_text(text, "project.yaml")
    (mistake,) = error.value.mistakes
    assert mistake.message == f"windows cq/one and cq/two write records p: with different declarations: {declared}"


def test_several_groups_share_records(url: str) -> None:
    """SPEC G13: each has a note of its own."""
    one = Site(url)
    two = Site(url, prefix=one.kept.prefix)
    one.put((I, N, 1, 1.0))
    one.write()
    two.put((I, N, 2, 2.0))
    options = SendOptions("other", RecordForm(two.kept, SCHEMA), until=Until.END)
    door = StateWriter(two.kept, "other", 1)
    send_topic(two.client(), TOPIC, door, options, threading.Event())
    door.close()
    assert sorted(one.records()) == ["1", "2"]


PROJECT = """
project: project
queries:
  cq:
    windows:
      source: {type: source, opcodes: any, index: empty, schema: "id*:int64,value:double"}
      window: {type: statedb-writer, server: "URL", prefix: PREFIX, fields: {id: id, value: amount}}
    edges: [source -> window]
"""


def test_the_active_engine_keeps_a_windows_outputs_and_waits_for_the_server(redis: RedisServer) -> None:
    """SPEC G13, I1: a spare writes nothing; one that becomes active continues. The server may be unreachable at first."""
    site = Site(redis.url)
    text = PROJECT.replace("URL", redis.url).replace("PREFIX", site.kept.prefix)
    loaded = load_text(text, "project.yaml")
    assert [warning.message for warning in loaded.warnings] == [
        "the password of the state database of window window is written in the project"
    ]
    old, new = (ConnectorSet(loaded.resolved, site.client(), "p") for _ in range(2))
    site.put((I, N, 1, 1.0))
    new.follow_role(Role.STANDBY, 1)
    old.follow_role(Role.ACTIVE, 1)
    wait_until(lambda: sorted(site.records()) == ["1"], "the first record")
    new.follow_role(Role.ACTIVE, 2)
    wait_until(lambda: site.note("epoch") == "2", "the new one has the stream")
    site.put((I, N, 2, 2.0))
    wait_until(lambda: sorted(site.records()) == ["1", "2"], "the second record")
    assert new.states()["cq/window/statedb"] is ConnectorState.RUNNING
    for each in (old, new):
        each.stop()
    assert site.note("sequence") == "2"
