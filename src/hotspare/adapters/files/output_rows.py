"""Outputs as the text of a file: CSV by SPEC 5.2, JSON, XML, and the file of bad events (SPEC F15, I6)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.adapters.files.block_rows import rows_to_block
from hotspare.adapters.files.canonical import FileFormat
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import FORMAT_HEADER, OUTPUTS_HEADER, Message, OutputsHeader
from hotspare.formats import arrow_block
from hotspare.formats.csv.rows import CsvStyle, RowPrefix, rows_to_csv
from hotspare.formats.json.plain import meta_names
from hotspare.formats.json.rows import rows_to_json
from hotspare.formats.outputs import decode_each, decode_outputs, schema_of
from hotspare.formats.xml.rows import rows_to_xml
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows.batch import BEAT, FORMAT_OF_HEADER, OUTPUT_COLUMNS, TEXT_FORMATS, MessageFormat, output_schema

BAD_COLUMNS: tuple[str, ...] = ("reason", "window", "position", "message", "text")
"""The columns of a file of bad events, in order."""
_BAD_FIELDS = Schema(tuple(Field(name, FieldType.STRING) for name in ("reason", "message", "text", "window")))
"""The fields of the engine's stream of bad events (`flow.plan.BAD_SCHEMA`, whose import would load compiled kernels)."""
_CALENDAR_S = (-62_135_596_800, 253_402_300_800)
"""The years 1 to 9999 in seconds since 1970, the end not included. Outside them strftime may be wrong."""
_PER_SECOND = {"s": 1, "us": 1_000_000}
_POSITION = ("hs:topic", "hs:partition", "hs:offset", "hs:index")


class HeaderLine(Enum):
    """The title line of a file (SPEC I6)."""

    NONE = "false"
    NAMES = "true"
    """The names of the fields."""
    FULL = "full"
    """The names of all columns: those of the `prefix` (opcode, flags), then the fields."""


ISO_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Dates and stamps as ISO 8601, in UTC."""


@dataclass(frozen=True, slots=True)
class FileStyle:
    """The form of an output file. `columns`: the notation of doubles in CSV; `date_format` (strftime): the format of dates and
    stamps, "" for numbers; `prefix`: the columns (in JSON: members) before the fields. In JSON and XML each event has its own line
    and names its fields, and binary blocks have their types.

    Raises UsageError if `date_format` is invalid.
    """

    header: HeaderLine = HeaderLine.NONE
    columns: CsvStyle = CsvStyle.FILE
    date_format: str = ""
    format: FileFormat = FileFormat.CSV
    prefix: RowPrefix = RowPrefix.EVENT

    @classmethod
    def for_plain_files(cls, prefix: RowPrefix, date_format: str = "", format_: FileFormat = FileFormat.CSV) -> FileStyle:
        """Returns the style of `plain` files: the title line names all columns, times are ISO 8601 without a `date_format`, and
        numbers are exact, so that the file reads back equal. Raises UsageError for formats other than CSV and JSON."""
        if format_ not in (FileFormat.CSV, FileFormat.JSON):
            raise UsageError(f"plain has no effect with format {format_.value}: it applies to csv and json", hint="leave plain out")
        return cls(HeaderLine.FULL, CsvStyle.EXACT, date_format or ISO_FORMAT, format_, prefix)

    def __post_init__(self) -> None:
        if self.format is FileFormat.BINARY and self.date_format:
            raise UsageError("dateformat has no effect with binary blocks: times have a type there", hint="leave it out")
        try:
            pc.strftime(pa.scalar(0, pa.timestamp("us")), self.date_format)
        except pa.ArrowInvalid as error:
            hint = "use the directives of strftime except those for zones: all times are in UTC"
            raise UsageError(f"dateformat {self.date_format!r} cannot be used", detail=str(error), hint=hint) from None

    @property
    def name(self) -> str:
        prefix = "" if self.prefix is RowPrefix.EVENT else self.prefix.name.lower()
        parts = (self.format.value, self.header.value, self.columns.value, self.date_format, prefix)
        return " ".join(part for part in parts if part)


class OutputRows:
    """A `RowFormat` (adapters.files.subscriber) for the outputs of a window. With `schema` None, blocks of any fields are
    accepted."""

    def __init__(self, style: FileStyle, schema: Schema | None = None) -> None:
        self._fields = schema
        self._schema = None if schema is None else output_schema(schema)
        self._style = style

    @property
    def name(self) -> str:
        return self._style.name

    def title(self, rows: pa.RecordBatch) -> bytes:
        if self._style.header is HeaderLine.NONE or self._style.format is not FileFormat.CSV:
            return b""
        schema = schema_of(rows)
        before = meta_names(schema)[: len(self._style.prefix.value)] if self._style.header is HeaderLine.FULL else ()
        return _line([*before, *schema.names])

    def empty_batch(self) -> pa.RecordBatch:
        """Returns a batch without rows, for the title line of a file that has no row."""
        return pa.RecordBatch.from_pylist([], schema=pa.schema(OUTPUT_COLUMNS) if self._schema is None else self._schema)

    def decode(self, messages: Sequence[Message]) -> pa.RecordBatch:
        """Returns the rows of messages (`RowFormat`). Raises BusError if these are not outputs of this window."""
        if messages[0].is_tick:
            return self._beat(messages[0])
        if _format_of(messages[0]) is MessageFormat.ARROW:
            return _decoded(messages[0].value, self._schema)
        if self._fields is None:
            raise BusError(
                f"a message holds outputs in {_format_of(messages[0]).name.lower()}, and the window's schema is unknown",
                hint="name the project's file with --project, or start an engine of this release, which publishes the schema",
            )
        return _decoded_texts(messages, self._fields)

    def _beat(self, message: Message) -> pa.RecordBatch:
        """Returns the row of a beat, for a project that reads the stream (SPEC K10): an output with a number and no event."""
        numbers = [int(number) for number in (message.header(OUTPUTS_HEADER) or b"").split() if number.isdigit()]
        schema = pa.schema(OUTPUT_COLUMNS) if self._schema is None else self._schema
        rows = [{"hs:sequence": numbers[0], "hs:opcode": BEAT, "hs:flags": 0}] if numbers else []
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    def format_rows(self, rows: pa.RecordBatch) -> bytes:
        dated = _dated(rows, self._style.date_format)
        if self._style.format is FileFormat.JSON:
            return rows_to_json(dated, schema_of(dated), self._style.prefix)
        if self._style.format is FileFormat.BINARY:
            return rows_to_block(dated)
        if self._style.format is FileFormat.XML:
            return rows_to_xml(dated)
        return rows_to_csv(dated, self._style.columns, self._style.prefix)


def _on_bus(topic: int, partition: int, offset: int, index: int) -> str:
    return f"{topic}:{partition}:{offset}:{index}"


class BadRowFormat:
    """A `RowFormat` (adapters.files.subscriber) for the stream of bad events, always with a title line. `position` formats the
    place of an event, by default as `topic index:partition:offset:index in the message`."""

    name = "bad"

    def __init__(self, position: Callable[[int, int, int, int], str] = _on_bus) -> None:
        self._position = position
        self._rows = OutputRows(FileStyle(), _BAD_FIELDS)

    def title(self, rows: pa.RecordBatch) -> bytes:
        return _line(BAD_COLUMNS)

    def decode(self, messages: Sequence[Message]) -> pa.RecordBatch:
        return self._rows.decode(messages)

    def format_rows(self, rows: pa.RecordBatch) -> bytes:
        positions = zip(*(rows.column(name).to_pylist() for name in _POSITION), strict=True)
        texts = {name: rows.column(name).to_pylist() for name in BAD_COLUMNS if name != "position"}
        texts["position"] = [self._position(*position) for position in positions]
        return b"".join(_line(row) for row in zip(*(texts[name] for name in BAD_COLUMNS), strict=True))


def _format_of(message: Message) -> MessageFormat:
    """Returns the format in the message's header; Arrow without one."""
    return FORMAT_OF_HEADER.get(message.header(FORMAT_HEADER) or b"", MessageFormat.ARROW)


