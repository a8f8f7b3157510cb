"""Decodes JSON messages to events, whole batches at a time (SPEC I4). `json.plain` defines the meaning of JSON input. The loops in
`json.loops` read all messages by the same rules, and report each error as a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa

from hotspare.formats import loops
from hotspare.formats.csv.decode import WORD_NUMBERS, DecodedRows, WrongTexts, field_kind, kept_rows, typed_values, word_numbers
from hotspare.formats.csv.lines import strings_of
from hotspare.formats.fields import FieldColumns, fixed
from hotspare.formats.json.loops import events, row_ends, syntax
from hotspare.formats.json.plain import (
    DEPTH_MAX,
    EVENT_MEMBER,
    KINDS,
    WRONG_ENVELOPE,
    comes_twice,
    names_wanted,
    not_unicode,
    refusal_of,
    takes_numbers,
    wrong_kind,
)
from hotspare.formats.loops import Fields, FieldTexts
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Field, FieldType, Schema
from hotspare.rows import tuning
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.chunk import Int32s, Int64s, UInt8s
from hotspare.rows.compile import plain
from hotspare.rows.elementwise import filled
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, NO_BAD_ROWS, BadRows, Refusals, clipped

_ROW_BYTES = 16
"""The bytes of a short row: a batch of shorter rows is decoded in more parts."""
_OTHER_MEMBERS = 16
"""An object may have this many members besides the known ones before each further name is looked up."""
_NULL_KEYS = [int(plain(loops.word_key)(np.empty(0, np.uint8), 0, -1, number)) for number in (0, 1)]
_WORDS = np.concatenate([WORD_NUMBERS, np.array([_NULL_KEYS[0], Opcode.INSERT, _NULL_KEYS[1], Flag.NORMAL], np.uint64)])
"""The numbers of opcodes and flags, and those of a row that has none."""
_EXAMPLES: dict[int, bytes] = {
    syntax.VALUE: b'{"a":}',
    syntax.NAME: b"{1}",
    syntax.COLON: b'{"a" 1}',
    syntax.COMMA: b'{"a":1 1}',
    syntax.OBJECT_COMMA: b'{"a":1,}',
    syntax.ARRAY_COMMA: b'{"a":[1,]}',
    syntax.UNCLOSED: b'{"a":"',
    syntax.CONTROL: b'{"a":"\t"}',
    syntax.ESCAPE: b'{"a":"\\x"}',
    syntax.UNICODE: b'{"a":"\\ux"}',
    syntax.DEEP: b'{"a":' * (DEPTH_MAX + 1),
    syntax.UTF8: b"\xff",
    row_ends.XML: b"<",
    row_ends.FOLLOWS: b"{}1x",
    row_ends.NOT_AN_OBJECT + syntax.NULL: b"null",
    row_ends.NOT_AN_OBJECT + syntax.WORD: b"true",
    row_ends.NOT_AN_OBJECT + syntax.NUMBER: b"1",
    row_ends.NOT_AN_OBJECT + syntax.STRING: b'""',
}
"""A row with each error that has no more than a sentence, by the error's code."""
_CAUSES = {code: refusal_of(row) for code, row in _EXAMPLES.items()} | {events.ENVELOPE: (RowReason.FORMAT, WRONG_ENVELOPE)}


