"""Decodes JSON messages to events one by one, in plain Python. Defines the meaning of JSON input, and the sentences for invalid
input.

A message is objects one after another, commonly one per line, or in arrays (`json.cutting`). Members named as fields are the
fields. `opcode` and `flags` (`hs:opcode`, `hs:flags` if fields have these names) default to insert and normal. An object may
instead hold its fields in a member `event`; if a field has this name, an object there is refused, because it could be either. Other
members are ignored; a known member that occurs twice makes the event bad.

A number or string is read as its text would be in CSV (`rows.values.parse`), so numbers stay exact. A string field takes a string,
or an object or array as its text, byte for byte. An array field takes an array of numbers, nulls and strings, or its text.
`json.decode` does the same for whole batches at once. Adapters use `cut_events`, `has_field` and `texts_of_event` for events that
they publish, so that they read events in the same way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from hotspare.formats.csv.decode import DecodedRows, WrongTexts, kept_rows
from hotspare.formats.json.cutting import TextEnd, event_begin, event_end
from hotspare.model.types import FieldType, Schema
from hotspare.rows.arrays import ELEMENT
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, NO_BAD_ROWS, BadRows, Refusals

EVENT_MEMBER = "event"
OWN_PREFIX = "hs:"
"""The prefix of members that outputs have in addition to the fields (`json.rows`). No field name has it."""
DEPTH_MAX = 100
"""Limit on the nesting of objects and arrays."""
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)
"""Matches a string or a bracket. An unclosed string extends to the end of the text, so that each character is matched only once in
any message."""
_PART_OF_ARRAY = re.compile(r"[^;\[\]]*")
_STRING_OF_LINE = re.compile(rb'"(?:[^"\\\n]++|\\.)*+"')
_GAP = re.compile(r"[ \t\r\n]*")
_NO_NUMBERS = (FieldType.STRING, FieldType.BLOB, *ELEMENT)
"""Field types whose values cannot be written as a JSON number."""
KINDS = ("null", "true or false", "a number", "a string", "an object", "an array")
"""The kinds of JSON values, as sentences name them."""
WRONG_ENVELOPE = "member event is not an object, or is repeated"


class _Number(str):
    """The text of a JSON number, as written."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object in order, repeated ones included."""

    __slots__ = ()


_DECODER = json.JSONDecoder(object_pairs_hook=_Members, parse_float=_Number, parse_int=_Number, parse_constant=_Number)


def meta_names(schema: Schema) -> tuple[str, str]:
    """Returns the member names of opcode and flags: `opcode` and `flags`, with the prefix `hs:` if a field has that name."""
    names = schema.index
    return "hs:opcode" if "opcode" in names else "opcode", "hs:flags" if "flags" in names else "flags"


def names_wanted(schema: Schema) -> list[str]:
    """Returns the names of the known members: opcode, flags, then the fields. An index in this list is the place of a member."""
    return [*meta_names(schema), *schema.names]


def takes_numbers(schema: Schema) -> list[bool]:
    """Whether each known member, in the order of `names_wanted`, may be a JSON number."""
    return [False, False, *(field.type not in _NO_NUMBERS for field in schema.fields)]


def wrong_kind(place: int, name: str, kind: str) -> tuple[RowReason, str]:
    """Returns the reason and the sentence for a bad row whose member `name` has a value of a wrong kind. `place`: as in
    `names_wanted`."""
    reason = (RowReason.OPCODE, RowReason.FLAG)[place] if place < 2 else RowReason.FIELD_TYPE
    return reason, f"{kind} cannot be the value of {name}"


def comes_twice(name: str) -> tuple[RowReason, str]:
    """Returns the reason and the sentence for a bad row that has several members `name`."""
    return RowReason.FORMAT, f"member {name} comes twice"


def not_unicode(name: str) -> tuple[RowReason, str]:
    """Returns the reason and the sentence for a bad row whose member `name` has half of a surrogate pair."""
    return RowReason.UTF8, f"the value of {name} is not Unicode"


@dataclass(slots=True)
class _Items:
    """The objects found: for each its message, its index in the message, its members and its text."""

    message: list[int]
    index: list[int]
    members: list[_Members]
    text: list[str]


def decode_plainly(values: Sequence[bytes | None], messages: Sequence[int], schema: Schema) -> tuple[DecodedRows | None, BadRows]:
    """Decodes messages one by one. Returns the events (None without any) and the bad rows. `messages`: the message number of each
    value."""
    found = _Items([], [], [], [])
    bad: list[tuple[int, int, str, str, str]] = []
    for value, message in zip(values, messages, strict=True):
        for index, item in enumerate(_items(value or b"")):
            if isinstance(item, _NotAnObject):
                bad.append((message, index, item.reason, item.sentence, item.text[:BAD_TEXT_LENGTH_MAX]))
                continue
            members, text = item
            found.message.append(message)
            found.index.append(index)
            found.members.append(members)
            found.text.append(text)
    rows, refused = _typed(found, schema) if found.members else (None, NO_BAD_ROWS)
    return rows, BadRows.joined([BadRows.from_rows(bad), refused])


