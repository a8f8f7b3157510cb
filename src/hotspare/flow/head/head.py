"""The head: decodes raw messages into rows and runs the stateless windows before the first stateful one.

One function from Arrow to Arrow that holds only plain data, so it runs in Spark's Python workers and in the driver with equal
results. It has no state: the result for a message depends on that message alone. Loads neither Spark nor numba.

A message becomes one row per event, in order; `index` counts the rows of the message, including bad rows and events that a filter
drops. If a filter drops the last row of a message, its position remains. A tick becomes one row with index 0; a message without
events becomes no row. Outputs of another project become events (`_folded`). An update block whose new row is bad is refused as a
whole (`_without_blocks`), and so is a row that lacks a required field (`_missing_required`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.flow.head.unknown_members import UnknownMember, sampled, with_unknown
from hotspare.formats import arrow_block, avro_block
from hotspare.formats.avro_block import avro_meta_names
from hotspare.formats.csv.decode import CsvOptions, DecodedRows, decode_rows, renumbered
from hotspare.formats.json.decode import decode_json
from hotspare.formats.json.plain import meta_names, unknown_members
from hotspare.model.events import OPCODE_LETTER, Flag, Opcode
from hotspare.model.names import nearest_name
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import FieldType, Schema
from hotspare.model.window_type import type_of
from hotspare.rows.bad_reasons import BadReason, RowReason
from hotspare.rows.batch import (
    END_FORM,
    FORM_MASK,
    HEAD_COLUMNS,
    OUTPUTS_FORM,
    SECOND_FORM,
    MessageFormat,
    RowKind,
    arrow_fields,
    decoded_schema,
)
from hotspare.rows.chunk import Bools, Int64s, is_all
from hotspare.rows.elementwise import Rows, buffer_bytes, chosen, columns_of, halved, is_row_error, null_array, shared, true_rows
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, NO_BAD_ROWS, NOTHING_REFUSED, BadRows, Refusals
from hotspare.rows.routing import Routing, routing_of
from hotspare.windows.shared.stateless import Chain, passed_decoded_rows, refused_rows

if TYPE_CHECKING:
    from hotspare.flow.plan import Plan


_UPDATE_BLOCK, _JSON = int(Opcode.UPDATE_BLOCK), int(MessageFormat.JSON)
_NO_FORMS = np.empty(0, np.int64)
BATCH_BYTES_MAX = (1 << 31) - 1
"""Size limit in bytes of a decoded batch of several messages: the greatest 32-bit offset of an Arrow array."""


@dataclass(frozen=True)
class TopicHead:
    """The settings by which the head processes the messages of one inbound topic. `window`: its source window; `schema`, `options`:
    the fields and the format of its events. `chain`: the stateless windows that the head runs on the events; None if all windows
    run in the core.
    """

    window: str
    schema: Schema
    options: CsvOptions
    chain: Chain | None
    routing: Routing | None = None
    """Computes the partition to which each event belongs; None if an event may be in any partition."""
    required: tuple[int, ...] = ()
    """Indexes in `schema` of the fields that must not be null."""

    @property
    def entry_schema(self) -> Schema:
        """The schema with which the topic's events enter the core."""
        return self.schema if self.chain is None else self.chain.schema

    @cached_property
    def entry_fields(self) -> list[pa.Field]:
        """The fields of `entry_schema`."""
        return arrow_fields(self.entry_schema)


@dataclass(slots=True)
class _Piece:
    """Decoded rows of one kind. `message` and `index`: the message of each row, and the row's index in that message. `content`: the
    columns of the events or bad rows; None for other kinds."""

    message: Rows
    index: npt.NDArray[np.int32]
    kind: RowKind
    opcode: npt.NDArray[np.uint8] | None = None
    flags: npt.NDArray[np.uint8] | None = None
    topic: int = -1
    content: pa.Array | None = None


