"""Messages that an external topic loses before they are read are named once; all others are published once (SPEC I2, E8)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.esp.topic_options import topic_publish_options
from hotspare.adapters.topics.form import TopicForm
from hotspare.adapters.topics.position import OnLost
from hotspare.base.errors import PositionLost
from hotspare.bus.contract import FORMAT_HEADER, Partition
from hotspare.flow.head.head import Head
from hotspare.projects.load import load_text
from hotspare.rows.batch import RAW_SCHEMA, MessageFormat, RowKind
from hotspare.rows.routing import routing_by
from tests.adapters.killed import Killed, struck
from tests.adapters.outputs import SCHEMA as OUTPUT_SCHEMA
from tests.adapters.outputs import UB, D, I, N
from tests.adapters.test_topics_in import IN, OTHERS, SCHEMA, RowForm, Site, put_out

_NOTICE = re.compile(rb"partition (\d+) of topic sensors: offsets (\d+) to (\d+)((?:, but shard \d+ has its rows to \d+)*)")
_AHEAD = re.compile(rb"shard (\d+) has its rows to (\d+)")
Place = tuple[int, int]
"""Partition and offset of a message of the topic."""


class Losing(Site):
    """Remembers the place of each message by its id; `lose` trims the topic."""

    def __init__(self, partitions: int = 1, shards: int = 1) -> None:
        super().__init__(partitions, shards)
        self.placed: dict[int, Place] = {}

    def write(self, partition: int, count: int = 1) -> None:
        end = self.their_bus().end_offset(Partition(OTHERS, partition))
        self.placed |= {self.written + place: (partition, end + place) for place in range(count)}
        super().write(partition, count)

    def lose(self, partition: int, end: int) -> None:
        """Deletes all messages before `end`, or before the end of the partition."""
        place, bus = Partition(OTHERS, partition), self.their_bus()
        bus.trim(place, min(end, bus.end_offset(place)))

    def skip(self, act: Callable[[], None] = lambda: None) -> None:
        self.bring(act, on_lost=OnLost.SKIP)

    def told(self) -> tuple[list[Place], list[Place]]:
        """Returns the messages that were published, and those named as lost, except those that the notice excludes for their
        shard."""
        came, lost, way = list[Place](), list[Place](), routing_by(SCHEMA, "id", self.shards)
        ids = pa.array(range(self.written), pa.int64())
        shard_of = dict(zip(self.placed.values(), [0] * self.written if way is None else way.partitions(ids), strict=True))
        for shard in range(self.shards):
            for message in self.bus().read(Partition(IN.topic, shard), 0, messages_max=100_000, bytes_max=1 << 30):
                if message.header(FORMAT_HEADER) == MessageFormat.LOST.header:
                    found = _NOTICE.fullmatch(message.value)
                    assert found, message.value
                    partition, begin, end = map(int, found.groups()[:3])
                    ahead = {int(number): int(to) for number, to in _AHEAD.findall(found[4])}
                    named = [(partition, offset) for offset in range(begin, end + 1)]
                    lost += [place for place in named if place[1] > ahead.get(shard_of[place], -1)]
                else:
                    came += [self.placed[int(row.split(b",")[2])] for row in message.value.split(b"\n")]
        return came, lost

    def check(self) -> None:
        """Checks that each message is published or named, not both, and neither twice."""
        came, lost = self.told()
        assert sorted([*came, *lost]) == sorted(self.placed.values())


STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 12), st.integers(0, 30)), max_size=6)


@given(STEPS, st.sampled_from([1, 3]))
def test_law_crash_every_message_comes_in_or_is_named_once(steps: list[tuple[int, int, int, int]], shards: int) -> None:
    """Each step writes some messages, lets the topic lose others, and runs an adapter that dies before its action `lives`."""
    site = Losing(partitions=3, shards=shards)
    site.skip()
    for partition, count, kept_from, lives in steps:
        site.write(partition, count)
        site.lose((partition + kept_from) % 3, kept_from)
        with Killed.after(lives) as act:
            site.skip(act)
    site.skip()
    site.check()


@pytest.mark.parametrize("shards", [1, 2])
def test_messages_that_are_lost_while_it_works_are_named(shards: int) -> None:
    """The topic loses all messages of one partition at each action of the adapter in turn; then again in its next run."""
    at, is_over = 0, False
    while not is_over:
        at += 1
        site = Losing(partitions=2, shards=shards)
        site.skip()
        for _ in range(2):
            site.write(0, 5)
            site.write(1, 5)
            is_over = not struck(site.skip, at, lambda site=site: site.lose(0, len(site.placed)))  # type: ignore[misc]
        site.skip()
        site.check()
        assert len([place for place in site.told()[0] if place[0] == 1]) == 10, "nothing of the other partition is lost"
    assert at > 20


def test_the_notice_takes_out_what_came_into_a_shard() -> None:
    """An adapter dies at each of its actions in turn, and the topic loses all that it read."""
    lives, notices, is_over = 0, set[bytes](), False
    while not is_over:
        site = Losing(shards=2)
        site.skip()
        site.write(0, 3)
        with Killed.after(lives) as act:
            site.skip(act)
            is_over = True
        site.lose(0, 3)
        site.skip()
        site.check()
        notices |= {row for row in site.found() if b"offsets" in row}
        lives += 1
    lost = b"partition 0 of topic sensors: offsets 0 to 2"
    assert notices == {lost, lost + b", but shard 1 has its rows to 2"}


@pytest.mark.parametrize("shards", [1, 2])
def test_an_adapter_that_was_frozen_names_nothing_that_another_named(shards: int) -> None:
    at, is_over = 0, False
    while not is_over:
        at += 1
        site = Losing(partitions=2, shards=shards)
        site.skip()
        site.write(0, 5)
        site.write(1, 2)
        site.lose(0, 3)
        is_over = not struck(site.skip, at, site.skip)
        site.skip()
        site.check()
        assert sorted(site.told()[1]) == [(0, 0), (0, 1), (0, 2)]
    assert at > 10


def test_unless_it_may_it_ends_and_says_how_to_go_on() -> None:
    site = Losing(partitions=2)
    site.bring()
    site.write(0, 3)
    site.lose(0, 2)
    with pytest.raises(PositionLost, match="partition 0 of topic sensors no longer holds offset 0") as caught:
        site.bring()
    assert "2 offsets are gone" in caught.value.detail
    assert "--skip-lost" in caught.value.hint
    assert "skiplost" in caught.value.hint
    site.skip()
    site.check()


def test_what_a_partition_lost_before_it_was_read_first_is_named() -> None:
    site = Losing(partitions=2)
    site.write(0, 1)
    site.bring(partition=0)
    site.write(1, 3)
    site.lose(1, 2)
    with pytest.raises(PositionLost, match="partition 1 of topic sensors no longer holds offset 0"):
        site.bring()
    site.skip()
    site.check()
    assert site.told()[1] == [(1, 0), (1, 1)]


def test_an_update_whose_second_row_is_lost_is_not_open_any_more() -> None:
    site, form = Losing(), TopicForm(rows=RowForm(schema=OUTPUT_SCHEMA))
    put_out(site, [(I, N, 1, 1.0), (UB, N, 1, 2.5)], 1)
    site.bring(form=form)
    put_out(site, [(D, N, 1, 1.0)], 3)
    put_out(site, [(D, N, 1, 2.5)], 4)
    site.lose(0, 2)
    site.bring(form=form, on_lost=OnLost.SKIP)
    assert site.found() == [b"I,N,1,1", b"U,N,1,2.5", b"partition 0 of topic sensors: offsets 1 to 1", b"D,N,1,2.5"]


PROJECT = """
project: project
queries:
  cq:
    windows:
      source:
        type: source
        index: empty
        opcodes: insert-only
        schema: "id*:int64,text:string"
        connectors:
          theirs: {kind: kafka, direction: publish, properties: {kafkahostport: "h:1", kafkatopic: sensors, skiplost: "true"}}
      kept: {type: filter, condition: id > 0, publish: true}
    edges: [source -> kept]
