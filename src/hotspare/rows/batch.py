"""The Arrow schemas at the engine's input and output: raw messages, decoded events, outputs.

    raw (one row per message) --head--> decoded (one row per event, tick or bad event) --merge, step--> outputs per stream

All three are plain Arrow record batches so that every runner moves them alike. Columns that hotspare adds are named `hs:...`, which
no project field can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum

import pyarrow as pa

from hotspare.model.types import FieldType, Schema


class MessageFormat(IntEnum):
    """The format of a message's value; the values are stored in raw batches."""

    CSV = 0
    """Rows `opcode,flag,field...` separated by line feeds (SPEC 5.2), doubles in shortest exact form."""
    ARROW = 1
    """An Arrow IPC stream, as `hotspare.formats.arrow_block` writes it."""
    JSON = 2
    """An object per event: alone, one per line, or an array of them (`hotspare.formats.json.decode`)."""
    AVRO = 3
    """An Avro object container file (`hotspare.formats.avro_block`)."""
    LOST = 4
    """The notice of offsets that an external topic lost before they were read: a text, which becomes a bad event."""

    @property
    def header(self) -> bytes:
        """The name of the format in lower case: the value of the message header that names it, and its name in options."""
        return self.name.lower().encode()


EVENT_FORMATS = tuple(each for each in MessageFormat if each is not MessageFormat.LOST)
"""The formats in which messages hold events."""
TEXT_FORMATS = frozenset({MessageFormat.CSV, MessageFormat.JSON})
"""The formats in which each output may be a message of its own."""
FORMAT_OF_HEADER: dict[bytes, MessageFormat] = {each.header: each for each in MessageFormat}
"""The formats by value of `bus.contract.FORMAT_HEADER`."""


FORM_MASK, OUTPUTS_FORM, SECOND_FORM = 15, 16, 32
"""Bits of the raw column `format`. FORM_MASK selects the MessageFormat. OUTPUTS_FORM: the message holds outputs of another project,
which the head folds to events. SECOND_FORM: the first of these outputs is the second row of an update (SPEC K10)."""
END_FORM = 64
"""A bit of the raw column `format` of a tick: the input ends with this tick. No message header sets this bit, so input that
continues never has it."""


class RowKind(IntEnum):
    """The kind of a decoded row; the values are stored in decoded batches."""

    EVENT = 0
    TICK = 1
    BAD = 2
    DROPPED = 3
    """The last event of a message, dropped by the head: the row has only its position and time."""
    END = 4
    """The last tick of input that ends (files, tables): at this tick, everything happens that waits for time to pass."""


class NextInput(Enum):
    """Whether the batch after this one has been read already."""

    AT_HAND = "at hand"
    """The next batch was read together with this one, and follows at once."""
    AWAITED = "awaited"


RAW_SCHEMA = pa.schema(
    [
        ("topic", pa.int32()),  # index in the project's inbound topics: Resolved.sources
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time_us", pa.int64()),  # append time given by the bus
        ("tick", pa.bool_()),
        ("format", pa.int8()),  # MessageFormat, with OUTPUTS_FORM and SECOND_FORM
        ("value", pa.binary()),
    ]
)
"""One row per message, in order of offset per partition."""

ARROW_TYPE: dict[FieldType, pa.DataType] = {
    FieldType.INT32: pa.int32(),
    FieldType.INT64: pa.int64(),
    FieldType.DOUBLE: pa.float64(),
    FieldType.STRING: pa.string(),
    FieldType.DATE: pa.timestamp("s"),
    FieldType.STAMP: pa.timestamp("us"),
    FieldType.MONEY: pa.decimal128(18, 4),
    FieldType.BLOB: pa.binary(),
    FieldType.INT32_ARRAY: pa.list_(pa.int32()),
    FieldType.INT64_ARRAY: pa.list_(pa.int64()),
    FieldType.DOUBLE_ARRAY: pa.list_(pa.float64()),
}

BAD_TYPE = pa.struct([("reason", pa.string()), ("message", pa.string()), ("text", pa.string()), ("window", pa.string())])
"""A bad event: a stable reason code, a sentence with the place, the row as it arrived, and the window that refused it."""

HEAD_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("topic", pa.int32()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("index", pa.int32()),  # index of the event in its message
    ("time_us", pa.int64()),
    ("kind", pa.int8()),  # RowKind
    ("opcode", pa.uint8()),
    ("flags", pa.uint8()),
)
HEAD_ROW_BYTES: int = sum(type_.bit_width // 8 for _, type_ in HEAD_COLUMNS)
"""The bytes of a row in these columns."""


def arrow_fields(schema: Schema) -> list[pa.Field]:
    return [pa.field(f.name, ARROW_TYPE[f.type]) for f in schema.fields]


def decoded_schema(entry_schemas: Sequence[Schema]) -> pa.Schema:
    """Returns the schema of a decoded batch: position, kind, opcode, flags, a struct `e<i>` per inbound topic (null in rows of
    other topics, ticks and bad rows) and `bad` (null except in bad rows). `entry_schemas[i]` is the schema at which topic i enters
    the core."""
    fields = [pa.field(name, type_) for name, type_ in HEAD_COLUMNS]
    fields += [pa.field(f"e{i}", pa.struct(arrow_fields(s))) for i, s in enumerate(entry_schemas)]
    return pa.schema([*fields, pa.field("bad", BAD_TYPE)])


OUTPUT_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("hs:sequence", pa.int64()),  # 1, 2, 3 ... per stream
    ("hs:topic", pa.int32()),  # the position that caused the output ...
    ("hs:partition", pa.int32()),
    ("hs:offset", pa.int64()),
    ("hs:index", pa.int32()),
    ("hs:ordinal", pa.int32()),  # ... and the ordinal among its outputs in this stream, from 0
    ("hs:digest", pa.uint64()),  # of the stream up to and including this output
    ("hs:opcode", pa.uint8()),
    ("hs:flags", pa.uint8()),
)


def output_schema(schema: Schema) -> pa.Schema:
    """Returns the schema of one stream's outputs: OUTPUT_COLUMNS, then the window's fields."""
    return pa.schema([pa.field(name, type_) for name, type_ in OUTPUT_COLUMNS] + arrow_fields(schema))


BEAT = 0
"""The opcode of a beat, an output without an event: at this place of the stream, time has reached the time of the beat's cause
(SPEC K10)."""
CAUSE_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("hs:time", pa.int64()),  # running system time of what caused the output
    ("hs:second", pa.bool_()),  # whether it is the second row of an update
)
"""The columns after the fields of a stream that has beats."""
_CAUSE_NAMES = [name for name, _ in CAUSE_COLUMNS]


def has_causes(outputs: pa.RecordBatch) -> bool:
    """Whether the stream of these outputs has beats."""
    return _CAUSE_NAMES[-1] in outputs.schema.names


def without_causes(outputs: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the outputs without CAUSE_COLUMNS: the columns of `output_schema` alone."""
    return outputs.drop_columns(_CAUSE_NAMES) if has_causes(outputs) else outputs


def without_beats(outputs: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the outputs that are events."""
    opcodes = outputs.column(OUTPUT_COLUMNS.index(("hs:opcode", pa.uint8()))).to_numpy(zero_copy_only=False)
    return outputs if opcodes.all() else outputs.filter(pa.array(opcodes != BEAT))


BAD_STREAM = "bad"
"""The name of the stream of bad events; other streams are called `query/window`, so the names cannot collide."""

TRACE_PREFIX = "trace:"
"""The prefix of `query/window` in the name of a traced window's output. Its rows are numbered from 1 in each batch, and are never
published (SPEC A40)."""