@dataclass(frozen=True)
class Head:
    """Callable: decodes a batch of `RAW_SCHEMA` and returns batches of `decoded_schema` in message order, nearly always one batch.

    `topics[i]` belongs to the inbound topic with index i. It never raises because of a message's content. `batch_bytes_max`: size
    limit of a batch of several messages; the rows of the batches together do not depend on it (law Cut).
    """

    topics: tuple[TopicHead, ...]
    batch_bytes_max: int = BATCH_BYTES_MAX

    @classmethod
    def build(
        cls,
        resolved: Resolved,
        options: Mapping[WindowId, CsvOptions] | None = None,
        chains: Sequence[Chain | None] = (),
        shards: int = 1,
    ) -> Head:
        """Builds a head. `options`: the format of source windows that do not use the default. `chains[i]`: the operators to run on
        the events of topic i (`Plan.head_chain`); without chains events are only decoded. `shards`: the number of the project's
        shards."""
        topics = []
        for i, source in enumerate(resolved.sources):
            chain = chains[i] if chains else None
            form = (options or {}).get(source, CsvOptions())
            schema, routing = resolved.schema(source), routing_of(resolved, source, shards)
            window = resolved.window(source).window
            required = tuple(schema.index[name] for name in type_of(window).required(window))
            topics.append(TopicHead(str(source), schema, form, chain, routing, required))
        return cls(tuple(topics))

    @classmethod
    def from_plan(cls, plan: Plan, options: Mapping[WindowId, CsvOptions] | None = None, shards: int = 1) -> Head:
        """Builds the head of a plan. `options`, `shards`: as in `build`."""
        return cls.build(plan.resolved, options, [plan.head_chain(topic) for topic in range(len(plan.resolved.sources))], shards)

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the decoded batches."""
        return decoded_schema([topic.entry_schema for topic in self.topics])

    def __call__(self, raw: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Returns the decoded rows of all messages. If decoding the batch raises, as it also does for a batch or a column that is
        too large, the batch is bisected. A single message on which decoding raises becomes a bad row with BadReason.POISON.
        """
        try:
            return [self._at_once(raw)]
        except Exception as error:
            if not is_row_error(error):
                raise
        parts = halved(lambda begin, end: self._at_once(raw.slice(begin, end - begin)), raw.num_rows)
        return [self._refused(raw.slice(part.begin, 1), part.error) if part.result is None else part.result for part in parts]

    def decode(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Returns all decoded rows in one batch."""
        return pa.concat_batches(self(raw))

    def decode_columns(
        self, places: pa.RecordBatch, events: Mapping[int, DecodedRows], unread: Mapping[int, BadRows]
    ) -> pa.RecordBatch:
        """Returns the decoded rows of events that the caller already has as columns; each event counts as a message of its own.
        `events` and `unread`: the events and the bad rows by topic; their `message` is a row of `places`. `places`: the columns of
        `RAW_SCHEMA` without `value`, one row per event and tick; `format` matters only for ticks."""
        pieces = _ticks(places.column("tick").to_numpy(zero_copy_only=False), places.column("format").to_numpy())
        for topic, rows in events.items():
            head = self.topics[topic]
            told = [bad.with_place_of(head.window, np.ones(len(bad), np.bool_)) for bad in (unread[topic],) if len(bad)]
            entering = _without_blocks([_with_plain_keys(rows, head.schema)], NO_BAD_ROWS, _NO_FORMS, head, told)
            pieces += _after_chain(head, topic, places, entering, told)
        return self._assembled([places.column(name) for name in _POSITION], pieces)

    def _refused(self, raw: pa.RecordBatch, error: Exception | None) -> pa.RecordBatch:
        """Returns one message as a bad row. The row names only the class of the error: the error's text may differ between
        engines."""
        window = self.topics[raw.column("topic")[0].as_py()].window
        sentence = f"the engine fails on this message ({type(error).__name__})"
        text = raw.column("value")[0].as_py()[:BAD_TEXT_LENGTH_MAX].decode("utf-8", "backslashreplace")[:BAD_TEXT_LENGTH_MAX]
        refused = BadRows.from_rows([(0, 0, BadReason.POISON, sentence, text)])
        pieces = [_bad_piece(refused.with_place_of(window, np.ones(1, np.bool_)))]
        return self._assembled([raw.column(name) for name in _POSITION], pieces)

    def _at_once(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(raw.schema.names, columns_of(raw), strict=True))
        tick, topic, format_ = (columns[name].to_numpy(zero_copy_only=False) for name in ("tick", "topic", "format"))
        pieces = _ticks(tick, format_)
        unknown: list[UnknownMember] = []
        values, has_json = columns["value"], _JSON in format_.tobytes()
        for i, head in enumerate(self.topics):
            mine = (topic == i) & ~tick
            if is_all(~mine):
                continue
            pieces += _decoded(head, i, raw, values, format_, mine)
            if has_json:
                is_json = mine & (format_ == _JSON)  # messages with outputs of a project have a different number
                unknown += sampled(values, np.flatnonzero(is_json), head.window, head.schema)
        made = with_unknown(self._assembled([columns[name] for name in _POSITION], pieces), unknown)
        if raw.num_rows > 1 and buffer_bytes(made) > self.batch_bytes_max and made.nbytes > self.batch_bytes_max:
            raise OverflowError("the messages of a batch are too large together")
        return made

    def _assembled(self, positions: Sequence[pa.Array], pieces: list[_Piece]) -> pa.RecordBatch:
        """Returns the rows of the pieces in order. `positions`: the columns _POSITION of all messages."""
        pieces = sorted((p for p in pieces if len(p.message)), key=lambda piece: (piece.message.item(0), piece.index.item(0)))
        count, end = sum(len(p.message) for p in pieces), 0
        message, index, codes = np.empty(count, np.int64), np.empty(count, np.int32), np.zeros((3, count), np.uint8)
        kind, opcode, flags = codes
        for piece in pieces:
            begin, end = end, end + len(piece.message)
            message[begin:end], index[begin:end], kind[begin:end] = piece.message, piece.index, piece.kind
            if piece.opcode is not None and piece.flags is not None:
                opcode[begin:end], flags[begin:end] = piece.opcode, piece.flags
        order, at = None, None if _is_each_once(message, len(positions[0])) else message
        if at is not None and not _is_in_order(message, index):
            order = np.lexsort((index, message))
            message, index = message[order], index[order]
            kind, opcode, flags = codes.take(order, axis=1)
            at = None if _is_each_once(message, len(positions[0])) else message
        topic, partition, offset, time_us = (_at(column, at) for column in positions)
        bytes_ = [shared(column, type_) for column, type_ in ((kind, _INT8), (opcode, _UINT8), (flags, _UINT8))]
        contents = [_contents(pieces, i, RowKind.EVENT, nulls, order) for i, nulls in enumerate(self._nulls[:-1])]
        bad = _contents(pieces, -1, RowKind.BAD, self._nulls[-1], order)
        columns = [topic, partition, offset, shared(index, _INT32), time_us, *bytes_, *contents, bad]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @cached_property
    def _nulls(self) -> list[pa.Array]:
        """Some nulls of the type of each topic's events, and of bad rows: to make them takes longer than to slice them."""
        return [null_array(_NULLS, self.schema.field(len(HEAD_COLUMNS) + i).type) for i in range(len(self.topics) + 1)]


_POSITION = ("topic", "partition", "offset", "time_us")
_INT8, _UINT8, _INT32 = pa.int8(), pa.uint8(), pa.int32()


def _ticks(tick: Bools, format_: npt.NDArray[np.int8]) -> list[_Piece]:
    (ticks,) = tick.nonzero()
    if not len(ticks):
        return []
    ends = format_[ticks] == END_FORM
    kinds = ((ticks, RowKind.TICK),) if not ends.any() else ((ticks[~ends], RowKind.TICK), (ticks[ends], RowKind.END))
    return [_Piece(message, np.zeros(len(message), np.int32), kind) for message, kind in kinds if len(message)]


def _is_in_order(message: Rows, index: npt.NDArray[np.int32]) -> bool:
    place = message << 32 | index
    return is_all(place[1:] >= place[:-1])


def _is_each_once(message: Rows, count: int) -> bool:
    """Whether there is one row for each of `count` messages, in order."""
    return len(message) == count and is_all(message == np.arange(count))


def _at(column: pa.Array, rows: Rows | None) -> pa.Array:
    """Returns the numbers of a column without nulls at `rows`; None: all."""
    return column if rows is None else shared(column.to_numpy()[rows], column.type)


_NULLS = 256


def _contents(pieces: list[_Piece], topic: int, kind: RowKind, nulls: pa.Array, order: Rows | None) -> pa.Array:
    """Returns one array over the rows of all pieces: the content in rows of this kind and topic, null in all others. `nulls`: some
    nulls of the array's type; `order`: the rows' order in the batch; None if they are already in order."""

    def null(count: int) -> pa.Array:
        return nulls.slice(0, count) if count <= len(nulls) else null_array(count, nulls.type)

    has = [piece.kind is kind and piece.topic == topic for piece in pieces]
    if not any(has):
        return null(sum(len(piece.message) for piece in pieces))
    arrays: list[pa.Array] = [p.content if mine else null(len(p.message)) for p, mine in zip(pieces, has, strict=True)]
    joined = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return joined if order is None else joined.take(pa.array(order))


def _decoded(
    head: TopicHead, topic: int, raw: pa.RecordBatch, values: pa.Array, format_: npt.NDArray[np.int8], mine: Bools
) -> list[_Piece]:
    """Decodes the messages of one topic and runs its chain; returns the pieces. `values`, `format_`: columns of `raw`; `mine`:
    whether each message of `raw` is of that topic."""
    events: list[DecodedRows] = []
    bad: list[BadRows] = []
    numbers = _different(format_[mine])
    for number in numbers:
        (rows,) = (mine & (format_ == number) if len(numbers) > 1 else mine).nonzero()
        found, refused = _by_format(head, number & FORM_MASK, chosen(values, rows))
        events += [_with_plain_keys(renumbered(e, rows), head.schema) for e in found]
        bad += [refused.renumbered(rows)] if len(refused) else []
    unread = BadRows.joined(bad)
    told = [unread.with_place_of(head.window, _is_alone(unread, events))] if len(unread) else []
    forms, gone = format_.astype(np.int64), list[_Piece]()
    if any(number & OUTPUTS_FORM for number in numbers):
        events, message, index = _folded(events, forms)
        gone = [_Piece(message, index.astype(np.int32), RowKind.DROPPED)] if len(message) else []
    return [*gone, *_after_chain(head, topic, raw, _without_blocks(events, unread, forms, head, told), told)]


def _different(numbers: npt.NDArray[np.int8]) -> list[int]:
    """Returns the different ones of some numbers, at least one, ascending."""
    found: list[int] = [numbers.item(0)] if is_all(numbers == numbers[0]) else np.unique(numbers).tolist()
    return found


def _after_chain(head: TopicHead, topic: int, raw: pa.RecordBatch, events: list[DecodedRows], told: list[BadRows]) -> list[_Piece]:
    """Checks one topic's decoded events, runs its chain, and returns the pieces: events, bad rows including `told`, and dropped
    rows. `message` of each event is a row of `raw`."""
    if head.required:
        events = [_refused(rows, _missing_required(rows, raw, head.schema, head.required), head, told) for rows in events]
    if head.routing is not None:
        partition = raw.column("partition").to_numpy()
        events = [_in_place(rows, head, head.routing, partition, told) for rows in events]
    if head.chain is None:
        return [*(_event_piece(head, topic, rows) for rows in events), *map(_bad_piece, told)]
    pieces: list[_Piece] = []
    for decoded in events:
        passed, refused = head.chain.run(decoded)
        told += refused
        if len(passed.message):
            pieces.append(_event_piece(head, topic, passed))
        pieces += _dropped(decoded, passed, refused)
    return [*pieces, *map(_bad_piece, told)]


def _folded(events: Sequence[DecodedRows], forms: Int64s) -> tuple[list[DecodedRows], Rows, Rows]:
    """Turns outputs of another project into events (SPEC K10): an update, emitted as two rows, becomes one event. Flags of
    retention are dropped: why the other project deleted a row does not matter here.

    Returns the events, and the message and index of each removed row that was the last of its message. `forms`: the raw column
    `format` by message.
    """
    places = [rows.message << 32 | rows.index for rows in events]
    new = np.concatenate([place[rows.opcode == Opcode.UPDATE_BLOCK] for place, rows in zip(places, events, strict=True)])
    kept, gone = list[DecodedRows](), [np.empty(0, np.int64)]
    last = np.full(len(forms), -1, np.int64)
    for rows in events:
        np.maximum.at(last, rows.message, rows.index.astype(np.int64))
    for place, rows in zip(places, events, strict=True):
        is_second = _old_rows(rows, place, new, forms)
        gone.append(place[is_second & (rows.index == last[rows.message])])
        kept.append(passed_decoded_rows(_as_events(rows, forms), ~is_second, rows.columns))
    ends = np.sort(np.concatenate(gone))
    return [rows for rows in kept if len(rows.message)], ends >> 32, ends & 0xFFFFFFFF


def _old_rows(rows: DecodedRows, place: Int64s, new: Int64s, forms: Int64s) -> Bools:
    """Whether each row is the old row of an update. The new row precedes the old row directly, or was the last row of the message
    before. `new`: the places (message, index) of new rows."""
    form = forms[rows.message]
    begins = ((form & SECOND_FORM) != 0) & (rows.index == 0)
    behind: Bools = (rows.opcode == Opcode.DELETE) & ((form & OUTPUTS_FORM) != 0) & (np.isin(place - 1, new) | begins)
    return behind


def _as_events(rows: DecodedRows, forms: Int64s) -> DecodedRows:
    is_output = (forms[rows.message] & OUTPUTS_FORM) != 0
    opcode = np.where(is_output & (rows.opcode == Opcode.UPDATE_BLOCK), np.uint8(Opcode.UPDATE), rows.opcode)
    flags = np.where(is_output, np.uint8(Flag.NORMAL) | (rows.flags & np.uint8(Flag.PARTIAL)), rows.flags).astype(np.uint8)
    return DecodedRows(rows.message, rows.index, opcode, flags, rows.columns)


def _without_blocks(
    events: list[DecodedRows], unread: BadRows, forms: npt.NDArray[np.int64], head: TopicHead, bad: list[BadRows]
) -> list[DecodedRows]:
    """Returns the events without update blocks, which only windows emit: both rows of each are added to `bad`.

    A block is emitted as two rows: the new one, then a delete of the old one. Both are refused together: the old row alone would
    delete what the block replaces.
    """
    if not len(unread) and not any(_UPDATE_BLOCK in rows.opcode.tobytes() for rows in events):
        return [rows for rows in events if len(rows.message)]
    blocks = _rows_of_blocks(events, unread, forms, head.schema, head.options)
    kept = [_refused_for(rows, mine, BadReason.OPCODE, head, bad) for rows, mine in zip(events, blocks, strict=True)]
    return [rows for rows in kept if len(rows.message)]


def _rows_of_blocks(events: Sequence[DecodedRows], bad: BadRows, forms: Int64s, schema: Schema, options: CsvOptions) -> list[Bools]:
    """Returns a mask per element of `events`: whether each event is a row of an update block. `bad`: rows that could not be read;
    `forms`: the raw column `format`."""
    places = [rows.message << 32 | rows.index for rows in events]
    new = [place[rows.opcode == Opcode.UPDATE_BLOCK] for place, rows in zip(places, events, strict=True)]
    behind = np.concatenate([*new, _unread_openings(events, places, bad, forms, schema, options)]) + 1
    both = zip(places, events, strict=True)
    return [(rows.opcode == Opcode.UPDATE_BLOCK) | _deletes_behind(rows, place, behind) for place, rows in both]


def _deletes_behind(rows: DecodedRows, place: Int64s, where: Int64s) -> Bools:
    found: Bools = (rows.opcode == Opcode.DELETE) & np.isin(place, where)
    return found


def _unread_openings(
    events: Sequence[DecodedRows], places: Sequence[Int64s], bad: BadRows, forms: Int64s, schema: Schema, options: CsvOptions
) -> Int64s:
    """Returns the places of bad rows that were, or may have been, the new row of a block with a delete after it.

    Only the text of an unreadable row is known, so its opcode is searched there. If the opcode may lie beyond the end of a
    truncated text, the delete after it is refused too.
    """
    where = bad.message.astype(np.int64) << 32 | bad.index
    deletes = [place[rows.opcode == Opcode.DELETE] for place, rows in zip(places, events, strict=True)]
    before = np.flatnonzero(np.isin(where + 1, np.concatenate([np.empty(0, np.int64), *deletes])))
    found = [row for row in before.tolist() if _opens_block(int(forms[bad.message[row]]), bad.text[row].as_py(), schema, options)]
    return where[found]


_OPENING = f"({OPCODE_LETTER[Opcode.UPDATE_BLOCK]}|{Opcode.UPDATE_BLOCK.name.replace('_', '')})"


def _opens_block(form: int, text: str, schema: Schema, options: CsvOptions) -> bool:
    return _OPENS[MessageFormat(form & FORM_MASK)](text, schema, options)


def _csv_opens(text: str, _: Schema, options: CsvOptions) -> bool:
    ends = rf'\s*"?\s*({re.escape(options.delimiter)}|$)'
    return options.opcode is None and re.match(rf'\s*"?\s*{_OPENING}{ends}', text, re.IGNORECASE) is not None


def _json_opens(text: str, schema: Schema, _: CsvOptions) -> bool:
    return _member_opens(text, f'"{re.escape(meta_names(schema)[0])}"', '"')


def _avro_opens(text: str, schema: Schema, _: CsvOptions) -> bool:
    """Whether `text`, an Avro record as Python prints a dict, opens an update block."""
    return _member_opens(text, f"'{re.escape(avro_meta_names(schema)[0])}'", "'")


def _member_opens(text: str, name: str, quote: str) -> bool:
    if re.search(rf"{name}\s*:\s*{quote}\s*{_OPENING}\s*{quote}", text, re.IGNORECASE):
        return True
    return len(text) >= BAD_TEXT_LENGTH_MAX and re.search(rf"{name}\s*:", text) is None


def _arrow_opens(text: str, _: Schema, __: CsvOptions) -> bool:
    """Whether `text`, in which the opcode is a number, opens an update block."""
    return text.startswith(f"opcode {int(Opcode.UPDATE_BLOCK)},")


_OPENS: dict[MessageFormat, Callable[[str, Schema, CsvOptions], bool]] = {
    MessageFormat.CSV: _csv_opens,
    MessageFormat.JSON: _json_opens,
    MessageFormat.AVRO: _avro_opens,
    MessageFormat.ARROW: _arrow_opens,
}
_HINT_NAMES_MAX = 100
"""An event with more unknown members gets no hint, because comparing each name takes time in every engine."""
_WITH_VALUES = [int(Opcode.INSERT), int(Opcode.UPDATE), int(Opcode.UPSERT)]


def _missing_required(rows: DecodedRows, raw: pa.RecordBatch, schema: Schema, required: Sequence[int]) -> Refusals:
    """Returns the refusals of events in which a field at one of the places `required` is null. Each names the first such field, and
    a member of a JSON event that may be its misspelling.

    A field is null if no member has its name, so a misspelt name would turn null into an ordinary value. Deletes and partial
    updates need only the key, so none of them is refused. The messages of `rows` are rows of `raw`, which may lack the column
    `value`.
    """
    first = np.full(len(rows.message), -1, np.int64)
    for place in reversed(required):
        if rows.columns[place].null_count:
            first[true_rows(rows.columns[place].is_null())] = place
    if not (first >= 0).any():
        return NOTHING_REFUSED
    has_values = np.isin(rows.opcode, _WITH_VALUES) & ((rows.flags & np.uint8(Flag.PARTIAL)) == 0)
    refused = np.flatnonzero((first >= 0) & has_values)
    fields = [schema.names[place] for place in first[refused].tolist()]
    sentences = [f"the required field {field} is null" for field in fields]
    if "value" in raw.schema.names:
        hints = _hints(raw, rows.message[refused].tolist(), rows.index[refused].tolist(), fields, schema)
        sentences = [sentence + hint for sentence, hint in zip(sentences, hints, strict=True)]
    causes = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}
    cause = np.array([causes[sentence] for sentence in sentences], np.int64)
    return Refusals.from_causes(refused, cause, [(BadReason.REQUIRED, sentence) for sentence in causes])


