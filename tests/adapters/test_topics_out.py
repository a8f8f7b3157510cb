"""Outputs reach an external topic exactly once, in the order of their stream, whichever process dies (SPEC I3, E9)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.changelog_reading import RowChoice, SequenceBreak, UpdateBlocks
from hotspare.adapters.failover.subscriber_position import PartitionPosition
from hotspare.adapters.files.subscriber import SubscribeProgress, SubscribeReport, Until
from hotspare.adapters.topics.send_form import MessageCut, SchemaLine, SendForm, SentPosition
from hotspare.adapters.topics.subscriber import SendOptions, send_topic
from hotspare.base.errors import BusError, PositionLost, TopicMissing, UsageError
from hotspare.bus.contract import Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.bus.topic_writer import BusTopicWriter
from hotspare.formats import arrow_block, avro_block
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import EVENT_FORMATS, OUTPUT_COLUMNS, MessageFormat
from hotspare.rows.routing import key_partitions
from tests.adapters.killed import Killed, Mortal, struck
from tests.adapters.outputs import ROWS, SCHEMA, TOPIC, UB, D, I, N, Row, block

OTHERS = Partition("alerts")


class Site:
    """A bus with an output stream of `shards` partitions, and an external one with the topic."""

    def __init__(self, shards: int = 1) -> None:
        self.ours, self.theirs = MemoryBus(), MemoryBus()
        self.bus().create_topic(TOPIC, shards)
        self.their_bus().create_topic(OTHERS.topic)
        self.sequences = [0] * shards

    def bus(self) -> MemoryBusClient:
        return self.ours.client("adapter")

    def their_bus(self) -> MemoryBusClient:
        return self.theirs.client("other")

    def put(self, rows: Sequence[Row], shard: int = 0) -> None:
        """Appends one message of the stream."""
        first = self.sequences[shard] + 1
        self.bus().append(Partition(TOPIC, shard), [Outgoing(arrow_block.encode(block(rows, first)))])
        self.sequences[shard] += len(rows)

    def send(
        self, act: Callable[[], None] = lambda: None, report: SubscribeReport | None = None, **more: object
    ) -> SubscribeProgress:
        writer = BusTopicWriter(self.their_bus(), OTHERS.topic, b"s@")
        options = SendOptions("s", SendForm(SCHEMA, **{"format": MessageFormat.CSV} | more), until=Until.END)  # type: ignore[arg-type]
        return send_topic(Mortal(self.bus(), act), TOPIC, Mortal(writer, act), options, threading.Event(), report)

    def found(self) -> list[bytes]:
        return [message.value for message in self.messages()]

    def messages(self) -> Sequence[Message]:
        return self.their_bus().read(OTHERS, 0, messages_max=100_000, bytes_max=1 << 30)


def ids(lines: Sequence[bytes]) -> list[int]:
    return [int(line.split(b",")[2]) for line in lines]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4), st.integers(0, 25)), max_size=6))
def test_every_output_is_sent_once_though_the_adapter_dies_anywhere(steps: list[tuple[int, int, int]]) -> None:
    """Each step appends some rows, then runs an adapter that dies before its action `lives`."""
    site, number = Site(shards=2), 0
    for shard, count, lives in steps:
        site.put([(I, N, 2 * (number + k) + shard, 1.0) for k in range(count)], shard)
        number += count
        with Killed.after(lives) as act:
            site.send(act)
    site.send()
    found = ids(site.found())
    assert sorted(each // 2 for each in found) == list(range(number))
    assert all(
        [each for each in found if each % 2 == shard] == sorted(each for each in found if each % 2 == shard) for shard in (0, 1)
    )


def test_it_dies_between_every_two_actions() -> None:
    site, lives, is_over = Site(), 0, False
    while not is_over:
        site.put([(I, N, 2 * lives, 1.0), (I, N, 2 * lives + 1, 1.0)])
        with Killed.after(lives) as act:
            site.send(act)
            is_over = True
        lives += 1
    assert lives > 8
    assert ids(site.found()) == list(range(2 * lives))


def test_an_adapter_that_was_frozen_doubles_nothing_of_what_another_sent() -> None:
    """It is overtaken before, or after, each of its actions in turn."""
    frozen_at = 0
    while overtaken(Site(), frozen_at):
        frozen_at += 1
    assert frozen_at > 8


def overtaken(site: Site, frozen_at: int) -> bool:
    """Whether the adapter has at least `frozen_at` actions."""

    def another() -> None:
        site.put([(I, N, 2, 1.0)])
        site.send()

    site.put([(I, N, 0, 1.0), (I, N, 1, 1.0)])
    has_so_many = struck(site.send, frozen_at, another)
    site.send()
    assert ids(site.found()) == [0, 1, *([2] if frozen_at and has_so_many else [])]
    return has_so_many


def test_an_update_that_two_messages_hold_is_collapsed_whoever_sends_its_second_row() -> None:
    """SPEC I14."""
    site, collapsed = Site(), RowChoice(updates=UpdateBlocks.COLLAPSED)
    site.put([(I, N, 1, 1.0), (UB, N, 1, 2.0)])
    site.send(choice=collapsed)
    site.put([(D, N, 1, 1.0), (I, N, 2, 1.0)])
    site.send(choice=collapsed)
    assert site.found() == [b"I,N,1,1", b"U,N,1,2", b"I,N,2,1"]


def test_outputs_that_are_lost_end_it_without_an_option_of_publishers() -> None:
    site = Site()
    site.put([(I, N, 1, 1.0)])
    site.send()
    site.put([(I, N, 2, 1.0)])
    site.put([(I, N, 3, 1.0)])
    site.bus().trim(Partition(TOPIC), 2)
    with pytest.raises(PositionLost, match="no longer holds offset 1") as caught:
        site.send()
    assert "--skip-lost" not in caught.value.hint


def test_what_is_missing_in_the_stream_is_told() -> None:
    site, broken, begun = Site(), list[SequenceBreak](), list[int]()
    report = SubscribeReport(on_sequence_break=broken.append, on_incomplete=begun.append)
    site.sequences[0] = 4
    site.put([(I, N, 1, 1.0)])
    site.send(report=report)
    site.sequences[0] += 2
    site.put([(I, N, 2, 1.0)])
    assert site.send(report=report).breaks == 1
    assert begun == [5]
    assert broken == [SequenceBreak(5, 8)]


@pytest.mark.parametrize("format_", EVENT_FORMATS)
def test_each_format_holds_all_outputs(format_: MessageFormat) -> None:
    """SPEC I4."""
    site = Site()
    for rows in ROWS:
        site.put(rows)
    site.send(format=format_)
    messages = site.messages()
    assert {message.header("hotspare-format") for message in messages} == {format_.header}
    wanted = [row[2] for rows in ROWS for row in rows]
    if format_ is MessageFormat.CSV:
        found = ids([message.value for message in messages])
    elif format_ is MessageFormat.JSON:
        found = [json.loads(message.value)["id"] for message in messages]
    elif format_ is MessageFormat.AVRO:
        rows_found, _ = avro_block.decode_events([message.value for message in messages], range(len(messages)), SCHEMA)
        assert rows_found is not None
        found = rows_found.columns[0].to_pylist()
    else:
        found = [number for message in messages for number in arrow_block.decode(message.value).column("id").to_pylist()]
    assert found == wanted
    per_message = format_ in (MessageFormat.CSV, MessageFormat.JSON)
    assert len(messages) == (len(wanted) if per_message else len(ROWS))


def test_a_block_of_the_stream_may_stay_one_message() -> None:
    site = Site()
    site.put([(I, N, 1, 1.0), (I, N, 2, 1.5)])
    site.send(cut=MessageCut.PER_BLOCK)
    assert site.found() == [b"I,N,1,1\nI,N,2,1.5\n"]


def test_the_schema_is_said_once_though_the_adapter_dies_between_every_two_actions() -> None:
    """SPEC I3: csvincludeschema."""
    site, lives, is_over = Site(), 0, False
    site.put([(I, N, 1, 1.0)])
    while not is_over:
        with Killed.after(lives) as act:
            site.send(act, schema_line=SchemaLine.ONCE)
            is_over = True
        lives += 1
    site.put([(I, N, 2, 1.0)])
    site.send(schema_line=SchemaLine.ONCE)
    assert lives > 5
    assert site.found() == [str(SCHEMA).encode(), b"I,N,1,1", b"I,N,2,1"]


def test_the_schema_is_said_in_each_message() -> None:
    """SPEC I3: csvincludeschema."""
    site, schema = Site(), str(SCHEMA).encode()
    site.put([(I, N, 1, 1.0), (I, N, 2, 1.5)])
    site.send(schema_line=SchemaLine.PER_MESSAGE)
    site.put([(I, N, 3, 1.0), (I, N, 4, 1.0)])
    site.send(schema_line=SchemaLine.PER_MESSAGE, cut=MessageCut.PER_BLOCK)
    assert site.found() == [schema + b"\nI,N,1,1", schema + b"\nI,N,2,1.5", schema + b"\nI,N,3,1\nI,N,4,1\n"]


VALUES = {
    FieldType.STRING: (pa.string(), ['a,"b"\nc', None, ""], [b'a,"b"\nc', b""]),
    FieldType.DOUBLE: (pa.float64(), [0.1, None, float("nan")], [b"0.1", b"nan"]),
    FieldType.STAMP: (pa.timestamp("us"), [7, None, 0], [b"7", b"0"]),
    FieldType.BLOB: (pa.binary(), [b"\x00\xff", None, b""], [b"AP8=", b""]),
    FieldType.DOUBLE_ARRAY: (pa.list_(pa.float64()), [[1.5, None], None, []], [b"[1.5;null]", b"[]"]),
}


@pytest.mark.parametrize("type_", VALUES)
def test_a_message_may_be_the_value_of_one_field(type_: FieldType) -> None:
    """SPEC I4: it is sent as it would be read."""
    arrow, values, texts = VALUES[type_]
    schema = Schema((Field("k", FieldType.INT64, KeyRole.KEY), Field("v", type_)))
    ours = [pa.array([1] * 3, type_) for _, type_ in OUTPUT_COLUMNS]
    rows = pa.RecordBatch.from_arrays(
        [*ours, pa.array([5, 6, 7], pa.int64()), pa.array(values, arrow)], names=[*(n for n, _ in OUTPUT_COLUMNS), "k", "v"]
    )
    placed = SendForm(schema, MessageFormat.CSV, value_field="v").route_rows(rows, 1, None)
    assert [(each.message.key, each.message.value, each.message.headers) for each in placed] == [
        (key, text, ()) for key, text in zip((b"5", b"7"), texts, strict=True)
    ]


TWO_KEYS = Schema((Field("a", FieldType.STRING, KeyRole.KEY), Field("b", FieldType.INT32, KeyRole.KEY)))


@given(st.lists(st.tuples(st.text(alphabet='ab,"\n', max_size=3), st.integers(0, 3)), max_size=8), st.integers(1, 5))
def test_rows_go_where_clients_look_for_their_keys(values: list[tuple[str, int]], count: int) -> None:
    """Each row in a message of its own, whatever its text holds."""
    ours = [pa.array([1] * len(values), type_) for _, type_ in OUTPUT_COLUMNS]
    names = [name for name, _ in OUTPUT_COLUMNS]
    columns = [pa.array([a for a, _ in values], pa.string()), pa.array([b for _, b in values], pa.int32())]
    rows = pa.RecordBatch.from_arrays([*ours, *columns], names=[*names, "a", "b"])
    placed = SendForm(TWO_KEYS, MessageFormat.CSV).route_rows(rows, count, None)
    keys = [f"{a},{b}".encode() for a, b in values]
    assert [each.message.key for each in placed] == keys
    assert [each.partition for each in placed] == key_partitions(pa.array(keys, pa.binary()), count).tolist()
    assert {each.partition for each in SendForm(TWO_KEYS).route_rows(rows, count, 0)} <= {0}


@given(st.dictionaries(st.integers(0, 9), st.builds(PartitionPosition, st.integers(0, 99), st.integers(0, 99), st.booleans())))
def test_a_position_is_read_back_as_it_was_written(places: dict[int, PartitionPosition]) -> None:
    position = SentPosition("t", places)
    assert SentPosition.from_record(position.to_record(), "t", "s") == position


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (b"junk", "position of source s cannot be read"),
        (SentPosition("u").to_record(), "sent outputs of topic u until now, not of t"),
    ],
)
def test_a_position_of_something_else_is_refused(record: bytes, words: str) -> None:
    with pytest.raises(BusError, match=words):
        SentPosition.from_record(record, "t", "s")


def test_what_a_topic_cannot_be_asked_is_refused() -> None:
    site = Site()
    site.their_bus().create_topic("wide", 2)
    writer = BusTopicWriter(site.their_bus(), "wide", b"s@")
    with pytest.raises(UsageError, match="topic wide has 2 partitions; this bus writes only to topics with one"):
        send_topic(site.bus(), TOPIC, writer, SendOptions("s", SendForm(SCHEMA)), threading.Event())
    with pytest.raises(UsageError, match="dateformat has no effect"):
        SendForm(SCHEMA, MessageFormat.AVRO, date_format="%Y")
    with pytest.raises(UsageError, match="only messages in csv contain their schema"):
        SendForm(SCHEMA, MessageFormat.JSON, schema_line=SchemaLine.ONCE)
    with pytest.raises(UsageError, match="has no field y"):
        SendForm(SCHEMA, MessageFormat.CSV, value_field="y")
    with pytest.raises(UsageError, match="one value holds one output"):
        SendForm(SCHEMA, MessageFormat.CSV, value_field="value", cut=MessageCut.PER_BLOCK)


def test_a_stream_that_is_not_there_yet_is_waited_for_until_stop_and_up_to_its_end_named() -> None:
    """An adapter that waited for the stream used to ignore a stop."""
    site, stop = Site(), threading.Event()
    writer = BusTopicWriter(site.their_bus(), OTHERS.topic, b"s@")
    form = SendForm(SCHEMA, MessageFormat.CSV)
    with pytest.raises(TopicMissing):
        send_topic(site.bus(), "not.there", writer, SendOptions("s", form, until=Until.END), stop)
    sending = threading.Thread(target=send_topic, args=(site.bus(), "not.there", writer, SendOptions("s", form), stop), daemon=True)
    sending.start()
    stop.set()
    sending.join(30)
    assert not sending.is_alive()
