"""Blocks of events as messages: exact, validated, and bad blocks are bad rows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.base.errors import BusError
from hotspare.formats import arrow_block
from hotspare.formats.arrow_block import schema_prefix
from hotspare.formats.csv.decode import DecodedRows
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from tests.formats.bad_rows import listed

SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("s", FieldType.STRING)))


def block(**columns: pa.Array) -> bytes:
    return arrow_block.encode(pa.RecordBatch.from_pydict(columns))


def twice(name: str) -> bytes:
    """Returns a block with two columns of that name."""
    columns = {"id": pa.array([1]), "s": pa.array(["a"]), "opcode": pa.array([1])}
    return arrow_block.encode(pa.RecordBatch.from_arrays([*columns.values(), columns[name]], names=[*columns, name]))


def test_round_trip() -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array([1.5, None, float("nan")]), "s": pa.array(["a", "", None])})
    found = arrow_block.decode(arrow_block.encode(batch))
    assert found.schema == batch.schema
    assert repr(found.to_pylist()) == repr(batch.to_pylist())


def test_several_batches_are_one() -> None:
    batch = pa.RecordBatch.from_pydict({"x": pa.array([1, 2])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    assert arrow_block.decode(sink.getvalue().to_pybytes()).column("x").to_pylist() == [1, 2, 1, 2]


@given(st.one_of(st.binary(max_size=64), st.integers(0, 400).map(lambda cut: block(x=pa.array([1, 2, 3]))[:cut])))
def test_anything_else_is_an_error_of_its_own(value: bytes) -> None:
    try:
        arrow_block.decode(value)
    except BusError as error:
        assert error.message == "a message is not an Arrow block"


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_block_never_breaks_the_reader(place: int, byte: int) -> None:
    value = bytearray(block(id=pa.array([1, 2, 3]), s=pa.array(["a", "bb", None])))
    value[place % len(value)] = byte
    rows, bad = arrow_block.decode_events([bytes(value)], [0], SCHEMA)
    assert (rows is None) == (len(bad) == 1 and bad.reason[0].as_py() == "format")


def test_events_of_a_block() -> None:
    value = block(
        opcode=pa.array([1, 4, 9, 2]), flags=pa.array([1, 1, 1, 0]), s=pa.array(["a", "b", "c", "d"]), id=pa.array([1, 2, 3, 4])
    )
    rows, bad = arrow_block.decode_events([value], [5], SCHEMA)
    assert rows is not None
    assert (rows.message.tolist(), rows.index.tolist(), rows.opcode.tolist(), rows.flags.tolist()) == (
        [5, 5],
        [0, 1],
        [1, 4],
        [1, 1],
    )
    assert [c.to_pylist() for c in rows.columns] == [[1, 2], ["a", "b"]]
    assert [(b.message, b.row, b.reason) for b in listed(bad)] == [(5, 2, "opcode"), (5, 3, "flag")]


CODES = st.integers(-1, 300)
BLOCKS = st.one_of(
    st.lists(st.tuples(CODES, CODES, st.sampled_from(["a", "", None])), max_size=4).map(
        lambda rows: block(
            opcode=pa.array([row[0] for row in rows], pa.int16()),
            flags=pa.array([row[1] for row in rows], pa.int32()),
            id=pa.array(range(len(rows)), pa.int64()),
            s=pa.array([row[2] for row in rows], pa.string()),
        )
    ),
    st.sampled_from([b"text", block(id=pa.array([1])), block(id=pa.array([7], pa.int8()), s=pa.array(["b"]).dictionary_encode())]),
)


@given(st.lists(BLOCKS, max_size=5))
def test_what_becomes_of_a_block_does_not_depend_on_those_beside_it(blocks: list[bytes]) -> None:
    numbers = [3 * number for number in range(len(blocks))]
    together = arrow_block.decode_events(blocks, numbers, SCHEMA)
    alone = [arrow_block.decode_events([value], [number], SCHEMA) for value, number in zip(blocks, numbers, strict=True)]
    assert events(together[0]) == [each for rows, _ in alone for each in events(rows)]
    assert sorted(listed(together[1])) == sorted(each for _, bad in alone for each in listed(bad))


def events(rows: DecodedRows | None) -> list[tuple[object, ...]]:
    if rows is None:
        return []
    numbers = (rows.message.tolist(), rows.index.tolist(), rows.opcode.tolist(), rows.flags.tolist())
    return list(zip(*numbers, *(column.to_pylist() for column in rows.columns), strict=True))


def test_opcode_and_flags_may_be_missing() -> None:
    rows, bad = arrow_block.decode_events([block(id=pa.array([1], pa.int32()), s=pa.array(["a"]))], [0], SCHEMA)
    assert rows is not None
    assert (rows.opcode.tolist(), rows.flags.tolist(), rows.columns[0].type, len(bad)) == ([1], [1], pa.int64(), 0)


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (block(id=pa.array([1])), "lacks the column s"),
        (block(id=pa.array([1.5]), s=pa.array(["a"])), "column id of a block has type double"),
        (block(id=pa.array([1]), s=pa.array(["a"]), opcode=pa.array(["i"])), "column opcode of a block has type string"),
        (twice("id"), "has 2 columns id"),
        (twice("opcode"), "has 2 columns opcode"),
        (block(id=pa.array([1]), s=pa.array([["a"]])), "column s of a block has type list<item: string>"),
        (block(id=pa.array([1]), s=pa.array(["a"])) + b"\0", "more follows after a block"),
        (block(id=pa.array([1]), s=pa.array(["a"])) * 2, "more follows after a block"),
        (b"text", "not an Arrow block"),
    ],
)
def test_a_block_that_does_not_fit_is_one_bad_row(value: bytes, part: str) -> None:
    rows, refused = arrow_block.decode_events([value], [3], SCHEMA)
    (bad,) = listed(refused)
    assert rows is None
    assert (bad.message, bad.row, bad.reason) == (3, 0, "format")
    assert part in bad.sentence


def test_a_field_may_be_called_opcode() -> None:
    """The event's opcode is then in hs:opcode, as in the other formats."""
    schema = Schema((*SCHEMA.fields, Field("opcode", FieldType.STRING)))
    columns = {"id": pa.array([1, 2]), "s": pa.array(["a", "b"]), "opcode": pa.array(["x", "i"])}
    for more, opcodes in (({}, [1, 1]), ({"hs:opcode": pa.array([4, 2])}, [4, 2])):
        rows, bad = arrow_block.decode_events([block(**columns, **more)], [0], schema)
        assert rows is not None
        assert (rows.opcode.tolist(), rows.columns[2].to_pylist(), len(bad)) == (opcodes, ["x", "i"], 0)