def decode_json(values: pa.Array, schema: Schema) -> tuple[list[DecodedRows], BadRows]:
    """Decodes an Arrow binary array of messages. Returns the events, in parts and in order of messages and rows, and the bad rows,
    which need not be in order. `message` of a row is an index in `values`."""
    reading = _Reading(values, _plan(schema))
    good: list[DecodedRows] = []
    bad: list[BadRows] = []
    while reading.is_under_way:
        rows = reading.next_rows()
        bad.append(reading.bad_rows())
        if len(rows.message):
            decoded, refused = reading.typed(rows)
            good += [decoded] if len(decoded.message) else []
            bad.append(refused)
    return good, BadRows.joined(bad)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How messages of a schema are read. `known`: the known members, without recent names; `kinds`: the kinds of their columns."""

    schema: Schema
    names: list[str]
    known: events.Known
    kinds: UInt8s


@lru_cache(maxsize=64)
def _plan(schema: Schema) -> _Plan:
    names = names_wanted(schema)
    texts = [name.encode() for name in (*names, "" if EVENT_MEMBER in schema.index else EVENT_MEMBER)]
    slots = np.full(1 << (2 * len(texts)).bit_length(), events.UNKNOWN, np.int64)
    takes = np.array(takes_numbers(schema), np.uint8) * events.TAKES_NUMBER
    takes[events.OWN_MEMBERS :] |= np.array([_takes(field) for field in schema.fields], np.uint8)
    joined, ends = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([len(text) for text in texts])
    recent = np.empty((0, events.RECENT_WIDTH), np.int64)
    known = events.Known(fixed(joined), ends, slots, np.append(takes, np.uint8(0)), recent)
    events.fill_slots(known)
    kinds = [loops.WORDS, loops.WORDS + 1, *(field_kind(field.type) for field in schema.fields)]
    return _Plan(schema, names, known, np.array(kinds, np.uint8))


def _takes(field: Field) -> int:
    """Returns the bits of `events.Known.takes` of a field, besides TAKES_NUMBER."""
    if field.type is FieldType.STRING:
        return events.TAKES_ARRAY | (0 if field.name == EVENT_MEMBER else events.TAKES_OBJECT)
    return events.TAKES_ITEMS if field.type.is_array else 0


class _Reading:
    """Messages that are read in parts of at most `Tuning.json_piece_rows` good and as many bad rows."""

    def __init__(self, values: pa.Array, plan: _Plan) -> None:
        self._plan, self._count = plan, len(values)
        values = values.fill_null(b"") if values.null_count else values
        _, bounds, data = values.buffers()
        self._bounds = fixed(np.frombuffer(bounds, np.int32)[values.offset : values.offset + self._count + 1])
        self._data = fixed(np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8))
        size, members = int(self._bounds[-1] - self._bounds[0]), len(plan.names)
        self._room = min(tuning.current().json_piece_rows, size // _ROW_BYTES + self._count + 1)
        cells = np.empty((2, self._room * members), np.int32)
        self._fields = Fields(cells[0], cells[1], np.empty(size + 1, np.uint8))
        self._scratch = events.JsonScratch(np.empty(size + DEPTH_MAX, np.uint8), np.zeros(members, np.int64))
        recent = np.full((members + _OTHER_MEMBERS, events.RECENT_WIDTH), events.NO_NAME, np.int64)
        self._known = plan.known._replace(recent=recent)
        self._bad = np.empty((self._room, events.BAD_WIDTH), np.int64)
        self._state = np.zeros(events.STATE_WIDTH, np.int64)
        self._state[events.AT] = self._bounds[0]

    @property
    def is_under_way(self) -> bool:
        return bool(self._state[events.MESSAGE] < self._count)

    def next_rows(self) -> events.GoodRows:
        """Reads the next part of the messages. Returns its good rows."""
        arguments = self.arguments()
        events.read_messages(*arguments)
        rows, good = arguments[0], self._state[events.GOOD]
        return events.GoodRows(rows.message[:good], rows.number[:good], rows.begin[:good], rows.end[:good])

    def arguments(self) -> tuple[events.GoodRows, UInt8s, Int32s, events.Known, events.JsonScratch, Fields, Int64s, Int64s]:
        """Returns the arguments of `events.read_messages` for the next part."""
        room = self._room
        rows = events.GoodRows(np.empty(room, np.int64), *(np.empty(room, np.int32) for _ in range(3)))
        return rows, self._data, self._bounds, self._known, self._scratch, self._fields, self._bad, self._state

    def bad_rows(self) -> BadRows:
        """Returns the rows of the part that are not events, or have a member that cannot be a value of its field."""
        bad = self._bad[: self._state[events.BAD]]
        if not len(bad):
            return NO_BAD_ROWS
        message, index, begin, end, code = bad.T.copy()
        codes, cause = np.unique(code, return_inverse=True)
        refused = Refusals.from_causes(message, cause, [_cause(each, self._plan.names) for each in codes.tolist()])
        unreadable = np.flatnonzero(code == syntax.UTF8)
        texts = strings_of(self._data, begin, end)
        if len(unreadable):
            shown = [self._data[begin[at] : end[at]].tobytes().decode(errors="replace") for at in unreadable.tolist()]
            texts = filled(texts, unreadable, (pa.array([text[:BAD_TEXT_LENGTH_MAX] for text in shown]), unreadable[:0]))[0]
        return BadRows(message, index, refused.reason, refused.message, clipped(texts))

    def typed(self, rows: events.GoodRows) -> tuple[DecodedRows, BadRows]:
        """Returns the events of good rows, and those of the rows that have an invalid text."""
        values = FieldTexts(self._data, fixed(self._fields.spill[:]), fixed(self._fields.begin[:]), fixed(self._fields.size[:]))
        count, wrong = len(rows.message), WrongTexts(len(rows.message))
        text_bytes = int(rows.end[-1] - rows.begin[0] + self._state[events.SPILLED])
        columns = FieldColumns(values, count, self._plan.kinds, text_bytes, _WORDS)
        opcode, flags = word_numbers(columns, 0, wrong.opcodes), word_numbers(columns, 1, wrong.flags)
        typed = [
            typed_values(columns, number, each, wrong) for number, each in enumerate(self._plan.schema.fields, events.OWN_MEMBERS)
        ]
        decoded = DecodedRows(rows.message, rows.number, opcode, flags, typed)
        at = np.flatnonzero(wrong.refused)
        if not len(at):
            return decoded, NO_BAD_ROWS
        shown = strings_of(self._data, rows.begin[at], rows.end[at])
        return kept_rows(decoded, ~wrong.refused), wrong.bad_rows(decoded, at, shown)


def _cause(code: int, names: list[str]) -> tuple[RowReason, str]:
    """Returns the reason and the sentence for a bad row with this code."""
    if code in _CAUSES:
        return _CAUSES[code]
    place, wrong = divmod(code - events.OF_MEMBERS, events.MEMBER_CODES)
    if wrong == events.TWICE:
        return comes_twice(names[place])
    return not_unicode(names[place]) if wrong == events.NO_UNICODE else wrong_kind(place, names[place], KINDS[wrong])
