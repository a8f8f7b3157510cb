"""Cuts outputs into messages by their encoded size, in every format (SPEC B13)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.bus.contract import RowMessages
from hotspare.formats import arrow_block
from hotspare.ha.outputs.blocks import MessageSizes, messages_of
from hotspare.ha.outputs.message import output_message
from hotspare.ha.rules.settings import OutputStream
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import MessageFormat, output_schema
from tests.ha.outputs import digest

KEY = Field("k", FieldType.INT64, KeyRole.KEY)
SCHEMA = output_schema(Schema((KEY, Field("text", FieldType.STRING))))
TOPIC = "out-a"


def batch(first: int, lengths: list[int]) -> pa.RecordBatch:
    n = range(first, first + len(lengths))
    columns: list[list[object]] = [list(n), [0 for _ in n], [0 for _ in n], list(n), [0 for _ in n], [0 for _ in n]]
    columns += [[digest(i) for i in n], [1 for _ in n], [1 for _ in n], list(n), ["x" * length for length in lengths]]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


@given(
    parts=st.lists(st.lists(st.sampled_from([0, 1, 40, 3_000]), min_size=1, max_size=12), min_size=1, max_size=4),
    bytes_max=st.one_of(st.none(), st.integers(1, 20_000)),
    rows_max=st.integers(1, 20),
    format_=st.sampled_from([MessageFormat.ARROW, MessageFormat.CSV, MessageFormat.JSON]),
)
def test_every_output_is_in_one_message_and_only_a_single_row_may_be_too_large(
    parts: list[list[int]], bytes_max: int | None, rows_max: int, format_: MessageFormat
) -> None:
    sizes = MessageSizes(rows_max, {} if bytes_max is None else {TOPIC: bytes_max})
    output, first = OutputStream("a", TOPIC, format=format_), 1
    for _ in range(2):  # the sizes learned in the first commit fit the next
        batches = []
        for lengths in parts:
            batches.append(batch(first, lengths))
            first += len(lengths)
        rows = sum(len(lengths) for lengths in parts)
        blocks = sizes.split_messages(batches, output, 3, arrow_block)
        assert [b.first + i for b in blocks for i in range(b.rows)] == [*range(first - rows, first)]
        for block in blocks:
            assert block.rows <= rows_max
            assert block.rows == 1 or bytes_max is None or block.messages[0].size_bytes <= bytes_max
        if format_ is MessageFormat.ARROW:
            read = [row for block in blocks for row in arrow_block.decode(block.messages[0].value).to_pylist()]
            assert read == [row for each in batches for row in each.to_pylist()]


def test_messages_become_larger_again_when_rows_become_smaller() -> None:
    sizes, output = MessageSizes(64, {TOPIC: 50_000}), OutputStream("a", TOPIC)
    large = sizes.split_messages([batch(1, [3_000] * 64)], output, 1, arrow_block)
    small = sizes.split_messages([batch(65, [1] * 600)], output, 1, arrow_block)
    assert max(block.rows for block in large) <= 16
    assert small[-2].rows == 64


@example(rows=1, skipped=0, rows_max=2)
@example(rows=9, skipped=3, rows_max=4)
@given(rows=st.integers(1, 40), skipped=st.integers(0, 39), rows_max=st.integers(1, 40))
def test_a_row_that_is_left_alone_carries_nothing_of_its_neighbours(rows: int, skipped: int, rows_max: int) -> None:
    """A held batch is a slice of a larger one, and Arrow writes more of that than the slice's rows."""
    whole, output = batch(1, [1] * 40), OutputStream("a", TOPIC)
    alone = MessageSizes(1).split_messages([batch(1, [1])], output, 1, arrow_block)[0].bytes
    blocks = MessageSizes(rows_max).split_messages([whole.slice(min(skipped, 40 - rows), rows)], output, 1, arrow_block)
    assert all(abs(block.bytes - alone) < 24 for block in blocks if block.rows == 1)