@dataclass(frozen=True, slots=True)
class _NotAnObject:
    reason: RowReason
    sentence: str
    text: str


_Object: TypeAlias = tuple[_Members, str]
"""The members of an object, and the object's text."""


def _items(value: bytes) -> Iterator[_Object | _NotAnObject]:
    """Yields the objects and bad rows of a message, in order."""
    for row in _rows(value):
        try:
            text = row.decode()
        except UnicodeDecodeError:
            yield _NotAnObject(RowReason.UTF8, "the event is not UTF-8", row.decode(errors="replace"))
            continue
        item = _parsed(text)
        if isinstance(item, _NotAnObject | _Members):
            yield item if isinstance(item, _NotAnObject) else (item, text)
        else:
            yield _NotAnObject(RowReason.FORMAT, f"{_kind(item)} stands where an object is expected", text)


def _rows(value: bytes) -> Iterator[bytes]:
    """Yields the text of each row of a message (`json.cutting`)."""
    at = event_begin(value, 0)
    while at < len(value):
        end = event_end(value, at, TextEnd.FINAL)
        yield value[at:end].strip()
        at = event_begin(value, end)


def cut_events(value: bytes) -> list[bytes]:
    """Returns the texts of a message's rows, in order. Each text, published as a message, has the same meaning as in `value`."""
    return [event_alone(row) for row in _rows(value)]


def event_alone(text: bytes) -> bytes:
    """Returns a flat object with its line ends replaced, so that it may be a line of a message with other events; any other text
    unchanged."""
    is_flat = b"\n" in text and text.count(b"{") == 1 and b"[" not in text and b'"' not in _STRING_OF_LINE.sub(b"", text)
    if not is_flat:
        return text
    found = list(_items(text))
    return text.replace(b"\n", b" ") if len(found) == 1 and not isinstance(found[0], _NotAnObject) else text


def texts_of_event(text: bytes, schema: Schema) -> list[str | None] | None:
    """Returns the texts of an event's members in the order of `names_wanted`, as CSV writes them. Returns None if `text` is not
    exactly one valid event."""
    found = list(_items(text))
    if len(found) != 1 or isinstance(found[0], _NotAnObject):
        return None
    columns = _Columns(1, schema)
    columns.fill_row(0, *found[0])
    return None if columns.refused else [texts[0] for texts in columns.texts]


def has_field(text: bytes, schema: Schema) -> bool | None:
    """Whether any object of a message has a member with the name of a field, at the level where events have their fields. None if
    the message has no object."""
    objects = [item[0] for item in _items(text) if not isinstance(item, _NotAnObject)]
    names = (name for members in objects for name, _ in _event_members(members, schema)[0])
    return any(name in schema.index for name in names) if objects else None


def unknown_members(value: bytes, schema: Schema) -> list[frozenset[str]]:
    """Returns the names of unknown members for each row of a message, in order; the empty set for a row that is not an object."""
    found, known = list[frozenset[str]](), frozenset(names_wanted(schema))
    for item in _items(value):
        members = [] if isinstance(item, _NotAnObject) else _event_members(item[0], schema)[0]
        found.append(frozenset(name for name, _ in members) - known)
    return found


def first_unknown(value: bytes, schema: Schema) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the names of unknown members in a message's first object, and the names of the fields that the object lacks. Both are
    empty if the object cannot be read."""
    try:
        item, _ = _DECODER.raw_decode(value[value.index(b"{") :].decode())
    except (ValueError, RecursionError):
        return frozenset(), frozenset()
    names, known = [name for name, _ in _event_members(item, schema)[0]], frozenset(names_wanted(schema))
    unknown = frozenset(name for name in names if name not in known and not name.startswith(OWN_PREFIX))
    return unknown, frozenset(schema.names) - frozenset(names)


def _parsed(text: str) -> Any:
    """Returns the JSON value of a text; a `_NotAnObject` with the reason if the text is not JSON."""
    if is_deep(text):
        return _NotAnObject(RowReason.FORMAT, f"the text is nested deeper than {DEPTH_MAX}", text)
    try:
        value, end = _DECODER.raw_decode(text)
        if end < len(text):
            _DECODER.raw_decode(text, _behind_gap(text, end))
            return _NotAnObject(RowReason.FORMAT, "the text is not JSON: another value follows the first", text)
    except ValueError as error:
        reason = str(error).partition(": line")[0]
        sentence = "the text is XML that cannot be read" if text.startswith("<") else f"the text is not JSON: {reason}"
        return _NotAnObject(RowReason.FORMAT, sentence, text)
    return value


def refusal_of(text: bytes) -> tuple[RowReason, str]:
    """Returns the reason and the sentence of the first row of `text`, which must not be an object."""
    found = next(_items(text))
    assert isinstance(found, _NotAnObject)
    return found.reason, found.sentence


def _behind_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap is not None else at


def is_deep(text: str) -> bool:
    """Whether objects and arrays are nested deeper than `DEPTH_MAX`."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth > DEPTH_MAX:
            return True
    return False


