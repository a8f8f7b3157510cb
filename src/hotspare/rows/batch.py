"""The Arrow shapes at the engine's doors: raw messages, decoded events, outputs.

    raw (one row per message) --head--> decoded (one row per event, tick or bad event) --merge, step--> outputs per stream

All three are plain Arrow record batches so that every runner moves them alike. Column names of ours carry `hs:`, which no
project field can contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum

import pyarrow as pa

from hotspare.model.types import FieldType, Schema


class MessageFormat(IntEnum):
    """How a message's value is written; the values stand in raw batches."""

    CSV = 0
    """Rows `opcode,flag,field...` separated by line feeds (SPEC 5.2), doubles in shortest exact form."""
    ARROW = 1
    """An Arrow IPC stream, as `hotspare.formats.arrow_block` writes it."""
    JSON = 2
    """One object per event: alone, one per line, or an array of them (`hotspare.formats.json.decode`)."""
    AVRO = 3
    """An Avro object container file (`hotspare.formats.avro_block`)."""
    LOST = 4
    """The notice of offsets that an external topic lost before they were brought in: a text, which becomes a bad event."""

    @property
    def header(self) -> bytes:
        """The value of the header that names this format, and the word for it in options."""
        return self.name.lower().encode()


EVENT_FORMATS = tuple(each for each in MessageFormat if each is not MessageFormat.LOST)
"""The formats in which messages hold events."""
TEXT_FORMATS = frozenset({MessageFormat.CSV, MessageFormat.JSON})
"""The formats in which each output may be a message of its own."""
FORMAT_OF_HEADER: dict[bytes, MessageFormat] = {each.header: each for each in MessageFormat}
"""What the value of `bus.contract.FORMAT_HEADER` says."""


FORM_MASK, OUTPUTS_FORM, SECOND_FORM = 15, 16, 32
"""Of the raw column `format`: what is the format; that the message holds outputs of another project, which are folded to events;
and that the first of these is the second row of an update (SPEC K10)."""
END_FORM = 64
"""Of the raw column `format` of a tick: the input ends here. No header says it, so input that goes on never does."""


class RowKind(IntEnum):
    """What a decoded row is; the values stand in decoded batches."""

    EVENT = 0
    TICK = 1
    BAD = 2
    DROPPED = 3
    """The last event of a message, which the head dropped: position and time, nothing else."""
    END = 4
    """A tick behind which nothing comes, in input that ends (files, tables): all that waits for time to pass happens."""


class NextInput(Enum):
    """What is known of the batch after this one."""

    AT_HAND = "at hand"
    """It was read together with this one, and follows at once."""
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
"""A bad event: a stable reason code, a sentence with the place, the row as it came, and the window that refused it."""

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


def arrow_fields(schema: Schema) -> list[pa.Field]:
    return [pa.field(f.name, ARROW_TYPE[f.type]) for f in schema.fields]


def decoded_schema(entry_schemas: Sequence[Schema]) -> pa.Schema:
    """Schema of a decoded batch: position, kind, opcode, flags, one struct `e<i>` per inbound topic (null in rows of other
    topics, ticks and bad rows) and `bad` (null but in bad rows). `entry_schemas[i]` is the schema at which topic i enters the core.
    """
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
    """Schema of one stream's outputs: the columns above, then the window's fields."""
    return pa.schema([pa.field(name, type_) for name, type_ in OUTPUT_COLUMNS] + arrow_fields(schema))


BEAT = 0
"""The opcode of an output that is no event: at this place of the stream time has come to that of its cause (SPEC K10)."""
CAUSE_COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("hs:time", pa.int64()),  # running system time of what caused the output
    ("hs:second", pa.bool_()),  # whether it is the second row of an update
)
"""Behind the fields of a stream that has beats."""
_CAUSE_NAMES = [name for name, _ in CAUSE_COLUMNS]


def has_causes(outputs: pa.RecordBatch) -> bool:
    """Whether the stream of these outputs has beats."""
    return _CAUSE_NAMES[-1] in outputs.schema.names


def without_causes(outputs: pa.RecordBatch) -> pa.RecordBatch:
    """`output_schema` alone."""
    return outputs.drop_columns(_CAUSE_NAMES) if has_causes(outputs) else outputs


def without_beats(outputs: pa.RecordBatch) -> pa.RecordBatch:
    """The outputs that are events."""
    opcodes = outputs.column(OUTPUT_COLUMNS.index(("hs:opcode", pa.uint8()))).to_numpy(zero_copy_only=False)
    return outputs if opcodes.all() else outputs.filter(pa.array(opcodes != BEAT))


BAD_STREAM = "bad"
"""Name of the stream of bad events; other streams are called `query/window`, so it cannot collide."""

TRACE_PREFIX = "trace:"
"""Before `query/window`: what a traced window put out in one batch, numbered from 1 in each. Nobody publishes it (SPEC A40)."""