def test_what_the_bus_refused_is_cut_in_two_the_next_time() -> None:
    sizes, output = MessageSizes(64), OutputStream("a", TOPIC)
    blocks, rows = [], []
    for _ in range(4):
        blocks = sizes.split_messages([batch(1, [2_000] * 8)], output, 1, arrow_block)
        assert sizes.find_refused(blocks).rows == max(b.rows for b in blocks)
        rows.append(max(b.rows for b in blocks))
    assert rows == [8, 4, 2, 1]
    sizes.clear_refused()
    sizes.bytes_max = {TOPIC: 9_000}
    blocks = sizes.split_messages([batch(1, [10, 10, 20_000, 10, 30_000])], output, 1, arrow_block)
    assert sizes.find_refused(blocks).first == 3


@given(
    lengths=st.lists(st.sampled_from([0, 1, 40, 3_000]), min_size=1, max_size=12),
    first=st.integers(1, 1_000),
    format_=st.sampled_from([MessageFormat.CSV, MessageFormat.JSON]),
    causes=st.lists(st.integers(1, 3), max_size=12),
)
def test_an_output_with_a_message_of_its_own_says_what_one_alone_would(
    lengths: list[int], first: int, format_: MessageFormat, causes: list[int]
) -> None:
    """Value and headers are those of a block of this one row; only the key is additional."""
    rows = batch(first, lengths)
    if len(causes) >= len(lengths):
        rows = rows.append_column("hs:time", pa.array(causes[: len(lengths)], pa.int64()))
        rows = rows.append_column("hs:second", pa.array([cause == 3 for cause in causes[: len(lengths)]]))
        rows = rows.set_column(7, "hs:opcode", pa.array([cause - 1 for cause in causes[: len(lengths)]], pa.uint8()))
    (whole,) = MessageSizes(8).split_messages([rows], OutputStream("a", TOPIC, format=format_, message_key=(KEY,)), 3, arrow_block)
    blocks, messages = list(whole.single_messages()), list(whole.messages)
    assert [whole.messages[place] for place in range(len(rows))] == messages == [block.messages[0] for block in blocks]
    alone = [output_message(rows.slice(place, 1), format_, 3, arrow_block) for place in range(len(rows))]
    assert [(block.first, block.rows) for block in blocks] == [(first + place, 1) for place in range(len(rows))]
    assert [message.headers for message in messages] == [each.headers for each in alone]
    assert [message.value for message in messages] == [each.value.removesuffix(b"\n") for each in alone]
    is_beat = [each.is_tick for each in alone]
    assert [message.key for message in messages] == [None if b else b"%d" % (first + i) for i, b in enumerate(is_beat)]


@given(parts=st.lists(st.lists(st.sampled_from([1, 40]), min_size=1, max_size=4), min_size=1, max_size=4))
def test_messages_of_their_own_stay_without_objects_in_a_transaction_of_several_batches(parts: list[list[int]]) -> None:
    """Creating one object per message, for a hundred thousand, takes longer than the rest of a commit."""
    firsts = [1 + sum(map(len, parts[:number])) for number in range(len(parts))]
    batches = [batch(first, lengths) for first, lengths in zip(firsts, parts, strict=True)]
    blocks = MessageSizes(8).split_messages(
        batches, OutputStream("a", TOPIC, format=MessageFormat.JSON, message_key=(KEY,)), 3, arrow_block
    )
    together = messages_of(blocks)
    assert isinstance(together, RowMessages)
    assert list(together) == [message for block in blocks for message in block.messages]


def test_the_row_that_the_bus_refused_is_found_among_messages_of_their_own() -> None:
    sizes, output = MessageSizes(64, {TOPIC: 9_000}), OutputStream("a", TOPIC, format=MessageFormat.JSON, message_key=(KEY,))
    refused = sizes.find_refused(sizes.split_messages([batch(1, [10, 10, 20_000, 10, 30_000])], output, 1, arrow_block))
    assert (refused.first, refused.rows) == (3, 1)