def test_columns_of_no_field_are_not_looked_at() -> None:
    batch = pa.RecordBatch.from_pydict({"id": pa.array([1, 2]), "other": pa.array(["aa", "bb"]), "s": pa.array(["a", "b"])})
    value = arrow_block.encode(batch).replace(b"aabb", b"\xff\xff\xff\xff")
    rows, bad = arrow_block.decode_events([value], [0], SCHEMA)
    assert rows is not None
    assert ([column.to_pylist() for column in rows.columns], len(bad)) == ([[1, 2], ["a", "b"]], 0)


ROWS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["a", "", "é", None]), CODES), max_size=4)


@given(st.lists(st.tuples(st.booleans(), ROWS), min_size=1, max_size=4))
def test_blocks_of_plain_columns_are_read_as_others_are(made: list[tuple[bool, list[tuple[int, str | None, int]]]]) -> None:
    """A block with a column of lists is read on the general path."""
    short, long = list[bytes](), list[bytes]()
    for has_opcode, rows in made:
        columns = {"id": pa.array([row[0] for row in rows], pa.int64()), "s": pa.array([row[1] for row in rows], pa.string())}
        columns |= {"opcode": pa.array([row[2] for row in rows], pa.int64())} if has_opcode else {}
        short.append(block(**columns))
        long.append(block(**columns, beside=pa.array([[1] for _ in rows], pa.list_(pa.int64()))))
    numbers = list(range(len(made)))
    (rows, bad), (others, others_bad) = (arrow_block.decode_events(values, numbers, SCHEMA) for values in (short, long))
    assert events(rows) == events(others)
    assert [(b.message, b.row, b.reason, b.sentence) for b in listed(bad)] == [
        (b.message, b.row, b.reason, b.sentence) for b in listed(others_bad)
    ]


@given(st.integers(0, 10_000), st.integers(0, 255), st.binary(max_size=9))
@example(10_000, 0, b"\xff\xff\xff\xff\0\0\0\0")
def test_what_is_damaged_behind_a_known_beginning_is_found(place: int, byte: int, more: bytes) -> None:
    sound = block(id=pa.array([1, 2, 3]), s=pa.array(["a", "bb", None]))
    begin = schema_prefix(sound)
    assert begin is not None
    value = bytearray(sound + more)
    value[len(begin) + place % (len(value) - len(begin))] = byte
    rows, bad = arrow_block.decode_events([sound, bytes(value)], [0, 1], SCHEMA)
    try:
        expected = arrow_block.decode(bytes(value))
    except BusError:
        assert ([row[0] for row in events(rows)], [b.message for b in listed(bad)]) == ([0, 0, 0], [1])
    else:
        assert [row[4:] for row in events(rows)][3:] == list(zip(*(column.to_pylist() for column in expected.columns), strict=True))


@pytest.mark.parametrize("columns", [
    {"x": pa.array([1.5, None]), "s": pa.array(["a", None])},
    {"x": pa.array([True, False]), "b": pa.array([b"", b"ab"])},
    {"s": pa.array(["a", "b"]).dictionary_encode()},
    {"l": pa.array([[1], None], pa.list_(pa.int64()))},
])  # fmt: skip
def test_a_block_is_the_stream_that_arrow_writes(columns: dict[str, pa.Array]) -> None:
    for rows in (pa.RecordBatch.from_pydict(columns), pa.RecordBatch.from_pydict(columns).slice(1)):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        assert arrow_block.encode(rows) == sink.getvalue().to_pybytes()
