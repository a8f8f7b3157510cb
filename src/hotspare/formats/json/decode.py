"""Decodes JSON messages to events, whole batches at a time (SPEC I4). `json.plain` defines the meaning of JSON input; this module
gives equal results faster.

Arrow's parser reads objects, one per line, and arrays of flat objects from the bytes of all messages in one call. The parser
accepts the same texts as the plain decoder, with equal values, because it receives only messages whose events are clearly
separated: every line begins and ends with a brace, or one pair of square brackets encloses the message. So as many rows as lines
means one row per line.

Messages that Arrow's parser refuses are read by their tokens (`json.flat`). Messages that `json.flat` leaves undecoded are retried
with Arrow's parser in halves, until each refused message is alone or there were too many refusals. The messages still refused, and
messages of other shapes, are decoded by `json.plain`. So the result for a message depends on that message alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from hotspare.formats.csv.decode import DecodedRows, WrongTexts, kept_rows, renumbered
from hotspare.formats.csv.lines import joined, numbered, strings_of
from hotspare.formats.json.flat import read_flat
from hotspare.formats.json.plain import (
    DEPTH_MAX,
    EVENT_MEMBER,
    NO_NUMBERS,
    decode_plainly,
    kinds_written,
    meta_names,
    names_wanted,
    takes_numbers,
    wrong_kind,
)
from hotspare.formats.json.tokens import Texts, array_objects
from hotspare.formats.utf8 import is_utf8
from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows import tuning
from hotspare.rows.batch import ARROW_TYPE
from hotspare.rows.elementwise import Rows, true_rows
from hotspare.rows.refusals import NO_BAD_ROWS, NOTHING_REFUSED, BadRows, Refusals

_Bytes = npt.NDArray[np.uint8]
_Bools = npt.NDArray[np.bool_]
_NO_ROWS: Rows = np.empty(0, np.int64)
_LIST = "hs:list"
_BLANKS_MAX = 4
"""Limit on the blanks that are trimmed on each side of a line; a message with more blanks is decoded by `json.plain`."""
_IS_BLANK = np.isin(np.arange(256), list(b" \t\r"))
_CALL_MESSAGES_MAX = 16_384
_REFUSALS_MAX = 24
"""Limit on refusals of Arrow's parser, after which all refused messages are decoded by `json.plain`: a call of the parser costs as
much as decoding many messages."""
_EXAMPLES = 8
_ROW = re.compile(r"in row ([0-9]{1,9})$")
"""Finds the row of the first error in an error text of Arrow's parser. The row is only a hint that saves halving."""
_PLAIN_ONLY = (b"NaN", b"Inf", b"\x00")
"""Texts that Arrow's parser reads differently from `json.plain`; a message that contains one is decoded by `json.plain`."""
_MONEY_LIMIT = pa.scalar(Decimal(10**14), pa.decimal128(19, 4))
"""Arrow's parser returns amounts with more digits than their type allows; events with an amount of at least this size are decoded
by `json.plain`."""


class _Refused(Exception):
    """Raised if Arrow's parser refuses the messages of a call. `place`: the index of the first refused message in the call, -1 if
    unknown."""

    def __init__(self, place: int = -1) -> None:
        super().__init__(place)
        self.place = place