def _hints(
    raw: pa.RecordBatch, messages: Sequence[int], places: Sequence[int], fields: Sequence[str], schema: Schema
) -> Iterator[str]:
    """Yields one hint per refused event: the unknown member whose name is nearest to the null field's name, or "" if none is near.
    `messages` and `places`: the event's row of `raw` and its index in the message. `fields`: its null field."""
    parsed, unknown = -1, list[frozenset[str]]()
    for message, place, field in zip(messages, places, fields, strict=True):
        if message != parsed:
            parsed, is_json = message, raw.column("format")[message].as_py() & FORM_MASK == MessageFormat.JSON
            unknown = unknown_members(raw.column("value")[message].as_py() or b"", schema) if is_json else []
        names = unknown[place] if place < len(unknown) else frozenset()
        near = nearest_name(field, names) if len(names) <= _HINT_NAMES_MAX else ""
        yield f"; unknown member {near!r}: did you mean {field!r}?" if near else ""


def _in_place(
    rows: DecodedRows, head: TopicHead, routing: Routing, partition: npt.NDArray[np.int32], bad: list[BadRows]
) -> DecodedRows:
    """Returns the events that are in the partition to which they belong; adds the others to `bad`."""
    is_right = routing.partitions(rows.columns[routing.field]) == partition[rows.message]
    return _refused_for(rows, ~is_right, BadReason.MISROUTED, head, bad)


