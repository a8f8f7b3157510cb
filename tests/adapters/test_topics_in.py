"""External topics are published exactly once, whatever their partitions and whichever process dies (SPEC I2, E8)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.failover.source_position import CHECK_HEADER, SourcePosition
from hotspare.adapters.files.canonical import FileFormat, InsertOpcode, OpcodeColumn, RowForm
from hotspare.adapters.files.row_routing import RowRouting
from hotspare.adapters.topics.form import TopicForm
from hotspare.adapters.topics.position import StartAt, TopicPosition, decode_topic_position, slice_by_bytes, starting_position
from hotspare.adapters.topics.publisher import TopicPublishOptions, TopicPublishProgress, publish_topic
from hotspare.base.errors import BusError, PositionLost, UsageError
from hotspare.bus.contract import OUTPUTS_HEADER, SOURCE_HEADER, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.bus.topic_reader import BusTopicReader, ReceivedMessage
from hotspare.formats import arrow_block
from hotspare.formats.csv.decode import DecodedRows, decode_rows
from hotspare.formats.json.decode import decode_json
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat
from hotspare.rows.refusals import BadRows
from hotspare.rows.routing import routing_by
from tests.adapters.killed import Killed, Mortal, struck
from tests.adapters.outputs import SCHEMA as OUTPUT_SCHEMA
from tests.adapters.outputs import UB, D, I, N, R, Row, block
from tests.formats.bad_rows import listed

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("text", FieldType.STRING)))
OTHERS = "sensors"
IN = Partition("p.project.cq.source.I")


class Site:
    """A bus of the project, and an external one with the topic."""

    def __init__(self, partitions: int = 1, shards: int = 1) -> None:
        self.ours, self.theirs = MemoryBus(), MemoryBus()
        self.bus().create_topic(IN.topic, shards)
        self.their_bus().create_topic(OTHERS, partitions)
        self.shards = shards
        self.written = 0

    def bus(self) -> MemoryBusClient:
        return self.ours.client("adapter")

    def their_bus(self) -> MemoryBusClient:
        return self.theirs.client("other")

    def write(self, partition: int, count: int = 1) -> None:
        """Appends rows with rising ids, a message each."""
        rows = [b"i,n,%d,of %d" % (number, partition) for number in range(self.written, self.written + count)]
        self.their_bus().append(Partition(OTHERS, partition), [Outgoing(row) for row in rows])
        self.written += count

    def bring(self, act: Callable[[], None] = lambda: None, **more: object) -> TopicPublishProgress:
        """Publishes what is there; `act` is called before each action of the adapter."""
        stop = threading.Event()
        reader = ToEnd(BusTopicReader(self.their_bus(), OTHERS), stop)
        options = TopicPublishOptions(**{"source_name": "s"} | more)  # type: ignore[arg-type]
        way = routing_by(SCHEMA, "id", self.shards)
        routing = None if way is None else RowRouting(SCHEMA, way)
        return publish_topic(Mortal(self.bus(), act), IN, Mortal(reader, act), options, stop, routing=routing)

    def found(self, shard: int = 0) -> list[bytes]:
        messages = self.bus().read(Partition(IN.topic, shard), 0, messages_max=100_000, bytes_max=1 << 30)
        return [row for message in messages for row in message.value.split(b"\n")]


class ToEnd:
    """Sets `stop` when there is nothing left to read."""

    def __init__(self, reader: BusTopicReader, stop: threading.Event) -> None:
        self._reader = reader
        self._stop = stop

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    def read(self, messages_max: int, wait_ms: int) -> Sequence[ReceivedMessage]:
        arrived = self._reader.read(min(messages_max, 3), 0)
        if not arrived:
            self._stop.set()
        return arrived


def by_partition(rows: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Returns the ids of the rows by their partition of origin, in order."""
    found: dict[bytes, list[int]] = {}
    for row in rows:
        _, _, number, where = row.split(b",")
        found.setdefault(where, []).append(int(number))
    return found


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.integers(0, 25)), max_size=6), st.sampled_from([1, 3]))
def test_every_message_comes_in_once_though_the_adapter_dies_anywhere(steps: list[tuple[int, int, int]], shards: int) -> None:
    """Each step writes some messages, then runs an adapter that dies before its action `lives`."""
    site = Site(partitions=3, shards=shards)
    for partition, count, lives in steps:
        site.write(partition, count)
        with Killed.after(lives) as act:
            site.bring(act)
    site.bring()
    parts = [by_partition(site.found(shard)) for shard in range(shards)]
    everything = sorted(number for part in parts for numbers in part.values() for number in numbers)
    assert everything == list(range(site.written))
    assert all(numbers == sorted(numbers) for part in parts for numbers in part.values())