def _decoded_texts(messages: Sequence[Message], fields: Schema) -> pa.RecordBatch:
    """Returns the rows of one message in a format other than Arrow, or of several messages with one output each."""
    format_, told = _format_of(messages[0]), [OutputsHeader.from_message(message) for message in messages]
    known = [each for each in told if each is not None]
    if len(known) < len(messages):
        raise BusError(
            f"message {messages[told.index(None)].offset} has no header with the numbers of its outputs",
            hint="check whether another program writes to this topic",
        )
    if format_ in TEXT_FORMATS and all(each.first == each.last for each in known):
        values, offsets = [message.value for message in messages], [message.offset for message in messages]
        return decode_each(values, format_, fields, [each.id_columns for each in known], offsets)
    return decode_outputs(messages[0].value, format_, fields, known[0].first)


def _decoded(value: bytes, schema: pa.Schema | None) -> pa.RecordBatch:
    """Returns the rows of a message. Raises BusError if it is not a block of outputs, or has another schema."""
    batch = arrow_block.decode(value)
    names = [name for name, _ in OUTPUT_COLUMNS]
    if batch.schema.names[: len(names)] != names or (schema is not None and not batch.schema.equals(schema)):
        wanted = schema if schema is not None else pa.schema(OUTPUT_COLUMNS)
        raise BusError(
            "a message holds outputs of an unexpected schema",
            detail=f"found {_brief(batch.schema)}; expected {_brief(wanted)}",
            hint="name the project that runs under this prefix",
        )
    return batch


def _brief(schema: pa.Schema) -> str:
    return ",".join(f"{field.name}:{field.type}" for field in schema if not field.name.startswith("hs:"))


def _dated(rows: pa.RecordBatch, date_format: str) -> pa.RecordBatch:
    """Returns the rows with dates and stamps as text if a format is given; times outside the years 1 to 9999 as numbers."""
    if not date_format:
        return rows
    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            times = rows.column(index)
            numbers = times.cast(pa.int64())
            first, end = (second * _PER_SECOND[field.type.unit] for second in _CALENDAR_S)
            has_year = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
            texts = pc.if_else(has_year, pc.strftime(times, date_format), numbers.cast(pa.string()))
            rows = rows.set_column(index, pa.field(field.name, pa.string()), texts)
    return rows


def _line(values: Iterable[str | None]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(["" if value is None else value for value in values])
    return out.getvalue().encode()