def _refused_for(
    rows: DecodedRows, is_wrong: npt.NDArray[np.bool_], reason: BadReason, head: TopicHead, bad: list[BadRows]
) -> DecodedRows:
    """Returns the events that are not `is_wrong`; adds the wrong ones to `bad` with `reason`."""
    wrong = np.flatnonzero(is_wrong)
    return _refused(rows, Refusals.from_causes(wrong, np.zeros(len(wrong), np.int64), [(reason, reason.sentence)]), head, bad)


def _refused(rows: DecodedRows, refused: Refusals, head: TopicHead, bad: list[BadRows]) -> DecodedRows:
    """Returns the events that are not refused; adds the others to `bad`."""
    if not len(refused):
        return rows
    bad.append(refused_rows(rows, refused, head.schema, head.window))
    passes = np.ones(len(rows.message), np.bool_)
    passes[refused.rows] = False
    return passed_decoded_rows(rows, passes, rows.columns)


def _dropped(given: DecodedRows, passed: DecodedRows, bad: list[BadRows]) -> list[_Piece]:
    """Returns a piece for the messages whose last row the chain dropped. These rows stay as positions, so the input's position and
    time do not depend on filters."""
    last = np.flatnonzero(np.diff(given.message, append=-1) != 0)
    left = [passed.message.astype(np.int64) << 32 | passed.index]
    left += [rows.message << 32 | rows.index for rows in bad]
    gone = last[~np.isin(given.message[last].astype(np.int64) << 32 | given.index[last], np.concatenate(left))]
    return [_Piece(given.message[gone], given.index[gone], RowKind.DROPPED)] if len(gone) else []