@pytest.mark.parametrize("shards", [1, 2])
def test_it_dies_between_every_two_actions(shards: int) -> None:
    site, lives = Site(partitions=2, shards=shards), 0
    is_over = False
    while not is_over:
        site.write(lives % 2, 4)
        with Killed.after(lives) as act:
            site.bring(act)
            is_over = True
        lives += 1
    assert lives > 10
    assert sorted(int(row.split(b",")[2]) for shard in range(shards) for row in site.found(shard)) == list(range(site.written))


@pytest.mark.parametrize("shards", [1, 2])
def test_an_adapter_that_was_frozen_doubles_nothing_of_what_another_brought_in(shards: int) -> None:
    """It is overtaken before, or after, each of its actions in turn."""
    frozen_at = 0
    while overtaken(Site(partitions=2, shards=shards), frozen_at):
        frozen_at += 1
    assert frozen_at > 20


def overtaken(site: Site, frozen_at: int) -> bool:
    """Whether the adapter has at least `frozen_at` actions."""

    def another() -> None:
        site.write(1, 3)
        site.bring()

    site.write(0, 5)
    has_so_many = struck(site.bring, frozen_at, another)
    site.bring()
    rows = [row for shard in range(site.shards) for row in site.found(shard)]
    assert sorted(int(row.split(b",")[2]) for row in rows) == list(range(site.written))
    return has_so_many


def test_each_append_tells_the_positions_of_all_partitions() -> None:
    site = Site(partitions=3)
    site.write(0, 2)
    site.write(2, 1)
    site.bring()
    newest = site.bus().newest_with_header(IN, SOURCE_HEADER, b"s@")
    assert newest is not None
    position = decode_topic_position(SourcePosition(3, (newest.header(CHECK_HEADER) or b"").decode()), "s")
    assert position == TopicPosition(OTHERS, "", {0: 2, 1: 0, 2: 1}, 3)


def test_nothing_is_brought_in_again_after_retention_on_either_side() -> None:
    site = Site()
    site.write(0, 3)
    site.bring()
    site.bus().trim(IN, 99)
    site.write(0, 1)
    site.bring()
    assert [row.split(b",")[2] for row in _after(site, IN)] == [b"3"]
    site.write(0, 5)
    site.their_bus().trim(Partition(OTHERS), 7)
    with pytest.raises(PositionLost, match="partition 0 of topic sensors no longer holds offset 4"):
        site.bring()


def _after(site: Site, partition: Partition) -> list[bytes]:
    bus = site.bus()
    return [m.value for m in bus.read(partition, bus.begin_offset(partition), messages_max=9, bytes_max=1 << 20)]


def test_where_a_topic_is_begun_is_kept_although_nothing_came_then() -> None:
    site = Site()
    site.write(0, 3)
    assert site.bring(start=StartAt.NEWEST).events == 0
    site.write(0, 2)
    assert site.bring(start=StartAt.NEWEST).events == 2
    assert [int(row.split(b",")[2]) for row in site.found()] == [3, 4]


def put_out(site: Site, rows: Sequence[Row], first_sequence: int) -> None:
    """Appends one message of a project's output stream."""
    sequences = b"%d %d 0 0 0 0 0 0" % (first_sequence, first_sequence + len(rows) - 1)
    headers = ((OUTPUTS_HEADER, sequences), ("hotspare-format", b"arrow"))
    site.their_bus().append(Partition(OTHERS), [Outgoing(arrow_block.encode(block(rows, first_sequence)), headers)])


def test_outputs_of_another_project_are_events_and_an_update_is_one_though_it_stands_in_two_messages() -> None:
    """SPEC K10: whichever adapter publishes its second row, and whatever format the topic is configured with."""
    stream: list[Row] = [(I, N, 1, 1.0), (UB, N, 1, 2.5), (D, N, 1, 1.0), (I, N, 2, None), (D, R, 1, 2.5), (UB, R, 2, 3.0)]
    stream += [(D, R, 2, None), (D, N, 2, 3.0)]
    form = TopicForm(MessageFormat.JSON, RowForm(format=FileFormat.JSON, schema=OUTPUT_SCHEMA))
    for cut in range(1, len(stream)):
        site = Site()
        put_out(site, stream[:cut], 1)
        site.bring(form=form)
        put_out(site, stream[cut:], cut + 1)
        for lives in range(9):
            with Killed.after(lives) as act:
                site.bring(act, form=form)
        site.bring(form=form)
        assert site.found() == [b"I,N,1,1", b"U,N,1,2.5", b"I,N,2,", b"D,N,1,2.5", b"U,N,2,3", b"D,N,2,3"]
        messages = site.bus().read(IN, 0, messages_max=99, bytes_max=1 << 20)
        assert {message.header("hotspare-format") for message in messages} == {b"csv"}


