"""The form of an external topic's messages, and their conversion for the inbound topic (SPEC I2, I4).

CSV and JSON are cut into rows, so that many small messages become few blocks. Avro and Arrow are passed on: their reader matches
fields by name. Unreadable messages are passed on too: the engine makes bad events of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hotspare.adapters.files.canonical import FileFormat, FlagColumn, InsertOpcode, RowForm
from hotspare.adapters.files.cutters import rows_of_text
from hotspare.adapters.topics.schemas import FramedAvro, Schemas
from hotspare.base.errors import UsageError
from hotspare.formats.avro_datum import datum_container
from hotspare.formats.csv.grammar import quoted
from hotspare.formats.json.plain import cut_events
from hotspare.rows.batch import MessageFormat

_CUT = {MessageFormat.CSV: FileFormat.CSV, MessageFormat.JSON: FileFormat.JSON}


@dataclass(frozen=True)
class TopicForm:
    """The form of a topic's messages. `format` is the messages' format; `rows`, of the same format, is the form of rows in CSV and
    JSON.

    With `avro_schema` each message is one Avro datum of that schema, without a frame; with `schemas` it is a datum after the number
    of its schema. Without both, a message in Avro is a container file. With `value_field` each message is the value of that field
    alone, as in CSV, and the event is an insert whose other fields are null. Raises UsageError for options that cannot be
    combined."""

    format: MessageFormat = MessageFormat.CSV
    rows: RowForm = field(default_factory=RowForm)
    avro_schema: str = ""
    schemas: Schemas | None = None
    value_field: str = ""

    def __post_init__(self) -> None:
        if self.avro_schema and self.format is not MessageFormat.AVRO:
            what = f"an avro schema has no effect with messages in {self.format.name.lower()}"
            raise UsageError(what, hint="set the topic's format to avro, or leave the schema out")
        if self.schemas is not None and (self.format is not MessageFormat.AVRO or self.avro_schema):
            raise UsageError(
                "a source of schemas applies to messages in avro that name theirs", hint="use avro, and leave the other schema out"
            )
        if self.avro_schema:
            datum_container(self.avro_schema)
        if self.value_field:
            self._check_value()
        cut = _CUT.get(self.format)
        if cut is not None and self.rows.format is not cut:
            raise ValueError(f"rows in {self.rows.format.value} of messages in {self.format.name}")
        if cut is None and self.rows.is_rewritten:
            raise UsageError(
                f"messages in {self.format.name.lower()} are published unchanged",
                hint="leave dateformat, stampformat and publishwithupsert out",
            )

    def _check_value(self) -> None:
        """Raises UsageError unless messages can be the value of the field."""
        rows, schema = self.rows, self.rows.schema
        alone = RowForm(insert=rows.insert, schema=schema, date_format=rows.date_format, stamp_unit=rows.stamp_unit)
        if self.format is not MessageFormat.CSV or rows != alone:
            raise UsageError("options of columns and formats have no effect with messages of one value", hint="leave them out")
        if schema is None or self.value_field not in schema.index:
            hint = "name one of its fields" if schema is None else "use one of: " + ", ".join(schema.names)
            raise UsageError(f"the window has no field {self.value_field} for the value of messages", hint=hint)

    @property
    def is_cut(self) -> bool:
        """Whether a message is cut into rows, which may share a message with rows of other messages."""
        return self.format in _CUT

    @cached_property
    def _container(self) -> Callable[[bytes], bytes] | None:
        if self.schemas is not None:
            return FramedAvro(self.schemas).to_container
        return datum_container(self.avro_schema) if self.avro_schema else None

    @cached_property
    def _around_value(self) -> tuple[bytes, bytes]:
        """The parts of a row before and after the value."""
        schema = self.rows.schema
        assert schema is not None
        place = schema.index[self.value_field]
        return f"{InsertOpcode.INSERT.value},{FlagColumn.NORMAL.value},".encode() + b"," * place, b"," * (len(schema) - 1 - place)

    def split_message(self, value: bytes) -> Sequence[bytes]:
        """Returns the rows of a message, in its format; none for an empty one. Raises BusUnavailable if its schema is unavailable
        now."""
        if self._container is not None:
            return [self._container(value)] if value else []
        if self.value_field:
            begin, end = self._around_value
            return self.rows.canonicalize_rows([begin + quoted(value) + end]) if value else []
        if not value.strip() or not self.is_cut:
            return [value] if value.strip() else []
        one = _one_row(value, self.format)
        if one is None:
            is_json = self.format is MessageFormat.JSON
            texts = cut_events(value) if is_json else rows_of_text(value, self.rows.delimiter_bytes)
        return self.rows.canonicalize_rows(texts if one is None else [one])


def _one_row(value: bytes, format_: MessageFormat) -> bytes | None:
    """Returns the row of a message that has one, by a check that takes a third of the cutter's time. Returns None if the check
    does not show it: the cutter decides then."""
    if format_ is MessageFormat.CSV:
        row = value.removesuffix(b"\n")
        return None if b"\n" in row else row.rstrip(b"\r")
    text = value.strip()
    is_flat = text.startswith(b"{") and text.endswith(b"}") and text.count(b"{") == 1 and text.count(b"}") == 1
    return text if is_flat and b"\n" not in text else None
