"""Arrow blocks and Avro files for the laws about messages: of many forms, and damaged in their structure.

Damage of Arrow is in whole words of metadata and bodies, where lengths, counts, offsets, masks and indices are. Avro files are
assembled from parts, each of which may be wrong.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SYNC = b"hotspare's marks"
HUGE = 1 << 62


def avro_long(value: int) -> bytes:
    """Encodes a whole number as Avro does: zigzag, seven bits a byte."""
    folded, out = (value << 1) ^ (value >> 63), b""
    while folded & ~0x7F:
        out += bytes([folded & 0x7F | 0x80])
        folded >>= 7
    return out + bytes([folded])


def avro_bytes(value: bytes) -> bytes:
    return avro_long(len(value)) + value


def avro_header(schema: object, codec: bytes = b"null") -> bytes:
    """Returns the beginning of a container file; a `schema` of bytes is used unchanged."""
    text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
    meta = avro_bytes(b"avro.schema") + avro_bytes(text) + avro_bytes(b"avro.codec") + avro_bytes(codec)
    return b"Obj\x01" + avro_long(2) + meta + avro_long(0) + SYNC


def avro_block(count: int, body: bytes, size: int | None = None, sync: bytes = SYNC) -> bytes:
    """Returns a block that claims `count` records, and `size` bytes if that is given."""
    return avro_long(count) + avro_long(len(body) if size is None else size) + body + sync


def _decimal_of(type_: str, scale: object, **more: object) -> dict[str, object]:
    return {"type": type_, "logicalType": "decimal", "precision": 18, "scale": scale, **more}


_TEXTS = [
    avro_bytes(b"a"),
    avro_bytes(b""),
    avro_bytes("ü".encode() * 99),
    avro_bytes(b"\xff"),
    avro_long(-1),
    avro_long(HUGE),
    b"\x80",
]
_WHOLE = [avro_long(each) for each in (0, 1, -1, 1 << 31, (1 << 63) - 1, -(1 << 63))] + [b"\xff" * 11 + b"\x01", b"\x80"]
_DOUBLES = [struct.pack("<d", each) for each in (0.5, float("nan"), 1e308)] + [b"\0\0"]
_DECIMALS = [avro_bytes(each) for each in (b"", b"\x01", b"\xff" * 8, b"\x7f" * 30, b"\x7f" * 5000)] + [avro_long(HUGE)]
_ENUM = {"type": "enum", "name": "e", "symbols": ["i", "n", "x"]}
_AVRO_VALUES: list[tuple[object, list[bytes]]] = [
    ("long", _WHOLE),
    ("int", _WHOLE),
    ("double", _DOUBLES),
    ("float", [b"\0\0\0\0", b"\0"]),
    ("boolean", [b"\0", b"\1", b"\7"]),
    ("string", _TEXTS),
    ("bytes", _TEXTS),
    ("null", [b""]),
    (_ENUM, [avro_long(0), avro_long(9), avro_long(-1), avro_long(HUGE)]),
    ({"type": "fixed", "name": "f", "size": 2}, [b"ab", b"a"]),
    ({"type": "fixed", "name": "f", "size": -2}, [b"ab"]),
    ({"type": "fixed", "name": "f", "size": HUGE}, [b"ab"]),
    (_decimal_of("bytes", 4), _DECIMALS),
    (_decimal_of("bytes", 10**9), _DECIMALS),
    (_decimal_of("bytes", -(10**9)), _DECIMALS),
    (_decimal_of("bytes", "4"), _DECIMALS),
    (_decimal_of("fixed", 4, name="f", size=8), [b"\x7f" * 8, b"\x00" * 8]),
    ({"type": "long", "logicalType": "timestamp-micros"}, _WHOLE),
    ({"type": "int", "logicalType": "date"}, _WHOLE),
    ({"type": "string", "logicalType": "uuid"}, _TEXTS),
    ({"type": "array", "items": "int"}, [avro_long(1) + avro_long(7) + avro_long(0), avro_long(-HUGE)]),
    ({"type": "map", "values": "int"}, [avro_long(0)]),
    ({"type": "record", "name": "inner", "fields": []}, [b""]),
    ("unknown", [b""]),
    ({"type": {"type": "int"}}, _WHOLE),
    (7, [b""]),
]


@st.composite
def _avro_field(draw: st.DrawFn) -> tuple[object, list[bytes]]:
    """Draws a type, and encoded values of it, some of which are wrong."""
    kind = st.one_of(st.sampled_from(_AVRO_VALUES[:7]), st.sampled_from(_AVRO_VALUES))
    type_, values = draw(kind)
    if draw(st.booleans()):
        return type_, values
    other, others = draw(kind)
    branches = [(0, [b""]), (1, values), (2, others), (draw(st.sampled_from([3, -1, HUGE])), [b""])]
    return ["null", type_, other], [avro_long(place) + each for place, given in branches for each in given]


@st.composite
def avro_files(draw: st.DrawFn) -> bytes:
    """Draws container files with schemas, counts and values of any kind, and now and then valid ones."""
    names = draw(st.lists(st.sampled_from(["opcode", "flags", "price", "name", "x", "\ud800"]), max_size=4))
    columns = [(name, *draw(_avro_field())) for name in ["id", *names]]
    schema: object = {"type": "record", "name": "r", "fields": [{"name": name, "type": type_} for name, type_, _ in columns]}
    others = [
        "int",
        [],
        None,
        {"type": "record", "name": "r"},
        b'{"type":' * 5000,
        b"\xff",
        {"type": "enum", "name": "e", "symbols": []},
    ]
    out = avro_header(draw(_mostly(schema, others)), draw(_mostly(b"null", [b"deflate", b"zstandard", b"\xff", b""])))
    for _ in range(draw(st.integers(0, 3))):
        count = draw(st.integers(0, 3))
        body = b"".join(draw(st.sampled_from(values)) for _ in range(count) for _, _, values in columns)
        said = draw(_mostly(count, [0, 1, count + 1, -1, -count, HUGE]))
        size = draw(_mostly(len(body), [0, len(body) + 1, len(body) - 1, -1, HUGE]))
        out += avro_block(said, body, size, draw(_mostly(SYNC, [b"", SYNC[:7], SYNC[::-1]])))
    return out + draw(_mostly(b"", [b"\0", b"\x80", b"\0\0", out]))


def _mostly(usual: object, others: list[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 11).flatmap(lambda drawn: st.just(usual) if drawn else st.sampled_from(others))


def _texts(rows: int) -> list[str | None]:
    return [("a", None, "ü" * 50, "", "b" * 13)[row % 5] for row in range(rows)]


def _arrow_columns(rows: int, seed: int) -> list[pa.Array]:
    """Returns a column of each of many types, of `rows` rows."""
    texts, whole = pa.array(_texts(rows), pa.string()), pa.array([seed, *range(1, rows)][:rows], pa.int64())
    words = pa.array([f"w{seed}", "b", None], pa.string())
    places = pa.array([row % 3 for row in range(rows)], pa.int8())
    lists = pa.array([[1, 2], None, []] * rows, pa.list_(pa.int32()))[:rows]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([rows or 1], pa.int32()), pa.array(["a"]))
    union = pa.UnionArray.from_dense(pa.array([0] * rows, pa.int8()), pa.array(range(rows), pa.int32()), [whole])
    return [
        *(whole, whole.cast(pa.uint8(), safe=False), whole.cast(pa.float64()), whole.cast(pa.float16()), pa.nulls(rows)),
        *(texts, texts.cast(pa.large_string()), texts.cast(pa.string_view()), texts.cast(pa.binary())),
        *(
            texts.dictionary_encode(),
            pa.DictionaryArray.from_arrays(places, words),
            pa.DictionaryArray.from_arrays(places, whole.slice(0, 3)) if rows > 2 else whole,
        ),
        *(whole.cast(pa.decimal128(19, 0)), whole.cast(pa.timestamp("us")), whole.cast(pa.bool_())),
        *(
            lists,
            pa.array([[1, 2], None, []] * rows, pa.list_view(pa.int32()))[:rows],
            pa.StructArray.from_arrays([whole, texts], ["a", "b"]),
            union,
        ),
        *(runs.slice(0, rows), pa.array([b"ab"] * rows, pa.binary(2)), pa.array([b""] * rows, pa.binary(0))),
        *(
            pa.ExtensionArray.from_storage(pa.json_(), texts),
            pa.ExtensionArray.from_storage(pa.bool8(), whole.cast(pa.int8(), safe=False)),
        ),
    ]


_FITTING = {"id": 0, "price": 2, "name": 5, "opcode": 1, "flags": 1}
"""The column of `_arrow_columns` that has the type of the field."""


@st.composite
def arrow_blocks(draw: st.DrawFn) -> bytes:
    """Draws valid streams: columns of any type, in no, one or several batches, compressed or not, with dictionaries that change or
    grow."""
    count = len(_arrow_columns(3, 1))
    names = draw(_mostly([*_FITTING], [["id"], [], ["id", "id", "price", "name"], ["id", "price", "name"]]))
    kinds = [draw(_mostly(_FITTING[name], list(range(count)))) for name in names]
    for number in range(draw(st.sampled_from([0, 0, 1, 3, 60]))):
        names, kinds = [*names, f"x{number}"], [*kinds, draw(st.integers(0, count - 1))]
    many = [
        _arrow_columns(draw(st.sampled_from([0, 1, 3, 4, 9])), 1 + seed) for seed in range(draw(st.sampled_from([0, 1, 1, 2, 3])))
    ]
    batches = [pa.RecordBatch.from_arrays([columns[kind] for kind in kinds], names=names) for columns in many]
    schema = pa.RecordBatch.from_arrays([_arrow_columns(3, 1)[kind] for kind in kinds], names=names).schema
    packed, sink = draw(_mostly(None, ["zstd", "lz4"])), pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=packed, emit_dictionary_deltas=draw(st.booleans()))
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for batch in batches:
            if batch.schema.equals(schema):
                writer.write_batch(batch)
    value = bytes(sink.getvalue().to_pybytes())
    return value + draw(_mostly(b"", [b"\0" * 8, b"x", value]))


_WORDS = st.sampled_from([0, 1, -1, 2, 3, 4, 7, 8, 100, 1 << 20, (1 << 31) - 1, -(1 << 31)])


@st.composite
def damaged_arrow(draw: st.DrawFn) -> bytes:
    """Draws a stream with some words replaced or exchanged with the next, or a part cut off."""
    value = bytearray(draw(arrow_blocks()))
    places = list(_parts(bytes(value)))
    for _ in range(draw(st.integers(1, 4))):
        begin, end = draw(st.sampled_from(places))
        at = begin + 4 * draw(st.integers(0, (end - begin) // 4))
        kind = draw(st.sampled_from(["word", "word", "long", "swap", "bits", "cut"]))
        if kind == "word":
            value[at : at + 4] = struct.pack("<i", draw(_WORDS))
        elif kind == "long":
            value[at : at + 8] = struct.pack("<q", draw(_WORDS) << draw(st.sampled_from([0, 0, 31])))
        elif kind == "swap":
            value[at : at + 8] = value[at + 4 : at + 8] + value[at : at + 4]
        elif kind == "bits":
            value[at : at + 1] = bytes([draw(st.integers(0, 255))])
        else:
            del value[at : at + draw(st.sampled_from([4, 8, 64, len(value)]))]
    return bytes(value)


def _parts(value: bytes) -> Iterator[tuple[int, int]]:
    """Yields begin and end of the metadata and of the body of each message of a stream."""
    at = 0
    while at + 8 <= len(value):
        size = struct.unpack_from("<i", value, at + 4)[0]
        if size <= 0:
            break
        metadata = at + 8, at + 8 + size
        message = pa.ipc.read_message(pa.BufferReader(value[at:]))
        at = metadata[1] + (message.body.size if message.body is not None else 0)
        yield metadata
        if at > metadata[1]:
            yield metadata[1], at


def is_empty_avro(value: bytes) -> bool:
    """Whether only blocks without records and bytes follow the header."""
    mark = SYNC if SYNC in value else value[-16:]
    _, _, rest = value.partition(mark)
    return value.startswith(b"Obj\x01") and not rest.replace(b"\0\0" + mark, b"")


def is_empty_arrow(value: bytes) -> bool:
    """Whether it is one stream of batches without rows."""
    source = pa.BufferReader(value)
    with pa.ipc.open_stream(source) as reader:
        return sum(batch.num_rows for batch in reader) == 0 and source.tell() == len(value)