def test_outputs_whose_fields_are_not_known_are_refused_and_not_guessed() -> None:
    site = Site()
    put_out(site, [(I, N, 1, 1.0)], 1)
    with pytest.raises(UsageError, match="topic sensors holds outputs of a project, and their fields are unknown"):
        site.bring()
    with pytest.raises(BusError, match="a message holds outputs of an unexpected schema"):
        site.bring(form=csv())
    assert site.found() == []


def test_one_partition_alone_and_so_many_events() -> None:
    site = Site(partitions=2)
    site.write(0, 3)
    site.write(1, 3)
    assert site.bring(partition=1, events_max=2).events == 2
    assert site.bring(partition=1, events_max=2).events == 2
    assert [int(row.split(b",")[2]) for row in site.found()] == [3, 4]
    with pytest.raises(UsageError, match="topic sensors has no partition 2"):
        site.bring(partition=2, source_name="t")


NUMBERS = st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=4)
OPEN = st.frozensets(st.integers(0, 3))
POSITIONS = st.builds(TopicPosition, st.just("t"), st.sampled_from(["", "a"]), NUMBERS, st.integers(0, 99), OPEN)


@given(POSITIONS.filter(lambda position: position.offsets != {}))
def test_a_position_is_read_back_as_it_was_written(position: TopicPosition) -> None:
    assert decode_topic_position(position.to_source_position(), "s") == position


@given(POSITIONS, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1))
def test_a_position_holds_what_was_read_and_its_number_rises(position: TopicPosition, read: list[tuple[int, int]]) -> None:
    after = position.after_messages(read, 1)
    assert all(after.has_read(partition, offset) for partition, offset in read)
    is_new = any(not position.has_read(partition, offset) for partition, offset in read)
    assert (after.to_source_position().published_bytes > position.to_source_position().published_bytes) is is_new


@given(POSITIONS, POSITIONS, st.integers(0, 3), st.integers(0, 9))
def test_joined_positions_hold_what_either_holds(one: TopicPosition, other: TopicPosition, partition: int, offset: int) -> None:
    assert one.union_with(other).has_read(partition, offset) is (
        one.has_read(partition, offset) or other.has_read(partition, offset)
    )


@pytest.mark.parametrize(
    ("start", "offsets"),
    [(StartAt.OLDEST, {0: 2, 1: 0}), (StartAt.NEWEST, {0: 9, 1: 4}), (5, {0: 5, 1: 4}), (0, {0: 2, 1: 0})],
)
def test_where_a_topic_begins(start: StartAt | int, offsets: Mapping[int, int]) -> None:
    """SPEC I2: kafkainitialoffset."""
    assert starting_position(None, TopicPosition("t"), {0: (2, 9), 1: (0, 4)}, start).offsets == offsets


@pytest.mark.parametrize("oldest", [0, 2])
def test_a_partition_that_was_added_begins_with_its_first_message(oldest: int) -> None:
    """If the topic no longer holds that message, it is lost."""
    known = TopicPosition("t", "a", {0: 7}, 3)
    assert starting_position(known, TopicPosition("t", "a"), {1: (oldest, 4)}, StartAt.NEWEST) == TopicPosition(
        "t", "a", {0: 7, 1: 0}, 3
    )


@pytest.mark.parametrize(("topic", "topic_id"), [("u", "a"), ("t", "b")])
def test_a_source_is_of_one_topic(topic: str, topic_id: str) -> None:
    with pytest.raises(UsageError, match=f"topic {topic} cannot be published as this source"):
        starting_position(TopicPosition("t", "a", {0: 1}), TopicPosition(topic, topic_id), {}, StartAt.OLDEST)


def test_a_source_that_was_a_file_is_no_topic() -> None:
    with pytest.raises(BusError, match="source s was not a topic before"):
        decode_topic_position(SourcePosition(7, "0123456789abcdef"), "s")


@given(st.lists(st.integers(0, 30)), st.integers(1, 40))
def test_chunks_hold_everything_in_order_and_no_more_than_allowed(sizes: list[int], bytes_max: int) -> None:
    found = [sizes[each] for each in slice_by_bytes(sizes, bytes_max)]
    assert [size for each in found for size in each] == sizes
    assert all(len(each) == 1 or sum(each) <= bytes_max for each in found)


def csv(**more: object) -> TopicForm:
    return TopicForm(MessageFormat.CSV, RowForm(schema=SCHEMA, **more))  # type: ignore[arg-type]


