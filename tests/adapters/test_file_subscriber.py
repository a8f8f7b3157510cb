"""The file subscriber (SPEC 5.2, I6, I14-I16, E9, F15): every output once, in order, wherever it was killed."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotspare.adapters.changelog_reading import RetentionDeletes, RowChoice, SequenceBreak, UpdateBlocks
from hotspare.adapters.failover.subscriber_position import PartitionPosition, load_position, position_path
from hotspare.adapters.files.output_rows import BadRowFormat, FileStyle, HeaderLine, OutputRows
from hotspare.adapters.files.subscriber import (
    Opening,
    SubscribeOptions,
    SubscribeProgress,
    SubscribeReport,
    Until,
    subscribe_file,
)
from hotspare.base.errors import BusError, FileInUse, PositionLost, TopicMissing, UsageError
from hotspare.bus.contract import Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.flow.plan import BAD_SCHEMA
from hotspare.formats import arrow_block
from hotspare.formats.csv.rows import CsvStyle
from hotspare.rows.batch import OUTPUT_COLUMNS, output_schema
from hotspare.testing.cluster import wait_until
from tests.adapters.outputs import ROWS, SCHEMA, TOPIC, UB, D, I, N, Row, publish
from tests.adapters.outputs import ROWS_TEXT as TEXT
from tests.examples import examples

TO_END = SubscribeOptions(until=Until.END)


def new_bus(blocks: Sequence[Sequence[Row]] = ()) -> MemoryBusClient:
    bus = MemoryBus().client("subscriber")
    bus.create_topic(TOPIC)
    publish(bus, blocks)
    return bus


def subscribe(
    bus: MemoryBusClient, path: Path, options: SubscribeOptions = TO_END, style: FileStyle | None = None, **report: object
) -> SubscribeProgress:
    rows = OutputRows(style or FileStyle(), SCHEMA)
    return subscribe_file(bus, TOPIC, path, rows, options, threading.Event(), SubscribeReport(**report))  # type: ignore[arg-type]


class Killed(Exception):
    pass


class DyingBus:
    """A bus whose reader dies at read number `reads`, so at any place between its writes and its recorded position."""

    def __init__(self, bus: MemoryBusClient, reads: int) -> None:
        self._bus, self._left = bus, reads

    def __getattr__(self, name: str) -> object:
        return getattr(self._bus, name)

    def read(self, partition: Partition, offset: int, **limits: int) -> Sequence[Message]:
        self._left -= 1
        if self._left < 0:
            raise Killed
        return self._bus.read(partition, offset, **{**limits, "messages_max": 1})  # type: ignore[arg-type]


def test_rows_as_spec_5_2_has_them(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    done = subscribe(new_bus(ROWS), path)
    assert path.read_bytes() == TEXT
    assert (done.rows, done.sequence, done.breaks) == (5, 5, 0)


@settings(examples(0.5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), reads=st.lists(st.integers(0, 6), max_size=5), record_after_bytes=st.sampled_from([1, 1 << 20]))
def test_law_crash_any_kills_lose_and_double_no_row(
    tmp_path: Path, data: st.DataObject, reads: list[int], record_after_bytes: int
) -> None:
    """Data after the last recorded position may be complete, partial or missing: the file is the same (SPEC C15)."""
    blocks = data.draw(st.lists(st.sampled_from(ROWS), max_size=6))
    options = SubscribeOptions(
        choice=RowChoice(data.draw(st.sampled_from(list(UpdateBlocks))), data.draw(st.sampled_from(list(RetentionDeletes)))),
        opening=data.draw(st.sampled_from(list(Opening))),
        until=Until.END,
        record_after_bytes=record_after_bytes,
    )
    style = FileStyle(data.draw(st.sampled_from(list(HeaderLine))))
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    whole, killed = folder / "whole.csv", folder / "killed.csv"
    bus = new_bus(blocks)
    subscribe(bus, whole, options, style)
    for count in reads:
        try:
            subscribe(DyingBus(bus, count), killed, options, style)  # type: ignore[arg-type]
        except Killed:
            with killed.open("ab") as file:
                file.write((b"I,N, 7,half a row\n" * 20)[: data.draw(st.integers(0, 300))])
    subscribe(bus, killed, options, style)
    assert killed.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("header", "title"),
    [(HeaderLine.NONE, b""), (HeaderLine.NAMES, b"id,value\n"), (HeaderLine.FULL, b"opcode,flags,id,value\n")],
)
def test_title_lines(tmp_path: Path, header: HeaderLine, title: bytes) -> None:
    path = tmp_path / "out.csv"
    subscribe(new_bus(ROWS), path, style=FileStyle(header))
    assert path.read_bytes() == title + TEXT


def test_exact_doubles(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    subscribe(new_bus([[(I, N, 1, 0.1 + 0.2)]]), path, style=FileStyle(columns=CsvStyle.EXACT))
    assert path.read_bytes() == b"I,N,1,0.30000000000000004\n"


def test_i14_collapsed_output_has_no_pairs_over_messages_and_restarts(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    bus = new_bus([[(I, N, 1, 1.0), (UB, N, 1, 2.0)]])
    options = SubscribeOptions(choice=RowChoice(updates=UpdateBlocks.COLLAPSED), until=Until.END)
    subscribe(bus, path, options)
    publish(bus, [[(D, N, 1, 1.0), (D, N, 1, 2.0)]], first_sequence=3)
    subscribe(bus, path, options)
    assert path.read_bytes() == b"I,N, 1,1.000000\nU,N, 1,2.000000\nD,N, 1,2.000000\n"


def test_i16_a_late_subscriber_begins_with_the_content(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    bus = new_bus(ROWS)
    options = SubscribeOptions(opening=Opening.SNAPSHOT, until=Until.END)
    subscribe(bus, path, options)
    publish(bus, [[(I, N, 3, 3.0)]], first_sequence=6)
    done = subscribe(bus, path, options)
    assert path.read_bytes() == b"I,N, 2,\nI,N, 3,3.000000\n"
    assert done.breaks == 0


def test_i16_a_snapshot_in_the_middle_of_an_update_has_its_old_row(tmp_path: Path) -> None:
    """SPEC I16, A11: an update may be split between messages; until its other row arrives, it belongs to the stream."""
    bus = new_bus([[(I, N, 1, 1.0), (I, N, 2, 2.0)], [(I, N, 3, 3.0), (UB, N, 1, 1.5)]])
    paths = [tmp_path / "pairs.csv", tmp_path / "collapsed.csv"]
    choices = [RowChoice(), RowChoice(updates=UpdateBlocks.COLLAPSED)]
    options = [SubscribeOptions(choice, opening=Opening.SNAPSHOT, until=Until.END) for choice in choices]
    for path, each in zip(paths, options, strict=True):
        subscribe(bus, path, each)
    publish(bus, [[(D, N, 1, 1.0)], [(D, N, 3, 3.0)]], first_sequence=5)
    for path, each in zip(paths, options, strict=True):
        assert subscribe(bus, path, each).breaks == 0
    content = b"I,N, 1,1.000000\nI,N, 2,2.000000\nI,N, 3,3.000000\n"
    assert paths[0].read_bytes() == content + b"UB,N, 1,1.500000\nD,N, 1,1.000000\nD,N, 3,3.000000\n"
    assert paths[1].read_bytes() == content + b"U,N, 1,1.500000\nD,N, 3,3.000000\n"


def test_a_gap_and_a_repetition_are_reported(tmp_path: Path) -> None:
    bus = new_bus([[(I, N, 1, 1.0)]])
    publish(bus, [[(I, N, 2, 1.0)]], first_sequence=4)
    publish(bus, [[(I, N, 2, 1.0)]], first_sequence=4)
    seen: list[SequenceBreak] = []
    done = subscribe(bus, tmp_path / "out.csv", on_sequence_break=seen.append)
    assert seen == [SequenceBreak(1, 4), SequenceBreak(4, 4)]
    assert done.breaks == 2


def test_a_gap_over_a_restart_is_reported(tmp_path: Path) -> None:
    bus = new_bus([[(I, N, 1, 1.0)]])
    subscribe(bus, tmp_path / "out.csv")
    publish(bus, [[(I, N, 2, 1.0)]], first_sequence=3)
    assert subscribe(bus, tmp_path / "out.csv").breaks == 1


def test_a_stream_without_its_beginning_is_reported(tmp_path: Path) -> None:
    bus = new_bus(ROWS)
    bus.trim(Partition(TOPIC), 1)
    seen: list[int] = []
    done = subscribe(bus, tmp_path / "out.csv", on_incomplete=seen.append)
    assert seen == [2]
    assert (done.breaks, done.first_sequence) == (0, 2)


def test_it_waits_for_the_topic_and_for_more(tmp_path: Path) -> None:
    bus, stop, path = MemoryBus().client("s"), threading.Event(), tmp_path / "out.csv"
    options = SubscribeOptions()
    thread = threading.Thread(target=subscribe_file, args=(bus, TOPIC, path, OutputRows(FileStyle(), SCHEMA), options, stop))
    thread.start()
    try:
        bus.create_topic(TOPIC)
        publish(bus, ROWS[:1])
        wait_until(lambda: path.exists() and path.stat().st_size > 0, "the first row")
        publish(bus, ROWS[1:], first_sequence=2)
        wait_until(lambda: path.read_bytes() == TEXT, "the other rows")
    finally:
        stop.set()
        thread.join()
    position = load_position(path)
    assert position is not None
    assert (position.file_bytes, position.places) == (len(TEXT), (PartitionPosition(offset=3, sequence=5),))


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("mine\n")
    with pytest.raises(UsageError, match="no subscriber wrote it"):
        subscribe(new_bus(ROWS), path)
    assert path.read_text() == "mine\n"


def test_a_file_that_lost_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    bus = new_bus(ROWS)
    subscribe(bus, path)
    path.write_bytes(b"I")
    with pytest.raises(UsageError, match="has 1 bytes"):
        subscribe(bus, path)


def test_a_file_is_continued_only_in_its_form(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    bus = new_bus(ROWS)
    subscribe(bus, path)
    with pytest.raises(UsageError, match="another form"):
        subscribe(bus, path, SubscribeOptions(choice=RowChoice(UpdateBlocks.COLLAPSED), until=Until.END))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 99}',
        '{"version": 1, "topic": 3}',
        '{"version": 3, "topic": "t", "places": []}',
        '{"version": 3, "topic": "t", "places": [7]}',
        '{"version": 3, "topic": "t", "places": [{"offset": -1}]}',
    ],
)
def test_a_position_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out.csv"
    position_path(path).write_text(text)
    with pytest.raises(UsageError, match="cannot be read as the position"):
        subscribe(new_bus(ROWS), path)


def test_a_position_is_readable_by_people(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    subscribe(new_bus(ROWS), path)
    document = json.loads(position_path(path).read_text())
    assert (document["version"], document["topic"], document["places"][0]["offset"]) == (1, TOPIC, 3)


def test_two_subscribers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path, stop, bus = tmp_path / "out.csv", threading.Event(), new_bus(ROWS)
    rows = OutputRows(FileStyle(), SCHEMA)
    thread = threading.Thread(target=subscribe_file, args=(bus, TOPIC, path, rows, SubscribeOptions(), stop))
    thread.start()
    try:
        wait_until(lambda: path.exists() and path.read_bytes() == TEXT, "the rows")
        with pytest.raises(FileInUse):
            subscribe(bus, path)
    finally:
        stop.set()
        thread.join()


def test_a_position_that_the_topic_lost_is_an_error(tmp_path: Path) -> None:
    path, bus = tmp_path / "out.csv", new_bus(ROWS[:1])
    subscribe(bus, path)
    publish(bus, ROWS[1:], first_sequence=2)
    bus.trim(Partition(TOPIC), 2)
    with pytest.raises(PositionLost):
        subscribe(bus, path)


def test_a_topic_that_was_made_anew_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    subscribe(new_bus(ROWS), path)
    with pytest.raises(PositionLost, match="ends at offset 0"):
        subscribe(new_bus(), path)


def test_to_the_end_of_a_missing_topic_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TopicMissing):
        subscribe(MemoryBus().client("s"), tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [b"I,N, 1,2", b""])
def test_a_message_that_is_no_block_is_an_error(tmp_path: Path, value: bytes) -> None:
    bus = new_bus()
    bus.append(Partition(TOPIC), [Outgoing(value)])
    with pytest.raises(BusError):
        subscribe(bus, tmp_path / "out.csv")


def test_a_block_of_another_window_is_an_error(tmp_path: Path) -> None:
    bus = new_bus()
    bus.append(Partition(TOPIC), [Outgoing(arrow_block.encode(pa.record_batch({"x": [1]})))])
    with pytest.raises(BusError, match=f"topic {TOPIC}: a message holds outputs of an unexpected schema"):
        subscribe(bus, tmp_path / "out.csv")


def test_f15_bad_events_become_a_file(tmp_path: Path) -> None:
    bus, path = new_bus(), tmp_path / "bad.csv"
    given = {"hs:sequence": [1], "hs:topic": [0], "hs:partition": [2], "hs:offset": [17], "hs:index": [3]}
    columns = [pa.array(given.get(name, [1]), type_) for name, type_ in OUTPUT_COLUMNS]
    columns += [pa.array([text]) for text in ("field-type", 'field "id"', "i,n,x,1", "cq/window")]
    rows = pa.RecordBatch.from_arrays(columns, schema=output_schema(BAD_SCHEMA))
    bus.append(Partition(TOPIC), [Outgoing(arrow_block.encode(rows))])
    subscribe_file(bus, TOPIC, path, BadRowFormat(), TO_END, threading.Event())
    assert path.read_text() == ('reason,window,position,message,text\nfield-type,cq/window,0:2:17:3,"field ""id""","i,n,x,1"\n')
