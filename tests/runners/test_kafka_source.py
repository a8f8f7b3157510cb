"""Spark's Kafka source: its options (positions, guarantees, options of the bus under their Java names), and its rows, which become
the same raw batches as without Spark."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.base.errors import UsageError
from hotspare.bus.contract import FORMAT_HEADER, TICK_HEADER, Message
from hotspare.rows.batch import RAW_SCHEMA, MessageFormat
from hotspare.runners import reading
from hotspare.runners.contract import SourceTopic
from hotspare.runners.reading import MessageRun
from hotspare.runners.spark.kafka.source import NOT_A_MESSAGE, batches_in_order, java_options, raw_batch, source_options

TOPICS = (SourceTopic("a", 2), SourceTopic("b"))


def test_every_partition_is_read_from_its_position_and_nothing_is_skipped() -> None:
    options = source_options("h:1", {}, TOPICS, {(0, 0): 5, (0, 1): 0, (1, 0): 7}, 100, 50)
    assert json.loads(options["assign"]) == {"a": [0, 1], "b": [0]}
    assert json.loads(options["startingOffsets"]) == {"a": {"0": 5, "1": 0}, "b": {"0": 7}}
    assert options["failOnDataLoss"] == "true"
    assert options["includeHeaders"] == "true"
    assert options["maxOffsetsPerTrigger"] == "100"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["kafka.bootstrap.servers"] == "h:1"


def test_options_of_the_url_get_their_java_names() -> None:
    said = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": 'p"w\\'}
    java = java_options({**said, "ssl.ca.location": "/ca.pem", "socket.timeout.ms": "100", "queue.buffering.max.ms": "1"})
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": ('org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\\"w\\\\";'),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }


@pytest.mark.parametrize("options", [{"no.such": "secret"}, {"sasl.username": "secret", "sasl.mechanism": "GSSAPI"}])
def test_what_java_has_no_counterpart_for_is_refused_without_its_value(options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        java_options(options)
    assert "secret" not in str(caught.value)


FORMATS = (MessageFormat.CSV, MessageFormat.JSON)
ROWS = pa.schema(
    [
        ("topic", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time_us", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("value", pa.binary()),
    ]
)
NAMES = st.sampled_from([TICK_HEADER, FORMAT_HEADER, "hotspare-source", "other"])
VALUES = st.sampled_from([b"", b"csv", b"arrow", b"json", b"avro", b"nonsense", b"hotspare-tick"])
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=3).map(tuple)
MESSAGES = st.lists(st.builds(Message, st.just(0), st.integers(0, 2**50), st.binary(max_size=5), HEADERS), max_size=12)


def rows_of(part: MessageRun) -> pa.RecordBatch:
    """Returns rows in Spark's form: missing headers are null, and so is an empty value."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "topic": part.topic,
                "partition": part.partition,
                "offset": m.offset,
                "time_us": m.append_time_us,
                "headers": [{"key": key, "value": value} for key, value in m.headers] or None,
                "value": m.value or None,
            }
            for m in part.messages
        ],
        ROWS,
    )


def numbered(messages: list[Message]) -> list[Message]:
    return [Message(2 * i, m.append_time_us, m.value, m.headers) for i, m in enumerate(messages)]


@given(MESSAGES, st.integers(0, 1))
def test_columns_say_what_the_messages_said(messages: list[Message], topic: int) -> None:
    part = MessageRun(topic, 3, numbered(messages))
    assert raw_batch(rows_of(part), FORMATS) == reading.raw_batch(part, FORMATS[topic])


@given(MESSAGES, st.integers(0, 12))
def test_a_part_of_a_batch_reads_the_same(messages: list[Message], first: int) -> None:
    """A slice shares the buffers of the whole, whose headers begin elsewhere."""
    part = MessageRun(0, 0, numbered(messages))
    expected = reading.raw_batch(part, FORMATS[0]).slice(first)
    assert raw_batch(rows_of(part).slice(first), FORMATS).to_pylist() == expected.to_pylist()


def test_rows_that_are_no_messages_vanish() -> None:
    rows = [{"topic": 0, "partition": 0, "offset": offset, "time_us": 1, "value": b"x"} for offset in (NOT_A_MESSAGE, 4)]
    assert raw_batch(pa.RecordBatch.from_pylist(rows, ROWS), FORMATS).column("offset").to_pylist() == [4]
    assert raw_batch(pa.RecordBatch.from_pylist(rows[:1], ROWS), FORMATS).num_rows == 0


@given(st.sets(st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 50))), st.integers(1, 9), st.randoms())
def test_batches_come_into_order(keys: set[tuple[int, int, int]], size: int, order: random.Random) -> None:
    ordered = [MessageRun(t, p, [Message(o, 1, b"")]) for t, p, o in sorted(keys)]
    table = pa.Table.from_batches([raw_batch(rows_of(part), FORMATS) for part in ordered], RAW_SCHEMA).combine_chunks()
    batches = table.to_batches(max_chunksize=size)
    order.shuffle(batches)
    sorted_batches = batches_in_order(batches)
    assert [key for b in sorted_batches for key in _keys(b)] == sorted(keys)
    assert all(len({key[:2] for key in _keys(b)}) == 1 for b in sorted_batches)


def _keys(batch: pa.RecordBatch) -> list[tuple[int, int, int]]:
    return list(zip(*(batch.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True))