def json_(**more: object) -> TopicForm:
    return TopicForm(MessageFormat.JSON, RowForm(format=FileFormat.JSON, schema=SCHEMA, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("form", "value", "rows"),
    [
        (csv(), b"i,n,1,a\r\ni,n,2,b\n", [b"i,n,1,a", b"i,n,2,b"]),
        (csv(opcode=OpcodeColumn.ABSENT), b"n,1,a", [b"i,n,1,a"]),
        (csv(), b"", []),
        (csv(), b" \n", []),
        (json_(), b'[{"id": 1},\n{"id": 2}]', [b'{"id": 1}', b'{"id": 2}']),
        (json_(), b'{"id": 1,\r\n "text": "a"}', [b'{"id": 1,\r  "text": "a"}']),
        (json_(), b'{"id": 1,\n "text": {"a":\n1}}', [b'{"id": 1,\n "text": {"a":\n1}}']),
        (json_(), b'[{"id": 1}, 7, [{"id": 2}]]', [b'{"id": 1}', b"7", b'{"id": 2}']),
        (json_(), b'[{"id": 1}, {"id"', [b'{"id": 1}', b'{"id"']),
        (json_(), b'{"id": 1, "text": "a\nb"}', [b'{"id": 1, "text": "a', b'b"}']),
        (json_(), b"no json", [b"no json"]),
        (json_(insert=InsertOpcode.UPSERT), b'{"id": 1, "text": "a"}', [b'{"opcode":"p","id":"1","text":"a"}']),
        (
            json_(insert=InsertOpcode.UPSERT),
            b'[{"opcode": "Insert", "event": {"id": 1.0, "text": [1, "]"]}}, {"opcode": "d", "id": "2"}, {"id": 3, "id": 3}]',
            [b'{"opcode":"p","id":"1.0","text":"[1, \\"]\\"]"}', b'{"opcode":"d","id":"2"}', b'{"id": 3, "id": 3}'],
        ),
        (TopicForm(MessageFormat.AVRO), b"Obj\x01...", [b"Obj\x01..."]),
    ],
)
def test_what_a_message_holds(form: TopicForm, value: bytes, rows: list[bytes]) -> None:
    """SPEC I2, I4."""
    assert list(form.split_message(value)) == rows


PIECES = [b"{", b"}", b'"', b"\\", b"a", b",", b" ", b"\r", b"\n", b"[", b"]", b"1", b'{"id":1}', b'"text":', b'{"id":2,', b"\xff"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_what_is_cut_says_what_the_message_says(value: bytes) -> None:
    """Events and bad ones, in order: the same whether a message is published row by row or read unchanged."""
    assert said(list(csv().split_message(value)), decode_rows) == said([value], decode_rows)
    assert said(list(json_().split_message(value)), decode_json) == said([value], decode_json)


def said(values: Sequence[bytes], decode: Callable[[pa.Array, Schema], tuple[list[DecodedRows], BadRows]]) -> list[object]:
    parts, bad = decode(pa.array(values, pa.binary()), SCHEMA)
    found: list[tuple[int, int, object]] = [(row.message, row.row, (row.reason, row.sentence)) for row in listed(bad)]
    for rows in parts:
        values_ = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        found += zip(rows.message.tolist(), rows.index.tolist(), values_, strict=True)
    return [what for _, _, what in sorted(found, key=lambda row: row[:2])]


def test_what_cannot_be_asked_of_messages_that_are_taken_as_they_are() -> None:
    with pytest.raises(UsageError, match="messages in avro are published unchanged"):
        TopicForm(MessageFormat.AVRO, RowForm(insert=InsertOpcode.UPSERT))
    with pytest.raises(UsageError, match="messages in arrow cannot be divided over the shards"):
        Site(shards=2).bring(form=TopicForm(MessageFormat.ARROW))


@pytest.fixture
def site() -> Iterator[Site]:
    yield Site()


def test_a_member_that_no_field_has_is_told_once(site: Site) -> None:
    values = [b'{"id": 1, "txet": "a"}'] * 3
    site.their_bus().append(Partition(OTHERS), [Outgoing(value) for value in values])
    reader, said = BusTopicReader(site.their_bus(), OTHERS), list[str]()
    publish_topic(site.bus(), IN, reader, TopicPublishOptions("s", json_(), events_max=3), threading.Event(), warn=said.append)
    assert [sentence.rpartition(": ")[2] for sentence in said] == ["'txet' (did you mean 'text'?)"]


def test_small_messages_become_blocks_and_a_bad_one_stands_alone(site: Site) -> None:
    values = [b'{"id": 1}', b'{"id": 2}', b"broken", b'{"id": 3}']
    site.their_bus().append(Partition(OTHERS), [Outgoing(value) for value in values])
    stop = threading.Event()
    reader = BusTopicReader(site.their_bus(), OTHERS)
    publish_topic(site.bus(), IN, reader, TopicPublishOptions("s", json_(), events_max=4), stop)
    messages = site.bus().read(IN, 0, messages_max=9, bytes_max=1 << 20)
    assert [message.value for message in messages] == [b'{"id": 1}\n{"id": 2}', b"broken", b'{"id": 3}']
    assert {message.header("hotspare-format") for message in messages} == {b"json"}