def _is_alone(bad: BadRows, events: list[DecodedRows]) -> npt.NDArray[np.bool_]:
    """Whether each bad row is the only row of its message."""
    alone: npt.NDArray[np.bool_] = np.bincount(np.concatenate([bad.message, *(rows.message for rows in events)]))[bad.message] == 1
    return alone


_LOST = "messages are lost that a topic no longer holds"
_BLOCK_DECODERS = {int(MessageFormat.ARROW): arrow_block.decode_events, int(MessageFormat.AVRO): avro_block.decode_events}
"""Decoders by format number, for the formats in which each message is a complete file."""


def _by_format(head: TopicHead, number: int, values: pa.Array) -> tuple[list[DecodedRows], BadRows]:
    if number == MessageFormat.CSV:
        return decode_rows(values, head.schema, head.options)
    if number == MessageFormat.JSON:
        return decode_json(values, head.schema)
    given = {message: value for message, value in enumerate(values.to_pylist()) if value}
    if number == MessageFormat.LOST:
        texts = {message: value.decode("utf-8", "backslashreplace")[:BAD_TEXT_LENGTH_MAX] for message, value in given.items()}
        return [], BadRows.from_rows([(message, 0, RowReason.LOST, _LOST, text) for message, text in texts.items()])
    decode = _BLOCK_DECODERS.get(number)
    if decode is None:
        sentence = f"a message has the unknown format {number}"
        return [], BadRows.from_rows(
            [(message, 0, RowReason.FORMAT, sentence, value[:200].hex()) for message, value in given.items()]
        )
    rows, refused = decode(list(given.values()), list(given), head.schema)
    return [rows] if rows is not None and len(rows.message) else [], refused


def _with_plain_keys(rows: DecodedRows, schema: Schema) -> DecodedRows:
    """Returns the rows with equal bits for equal keys: in key columns, -0.0 becomes 0.0, and every NaN becomes the same NaN."""
    doubles = [i for i in schema.key_indexes if schema.fields[i].type is FieldType.DOUBLE]
    if not doubles:
        return rows
    columns = list(rows.columns)
    for i in doubles:
        key = columns[i]
        columns[i] = pc.if_else(pc.equal(key, 0.0), 0.0, pc.if_else(pc.is_nan(key), float("nan"), key))
    return DecodedRows(rows.message, rows.index, rows.opcode, rows.flags, columns)


def _event_piece(head: TopicHead, topic: int, rows: DecodedRows) -> _Piece:
    content = pa.StructArray.from_arrays(rows.columns, fields=head.entry_fields)
    return _Piece(rows.message, rows.index, RowKind.EVENT, rows.opcode, rows.flags, topic, content)


def _bad_piece(bad: BadRows) -> _Piece:
    return _Piece(bad.message, bad.index.astype(np.int32), RowKind.BAD, content=bad.content)