def decode_json(values: pa.Array, schema: Schema) -> tuple[list[DecodedRows], BadRows]:
    """Decodes an Arrow binary array of messages. Returns the events, in several parts, and the bad rows. The parts need not be in
    the order of messages. `message` of a row is an index in `values`."""
    if not len(values):
        return [], NO_BAD_ROWS
    every = _Messages(np.arange(len(values), dtype=np.int64), values, _text(values))
    shapes, found = _shapes(every), _Found([], [])
    tried: list[tuple[_Reader, Rows]] = []
    left: list[Rows] = [shapes.flat]
    readers: list[tuple[Rows, _Reader]] = [(shapes.lines, _read_lines), (shapes.arrays, _read_arrays)]
    for messages, read in readers:
        refused, others = _at_once(every, messages, schema, read, found)
        tried.append((read, refused))
        left += [refused, others]
    rest = _flat(every, np.sort(np.concatenate(left)), schema, found)
    plain: list[Rows] = [shapes.other]
    for read, refused in tried:
        is_refused = np.isin(rest, refused)
        plain += _halving(every, rest[is_refused], schema, read, found)
        rest = rest[~is_refused]
    rest = np.sort(np.concatenate([rest, *plain]))
    if len(rest):
        found.add(*decode_plainly(values.take(pa.array(rest)).to_pylist(), rest.tolist(), schema))
    return found.events, BadRows.joined(found.bad)


@dataclass(frozen=True, slots=True)
class _Found:
    """Collects the events and bad rows decoded so far."""

    events: list[DecodedRows]
    bad: list[BadRows]

    def add(self, rows: DecodedRows | None, bad: BadRows) -> None:
        if rows is not None and len(rows.message):
            self.events.append(rows)
        self.bad.append(bad)


@dataclass(frozen=True, slots=True)
class _Text:
    """The bytes of a batch of messages. `data`: all messages, a line feed after each; `end`: the end of each message. `line_begin`,
    `line_end`, `line_parent`: the bounds and the message of each line that is not blank."""

    data: _Bytes
    end: Rows
    line_begin: Rows
    line_end: Rows
    line_parent: Rows

    def lines(self, lines: Rows) -> pa.Array:
        """Returns the lines with these rising indexes as strings."""
        return strings_of(self.data, self.line_begin[lines], self.line_end[lines])

    def slice(self, begin: int, end: int) -> _Text:
        """Returns the text of the messages from index `begin` to before index `end`."""
        at, to = int(self.end[begin - 1]) + 1 if begin else 0, int(self.end[end - 1]) + 1
        lines = slice(*np.searchsorted(self.line_parent, [begin, end]))
        ends, line_begin, line_end = self.end[begin:end] - at, self.line_begin[lines] - at, self.line_end[lines] - at
        return _Text(self.data[at:to], ends, line_begin, line_end, self.line_parent[lines] - begin)

    def texts(self) -> tuple[Texts, Rows]:
        """Returns one text per line; a message that begins with a square bracket is one text. Also returns the message of each
        text."""
        is_first = np.diff(self.line_parent, prepend=-1) > 0
        first = np.flatnonzero(is_first)
        is_array = self.data[self.line_begin[first]] == ord("[")
        if not is_array.any():
            return Texts(self.data, self.line_begin, self.line_end), self.line_parent
        number = np.cumsum(is_first) - 1
        end = np.where(is_array[number], self.line_end[np.append(first[1:], len(is_first)) - 1][number], self.line_end)
        kept = is_first | ~is_array[number]
        return Texts(self.data, self.line_begin[kept], end[kept]), self.line_parent[kept]


@dataclass(frozen=True, slots=True)
class _Messages:
    """Messages with their rising numbers, their values, and their joined text."""

    numbers: Rows
    values: pa.Array
    text: _Text

    def chosen(self, numbers: Rows) -> _Messages:
        """Returns the messages with these `numbers`, which are ascending and not empty."""
        begin, end = int(numbers[0]), int(numbers[-1]) + 1
        if end - begin == len(numbers):
            is_all = len(numbers) == len(self.numbers)
            return self if is_all else _Messages(numbers, self.values.slice(begin, end - begin), self.text.slice(begin, end))
        values = self.values.take(pa.array(numbers))
        return _Messages(numbers, values, _text(values))


_Reader = Callable[[_Messages, Schema, _Found], Rows]
"""Decodes messages and adds their rows to the `_Found`. Returns the numbers of messages left undecoded. Raises `_Refused`, before
adding any row, if Arrow's parser refuses the messages."""