"""


def test_engines_make_a_bad_event_of_a_notice() -> None:
    """Whatever the format of its topic."""
    loaded = load_text(PROJECT)
    values = [b"partition 0 of topic sensors: offsets 3 to 4", b"i,n,1,a", b""]
    formats = [MessageFormat.LOST, MessageFormat.CSV, MessageFormat.LOST]
    columns = [[0] * 3, [0] * 3, [0, 1, 2], [7] * 3, [False] * 3, formats, values]
    raw = pa.RecordBatch.from_arrays([pa.array(c, f.type) for c, f in zip(columns, RAW_SCHEMA, strict=True)], schema=RAW_SCHEMA)
    rows = Head.build(loaded.resolved).decode(raw)
    assert rows.column("kind").to_pylist() == [RowKind.BAD, RowKind.EVENT]
    bad = rows.column("bad")[0].as_py()
    assert (bad["reason"], bad["text"], bad["window"]) == ("lost", values[0].decode(), "cq/source")
    assert bad["message"].endswith("messages are lost that a topic no longer holds")


def test_a_connector_says_it_by_a_property() -> None:
    resolved = load_text(PROJECT).resolved
    (connector,) = resolved.window(resolved.sources[0]).window.connectors
    assert topic_publish_options(connector, resolved.schema(resolved.sources[0])).on_lost is OnLost.SKIP