def _kind(item: Any) -> str:
    types: tuple[type[Any], ...] = (type(None), bool, _Number, str, _Members, list)
    return next(kind for type_, kind in zip(types, KINDS, strict=True) if isinstance(item, type_))


class _Columns:
    """The texts of known members: `texts[place][row]`. `refused[row]`: the reason and the sentence of a bad row."""

    def __init__(self, count: int, schema: Schema) -> None:
        self.names = names_wanted(schema)
        self.place = {name: number for number, name in enumerate(self.names)}
        self.takes_numbers = takes_numbers(schema)
        self.takes_arrays = [False, False, *(field.type.is_array for field in schema.fields)]
        self.takes_nested = [False, False, *(field.type is FieldType.STRING for field in schema.fields)]
        self.texts: list[list[str | None]] = [[None] * count for _ in self.names]
        self.refused: dict[int, tuple[RowReason, str]] = {}
        self._schema = schema

    def fill_row(self, row: int, whole: _Members, text: str) -> None:
        """Sets the texts of a row from an object's members, or records why the row is refused. `text`: the object's text."""
        members, wrong = _event_members(whole, self._schema)
        if wrong:
            self.refused[row] = (RowReason.FORMAT, wrong)
        path = [] if members is whole else [EVENT_MEMBER]
        seen: set[int] = set()
        for name, value in members:
            place = self.place.get(name)
            if place is None:
                continue
            if place in seen:
                self.refused.setdefault(row, comes_twice(name))
            seen.add(place)
            if value is None:
                continue
            if self.takes_arrays[place] and type(value) is list:
                value = _array_text(value)
            elif self.takes_nested[place] and isinstance(value, list) and not _may_be_event(name, value):
                value = _value_text(text, [*path, name])
            if not isinstance(value, str) or (isinstance(value, _Number) and not self.takes_numbers[place]):
                self.refused.setdefault(row, wrong_kind(place, name, _kind(value)))
            elif not is_unicode(value):
                self.refused.setdefault(row, not_unicode(name))
            else:
                self.texts[place][row] = value


def _array_text(items: list[Any]) -> str | list[Any]:
    """Returns the text of an array field as in CSV; returns the items unchanged if one of them is not a number, a string or
    null."""
    if all(item is None or (isinstance(item, str) and _PART_OF_ARRAY.fullmatch(item)) for item in items):
        return f"[{';'.join('null' if item is None else item for item in items)}]"
    return items


def is_unicode(text: str) -> bool:
    """Whether the text contains no unpaired half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _typed(found: _Items, schema: Schema) -> tuple[DecodedRows | None, BadRows]:
    columns = _Columns(len(found.members), schema)
    for row, members in enumerate(found.members):
        columns.fill_row(row, members, found.text[row])
    reasons, sentences = ([str(each[part]) for each in columns.refused.values()] for part in (0, 1))
    refused = Refusals(np.array(list(columns.refused), np.int64), pa.array(reasons, pa.string()), pa.array(sentences, pa.string()))
    texts = [pa.array(each, pa.string()) for each in columns.texts]
    wrong = WrongTexts(len(found.members))
    wrong.begin(refused)
    opcode, flags = wrong.opcodes(texts[0].fill_null("i")), wrong.flags(texts[1].fill_null("n"))
    values = [wrong.values(column, field) for field, column in zip(schema.fields, texts[2:], strict=True)]
    rows = DecodedRows(np.array(found.message, np.int64), np.array(found.index, np.int32), opcode, flags, values)
    at = np.flatnonzero(wrong.refused)
    if not len(at):
        return rows, NO_BAD_ROWS
    shown = pa.array([found.text[row] for row in at.tolist()], pa.string())
    return (kept_rows(rows, ~wrong.refused) if len(at) < len(rows.message) else None), wrong.bad_rows(rows, at, shown)


def _event_members(members: _Members, schema: Schema) -> tuple[_Members, str]:
    """Returns the members to decode, and an error text ("" without error). If the member `event` is an object, the members are
    those of that object, and opcode and flags next to `event`."""
    if EVENT_MEMBER in schema.index:
        return members, ""
    events = [value for name, value in members if name == EVENT_MEMBER and value is not None]
    if not events:
        return members, ""
    if len(events) > 1 or not isinstance(events[0], _Members):
        return members, WRONG_ENVELOPE
    beside = [(name, value) for name, value in members if name in meta_names(schema)]
    return _Members([*beside, *events[0]]), ""


def _may_be_event(name: str, value: Any) -> bool:
    """Whether the member could be the envelope of the complete event: its name is `event` and its value is an object."""
    return name == EVENT_MEMBER and isinstance(value, _Members)


def _value_text(text: str, path: Sequence[str]) -> str:
    """Returns the text of the value at a path of member names in an object's text. Of repeated names, the first value that is not
    null counts."""
    for name in path:
        text = next(value for each, value in _member_texts(text) if each == name and value != "null")
    return text


def _member_texts(text: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the value's text of each member of an object. `text`: the object's text."""
    at = _behind_gap(text, 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, _behind_gap(text, at + (text[at] == ",")))
        begin = _behind_gap(text, _behind_gap(text, at) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        yield name, text[begin:end]
        at = _behind_gap(text, end)