def _calls(messages: Rows) -> list[Rows]:
    return [messages[at : at + _CALL_MESSAGES_MAX] for at in range(0, len(messages), _CALL_MESSAGES_MAX)]


def _at_once(every: _Messages, messages: Rows, schema: Schema, read: _Reader, found: _Found) -> tuple[Rows, Rows]:
    """Decodes the messages numbered `messages` in calls of bounded size, and adds their rows to `found`. Returns the messages of
    calls that raised `_Refused`, and the messages that the successful calls left undecoded."""
    refused, left = [messages[:0]], [messages[:0]]
    for mine in _calls(messages):
        try:
            left.append(read(every.chosen(mine), schema, found))
        except _Refused:
            refused.append(mine)
    return np.concatenate(refused), np.concatenate(left)


def _flat(every: _Messages, messages: Rows, schema: Schema, found: _Found) -> Rows:
    """Decodes messages by their tokens (`json.flat`), and adds their rows to `found`. Returns the messages left undecoded."""
    if not len(messages):
        return messages
    left = [messages[:0]]
    sizes = np.cumsum(np.diff(every.text.end, prepend=-1)[messages])
    for mine in np.split(messages, np.flatnonzero(np.diff(sizes // tuning.current().json_piece_bytes)) + 1):
        read = read_flat(*every.chosen(mine).text.texts(), schema)
        found.add(None if read.rows is None else renumbered(read.rows, mine), read.bad.renumbered(mine))
        left.append(mine[read.undecoded])
    return np.concatenate(left)


def _halving(every: _Messages, messages: Rows, schema: Schema, read: _Reader, found: _Found) -> list[Rows]:
    """Decodes messages with `read`, halving refused calls. Returns the messages still undecoded: refused alone, not retried after
    too many refusals, or skipped by `read`."""
    left: list[Rows] = []
    refusals = 0
    waiting = _calls(messages)
    while waiting:
        mine = waiting.pop()
        try:
            left.append(read(every.chosen(mine), schema, found))
        except _Refused as error:
            refusals += 1
            if len(mine) == 1 or refusals > _REFUSALS_MAX:
                left.append(mine)
            else:
                waiting += _split(mine, error.place)
    return left


def _split(messages: Rows, place: int) -> list[Rows]:
    """Splits the messages of a refused call, and returns the parts, last part first. With a known `place`: the messages before it,
    that message alone, and halves of the messages after it. With -1: halves."""
    count = len(messages)
    cuts = (place, place + 1, (place + 1 + count) // 2) if 0 <= place < count else (count // 2,)
    return [part for part in reversed(np.split(messages, cuts)) if len(part)]


@dataclass(frozen=True, slots=True)
class _Shapes:
    """Rising numbers of the messages of each shape. `lines`: objects, one per line. `arrays`: one array of objects. `flat`:
    messages that only begin like one of these. `other`: all other messages that are not blank."""

    lines: Rows
    arrays: Rows
    flat: Rows
    other: Rows


def _text(values: pa.Array) -> _Text:
    data = np.frombuffer(joined(values), np.uint8)
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    end = np.cumsum(np.diff(bounds).astype(np.int64) + 1) - 1
    feeds = np.flatnonzero(data == ord("\n"))
    begin = np.concatenate([np.zeros(1, np.int64), feeds[:-1] + 1])
    parent = np.arange(len(end), dtype=np.int64) if len(feeds) == len(end) else np.searchsorted(end, begin)
    begin, stop = _trimmed(data, begin, feeds)
    kept = stop > begin
    return _Text(data, end, begin[kept], stop[kept], parent[kept])


def _trimmed(data: _Bytes, begin: Rows, end: Rows) -> tuple[Rows, Rows]:
    """Returns the bounds of lines without blanks, of which at most `_BLANKS_MAX` are removed on either side."""
    for _ in range(_BLANKS_MAX):
        head = (end > begin) & _IS_BLANK[data[begin]]
        begin = begin + head
        tail = (end > begin) & _IS_BLANK[data[end - 1]]
        end = end - tail
        if not (head.any() or tail.any()):
            break
    return begin, end


def _shapes(every: _Messages) -> _Shapes:
    count, text = len(every.numbers), every.text
    first, last = text.data[text.line_begin], text.data[text.line_end - 1]
    is_lines, blank = np.ones(count, np.bool_), np.ones(count, np.bool_)
    blank[text.line_parent] = False
    is_lines[text.line_parent[(first != ord("{")) | (last != ord("}"))]] = False
    is_array, begins = np.zeros(count, np.bool_), is_lines
    if not is_lines.all():
        is_array = _are_arrays(text, first, last, count)
        begins = np.ones(count, np.bool_)
        begins[text.line_parent[first != ord("{")]] = False
        is_first = np.diff(text.line_parent, prepend=-1) > 0
        begins[text.line_parent[is_first & (first == ord("["))]] = True
    good = ~(_need_plain(every.values, text.data) | blank)
    is_array &= ~is_lines
    is_deep = np.zeros(count, np.bool_)
    is_deep[text.line_parent[_perhaps_deep(text)]] = True
    good &= is_array | ~is_deep
    return _Shapes(
        np.flatnonzero(is_lines & good),
        np.flatnonzero(is_array & good),
        np.flatnonzero(begins & ~(is_lines | is_array) & good),
        np.flatnonzero(~(begins & good) & ~blank),
    )


def _perhaps_deep(text: _Text) -> Rows:
    """Returns the lines with more than DEPTH_MAX opening brackets, which may be nested deeper than the decoder reads."""
    long = np.flatnonzero(text.line_end - text.line_begin > 2 * DEPTH_MAX)  # each bracket has another one that closes it
    if not len(long):
        return long
    places = np.flatnonzero((text.data == ord("{")) | (text.data == ord("[")))
    count = np.searchsorted(places, text.line_end[long]) - np.searchsorted(places, text.line_begin[long])
    return long[count > DEPTH_MAX]


def _are_arrays(text: _Text, first: _Bytes, last: _Bytes, count: int) -> _Bools:
    """Whether each message is enclosed by a pair of square brackets and has no other square bracket. `first`, `last`: the first and
    last byte of each line; `count`: the number of messages."""
    once = np.ones(count, np.bool_)
    for letter in "[]":
        places = np.flatnonzero(text.data == ord(letter))
        once &= np.bincount(np.searchsorted(text.end, places), minlength=count) == 1
    parents, begin = np.unique(text.line_parent, return_index=True)
    until = np.append(begin[1:], len(text.line_parent)) - 1
    found = np.zeros(count, np.bool_)
    found[parents] = (first[begin] == ord("[")) & (last[until] == ord("]"))
    enclosed: _Bools = found & once
    return enclosed


def _need_plain(values: pa.Array, data: _Bytes) -> _Bools:
    """Whether each message has content that must not be passed to Arrow's parser: special numbers, zero bytes, or bytes that are
    not UTF-8."""
    special = np.zeros(len(values), np.bool_)
    for word in _PLAIN_ONLY:
        if _occurs(word, data):
            special |= np.array([word in (value or b"") for value in values.to_pylist()], np.bool_)
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        special |= np.array([not is_utf8(value) for value in values.to_pylist()], np.bool_)
    return special


def _occurs(word: bytes, data: _Bytes) -> bool:
    places = np.flatnonzero(data[: len(data) - len(word) + 1] == word[0])
    for offset, letter in enumerate(word[1:], 1):
        places = places[data[places + offset] == letter]
    return len(places) > 0


def _read_lines(given: _Messages, schema: Schema, found: _Found) -> Rows:
    parents, wanted = given.text.line_parent, _wanted(schema, given.values)
    table = _parsed(pa.py_buffer(given.text.data), wanted.arrow, parents)
    if table.num_rows != len(parents):
        raise _Refused
    columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
    rows, wrong, odd = _rows(columns, parents, given.numbers, schema, wanted)
    return _judged(rows, wrong, odd, given.text.lines, found)


def _read_arrays(given: _Messages, schema: Schema, found: _Found) -> Rows:
    values, wanted = given.values, _wanted(schema, given.values)
    member = b'{"' + _LIST.encode() + b'":'
    texts = pc.binary_join_element_wise(pa.scalar(member), values, pa.scalar(b"}"), pa.scalar(b""))
    form = pa.schema([(_LIST, pa.list_(pa.struct(list(wanted.arrow))))])
    table = _parsed(joined(texts), form, None)
    if table.num_rows != len(values):
        raise _Refused
    lists = table.column(_LIST).combine_chunks()
    events = lists.flatten()
    if lists.null_count or events.null_count:
        raise _Refused
    counts = pc.list_value_length(lists).to_numpy()
    parents = np.repeat(np.arange(len(values), dtype=np.int64), counts)
    columns = {field.name: events.field(number) for number, field in enumerate(wanted.arrow)}
    rows, wrong, odd = _rows(columns, parents, given.numbers, schema, wanted)
    odd = np.append(odd, np.flatnonzero(_perhaps_deep_arrays(given.text, counts)[parents]))

    def shown(at: Rows) -> pa.Array:
        begin, end = array_objects(given.text.texts()[0])
        return strings_of(given.text.data, begin[at], end[at])

    return _judged(rows, wrong, odd, shown, found)


def _perhaps_deep_arrays(text: _Text, events: Rows) -> _Bools:
    """Whether each array may be nested deeper than the decoder reads, judged by its opening braces minus one per event. `events`:
    the number of events of each array."""
    is_open = text.data == ord("{")
    if np.count_nonzero(is_open) - events.sum() < DEPTH_MAX:
        return np.zeros(len(events), np.bool_)
    found: _Bools = np.diff(np.searchsorted(np.flatnonzero(is_open), text.end), prepend=0) - events >= DEPTH_MAX
    return found


def _judged(rows: DecodedRows, wrong: WrongTexts, odd: Rows, shown: Callable[[Rows], pa.Array], found: _Found) -> Rows:
    """Adds the good and the bad rows to `found`. `shown` returns the original texts of rows. Messages with a row in `odd` are left
    undecoded: none of their rows is added, and their numbers are returned."""
    if not len(odd) and not wrong.refused.any():
        found.add(rows, NO_BAD_ROWS)
        return rows.message[:0]
    left = np.unique(rows.message[odd])
    is_left = np.isin(rows.message, left)
    at = np.flatnonzero(wrong.refused & ~is_left)
    bad = wrong.bad_rows(rows, at, shown(at)) if len(at) else NO_BAD_ROWS
    found.add(kept_rows(rows, ~(wrong.refused | is_left)), bad)
    return left


def _parsed(raw: pa.Buffer, schema: pa.Schema, parents: Rows | None) -> pa.Table:
    """Parses JSON with Arrow; returns the rows as a table. `parents`: the message of each row; None if each row is a message.
    Raises `_Refused` if Arrow's parser refuses the text."""
    try:
        return pj.read_json(
            pa.BufferReader(raw),
            read_options=pj.ReadOptions(use_threads=False, block_size=raw.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid as error:
        found = _ROW.search(str(error)[-100:])
        row = int(found.group(1)) if found is not None else -1
        if parents is not None:
            row = int(parents[row]) if 0 <= row < len(parents) else -1
        raise _Refused(row) from None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The columns that Arrow's parser must read. `as_text`: fields read as strings and parsed afterwards. `as_number`: members that
    must be strings but are numbers in the examples, so that their events are refused."""

    arrow: pa.Schema
    as_text: frozenset[str]
    as_number: frozenset[str]


def _wanted(schema: Schema, values: pa.Array) -> _Wanted:
    """Returns the columns to read, each as number or string, as about `_EXAMPLES` of the messages write it. Arrow's parser refuses
    a message that differs."""
    step = max(1, len(values) // _EXAMPLES)
    examples = values.take(pa.array(range(0, len(values), step))).to_pylist()
    strings, numbers = (frozenset[str]().union(*kind) for kind in zip(*map(kinds_written, examples), strict=True))
    takes = zip(names_wanted(schema), takes_numbers(schema), strict=True)
    as_number = frozenset(name for name, takes_number in takes if not takes_number) & numbers - strings
    types = dict.fromkeys(meta_names(schema), pa.string())
    as_text = set()
    for field in schema.fields:
        if field.type in NO_NUMBERS or field.name in strings:
            as_text.add(field.name)
            types[field.name] = pa.string()
        else:
            types[field.name] = pa.int64() if field.type in TIME_TYPES else ARROW_TYPE[field.type]
    types |= dict.fromkeys(as_number, pa.float64())
    if EVENT_MEMBER not in schema.index:
        types[EVENT_MEMBER] = pa.struct([])
    return _Wanted(pa.schema(list(types.items())), frozenset(as_text), as_number)


def _numbers(columns: Mapping[str, pa.Array], schema: Schema, wanted: _Wanted) -> tuple[Refusals, Rows]:
    """Finds rows in which a member is a number but must be a string. Returns their refusals, and the indexes of rows with more than
    one such member."""
    causes = [(place, name) for place, name in enumerate(names_wanted(schema)) if name in wanted.as_number]
    if not causes:
        return NOTHING_REFUSED, _NO_ROWS
    at = [true_rows(columns[name].is_valid()) for _, name in causes]
    rows, first, count = np.unique(np.concatenate(at), return_index=True, return_counts=True)
    cause = np.repeat(np.arange(len(at)), [len(each) for each in at])[first]
    return Refusals.from_causes(rows, cause, [wrong_kind(place, name, "a number") for place, name in causes]), rows[count > 1]


def _rows(
    columns: Mapping[str, pa.Array], parents: Rows, messages: Rows, schema: Schema, wanted: _Wanted
) -> tuple[DecodedRows, WrongTexts, Rows]:
    """Turns columns of raw values into events. Returns the events, the rows with wrong texts, and the rows that only the plain
    decoder can judge. `parents`: the message of each row, as an index of `messages`."""
    odd: list[Rows] = []
    if EVENT_MEMBER in columns and EVENT_MEMBER not in schema.index:
        odd.append(true_rows(columns[EVENT_MEMBER].is_valid()))
    refused, several = _numbers(columns, schema, wanted)
    odd.append(several)
    columns = {**columns, **dict.fromkeys(wanted.as_number, pa.nulls(len(parents), pa.string()))}
    wrong = WrongTexts(len(parents))
    wrong.begin(refused)
    opcode, flags = (columns[name] for name in meta_names(schema))
    opcodes, all_flags = wrong.opcodes(_otherwise(opcode, "i")), wrong.flags(_otherwise(flags, "n"))
    values: list[pa.Array] = []
    for field in schema.fields:
        column = columns[field.name]
        if field.name in wanted.as_text:
            column = wrong.values(column, field)
        elif field.type is FieldType.MONEY:
            odd.append(true_rows(pc.greater_equal(pc.abs(column), _MONEY_LIMIT)))
        elif field.type is FieldType.DOUBLE:
            odd.append(true_rows(pc.is_inf(column)))  # Arrow's parser reads a too large number as infinite
        values.append(column.cast(ARROW_TYPE[field.type]))
    rows = DecodedRows(messages[parents], numbered(parents), opcodes, all_flags, values)
    return rows, wrong, np.concatenate([_NO_ROWS, *odd])


def _otherwise(column: pa.Array, word: str) -> pa.Array:
    return column.fill_null(word) if column.null_count else column
