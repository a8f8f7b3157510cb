"""An output stream of a project as a table of Spark, static or streaming: the format "hotspare" of read and readStream.

    bus ──► committed messages, by partition ──► tasks: a range of offsets each ──► rows with opcode, shard, sequence and output id

A topic contains only committed messages, and each sequence of a precise stream once. So a range of offsets always has the same
rows, and Spark's checkpoint of offsets gives exactly-once. A range ends at the last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from hotspare.adapters.changelog_reading import decode_group, group_for_decoding
from hotspare.adapters.files.output_rows import BadRowFormat, FileStyle, OutputRows
from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_path
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.limits import partitions_of, position_beyond_end, position_lost
from hotspare.bus.naming import bad_topic, checked_name, checked_prefix, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.flow.plan import BAD_SCHEMA
from hotspare.model.names import nearest_names_hint
from hotspare.model.types import Schema
from hotspare.rows.batch import without_beats
from hotspare.rows.letters import flag_letters, opcode_letters
from hotspare.spark.columns import Meta, table_type, to_spark
from hotspare.spark.on_bus import WindowName, checked_bus, window_on_bus

NAME = "hotspare"
OFFSETS_IN_TASK_MAX = 50_000
"""The maximum number of offsets that one task reads. Several tasks read a larger topic."""
_READ_MESSAGES_MAX = 2_000
_READ_BYTES_MAX = 8 << 20
_ID_COLUMNS = ("hs:topic", "hs:partition", "hs:offset", "hs:index", "hs:ordinal")


@dataclass(frozen=True)
class StreamOptions:
    """The options of a reader. `bus`: the URL. `window` (PROJECT/CQ/WINDOW) or `bad` (a project, for its bad events) names the
    stream. `project`: a file with the schema, if the bus lacks it. `messages_max`: the limit of a micro-batch, 0 for none.
    """

    bus: str
    prefix: str = "hotspare"
    window: str = ""
    bad: str = ""
    project: str = ""
    messages_max: int = 0

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> StreamOptions:
        """Returns the checked options. Their names are compared without case, as Spark does. Raises UsageError for an unknown
        option, or unless the bus and exactly one stream are named.
        """
        names, known = {name.lower().replace("_", ""): name for name in cls.__dataclass_fields__}, {}
        for option, text in options.items():
            name = names.get(option.lower().replace("_", ""))
            if name is None:
                raise UsageError(
                    f"format {NAME} has no option {option}", hint=nearest_names_hint(option, list(cls.__dataclass_fields__))
                )
            known[name] = text
        number = known.pop("messages_max", "0")
        if not number.isdecimal():
            raise UsageError(f"option messages_max is {number!r}, not a number")
        if "bus" not in known:
            raise UsageError(f"format {NAME} needs the option bus", hint="for example .option('bus', 'kafka://host:9092')")
        found = cls(**known, messages_max=int(number))
        if bool(found.window) == bool(found.bad):
            raise UsageError(
                "one of the options window and bad is needed", hint="set window to PROJECT/CQ/WINDOW, or bad to a project"
            )
        return replace(found, bus=checked_bus(found.bus))

    @property
    def topic(self) -> str:
        prefix = checked_prefix(self.prefix)
        if self.bad:
            return bad_topic(prefix, checked_name(self.bad))
        return outbound_topic(prefix, *WindowName.parse(self.window))

    def schema(self) -> Schema:
        """Returns the schema of the stream's fields."""
        if self.bad:
            return BAD_SCHEMA
        bus = open_bus(self.bus)
        try:
            file = absolute_path(self.project) if self.project else None
            found = window_on_bus(bus, self.prefix, WindowName.parse(self.window), file)
        finally:
            bus.close()
        if not found.outbound:
            raise UsageError(f"window {self.window} is not published", hint="write `publish: true` in the project")
        return found.schema


class OutputTable(DataSource):  # type: ignore[misc, unused-ignore]
    """The format "hotspare". Columns: `opcode` and `flags` as in CSV, the window's fields, `shard` (the partition), `sequence`, and
    `output_id`.

    `output_id` is the position of the input that caused the output, and the output's number for that input. It is null for messages
    of several outputs in a format other than Arrow.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        schema = StreamOptions.from_options(self.options).schema()
        meta = Meta.for_schema(schema)
        before = ((meta.opcode, "string"), (meta.flags, "string"))
        return table_type(schema, before, ((meta.shard, "int"), (meta.sequence, "bigint"), (meta.output_id, "string")))

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(StreamOptions.from_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return GrowingReader(StreamOptions.from_options(self.options), schema)


@dataclass(frozen=True)
class Range(InputPartition):  # type: ignore[misc, unused-ignore]
    """The offsets that one task reads: from `begin` up to, but without, `end`, in partition `number` of the topic."""

    number: int
    begin: int
    end: int


def ranges(begins: Mapping[int, int], ends: Mapping[int, int]) -> list[Range]:
    """Returns the ranges that tasks read. `begins` and `ends`: offsets by partition number; a partition without a begin is read
    from offset 0.
    """
    return [
        Range(number, at, min(at + OFFSETS_IN_TASK_MAX, end))
        for number, end in sorted(ends.items())
        for at in range(begins.get(number, 0), end, OFFSETS_IN_TASK_MAX)
    ]


class _Reading:
    """The common base of both readers. On the driver it queries the bus; in a task, which has no project file, it reads a range."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options, self._fields = options, options.schema()
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of the range `partition`, decoded, in batches. Raises PositionLost if retention has deleted messages of
        the range.
        """
        if not isinstance(partition, Range):
            return  # Spark's partition if there are no ranges
        options, fields = self._options, self._fields
        form = BadRowFormat() if options.bad else OutputRows(FileStyle(), fields)
        arrow_schema = to_arrow_schema(self._schema, timezone="UTC")
        bus = open_bus(options.bus)
        try:
            where, offset = Partition(options.topic, partition.number), partition.begin
            _check_kept(bus, where, offset)
            while offset < partition.end:
                messages = bus.read(where, offset, messages_max=_READ_MESSAGES_MAX, bytes_max=_READ_BYTES_MAX)
                if not messages:
                    return  # the remaining offsets have no messages
                for given in group_for_decoding([message for message in messages if message.offset < partition.end]):
                    if len(rows := without_beats(decode_group(options.topic, form.decode, given))):
                        yield typed_rows(rows, fields, partition.number, arrow_schema)
                offset = messages[-1].offset + 1
        finally:
            bus.close()

    def _opened(self) -> Bus:
        return open_bus(self._options.bus)


def typed_rows(rows: pa.RecordBatch, fields: Schema, shard: int, schema: pa.Schema) -> pa.RecordBatch:
    """Returns the decoded outputs `rows` as rows of the table, whose Arrow schema is `schema`."""
    ids = [rows.column(name).cast(pa.string()) for name in _ID_COLUMNS]
    columns = [
        opcode_letters(rows.column("hs:opcode")),
        flag_letters(rows.column("hs:flags")),
        *(to_spark(rows.column(field.name), field.type) for field in fields.fields),
        pa.array(np.full(len(rows), shard, np.int32)),
        rows.column("hs:sequence"),
        pc.binary_join_element_wise(*ids, ":"),
    ]
    return pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def _check_kept(bus: Bus, where: Partition, offset: int) -> None:
    begin, end = bus.begin_offset(where), bus.end_offset(where)
    if offset < begin:
        raise position_lost(where, offset, begin)
    if offset > end:
        raise position_beyond_end(where, offset, end, "start the query with a new checkpoint")


class TableReader(_Reading, DataSourceReader):  # type: ignore[misc, unused-ignore]
    """The reader of a static table. It reads the messages that the topic contains when Spark plans the query."""

    def partitions(self) -> Sequence[Range]:
        bus = self._opened()
        try:
            found = partitions_of(bus.topics(), self._options.topic)
            ends = {each.number: bus.end_offset(each) for each in found}
            return ranges({each.number: bus.begin_offset(each) for each in found}, ends)
        finally:
            bus.close()


class GrowingReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc, unused-ignore]
    """The reader of a streaming table. It begins with the oldest output that retention has not deleted. A Spark offset is
    {partition number: offset}.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._until: dict[str, int] | None = None
        """With Trigger.AvailableNow, the end offset of each partition at the start of the query, where the query stops;
        else None.
        """

    def initialOffset(self) -> dict[str, int]:
        return self._bus_offsets("begin_offset")

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.messages_max) if self._options.messages_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._bus_offsets("end_offset")

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        ends = self._until if self._until is not None else self._bus_offsets("end_offset")
        if not isinstance(limit, ReadMaxRows) or not ends:
            return {number: max(end, start.get(number, 0)) for number, end in ends.items()}
        share = max(1, limit.max_rows // len(ends))
        begins = {number: start.get(number, 0) for number in ends}
        return {number: max(begins[number], min(end, begins[number] + share)) for number, end in ends.items()}

    def reportLatestOffset(self) -> dict[str, int]:
        return self._bus_offsets("end_offset")

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Range]:
        begins, ends = ({int(number): offset for number, offset in each.items()} for each in (start, end))
        bus = self._opened()
        try:
            for number, offset in begins.items():
                _check_kept(bus, Partition(self._options.topic, number), offset)
        finally:
            bus.close()
        return ranges(begins, ends)

    def _bus_offsets(self, what: str) -> dict[str, int]:
        """Returns for each partition the result of the bus method named `what`, `begin_offset` or `end_offset`."""
        bus = self._opened()
        try:
            ask: Any = getattr(bus, what)
            return {str(each.number): ask(each) for each in partitions_of(bus.topics(), self._options.topic)}
        finally:
            bus.close()
