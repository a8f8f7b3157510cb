"""JSON messages to events one by one, in plain Python: what JSON input means, and what is said of input that is none.

A message is an array of objects, or objects one after another, commonly one per line. Members with the names of fields are the
fields; `opcode` and `flags` (`hs:opcode`, `hs:flags` where fields have these names) are what they say, by default insert and
normal. An object may instead hold its fields in a member `event`, where no field has this name. Other members are ignored; a
member of ours that comes twice makes the event bad. A number or string is read as its text would be in CSV
(`engine.rows.values.parse`), so numbers stay exact; a string field takes strings only, and an array field an array of numbers,
nulls and strings, or its text. `json.decode` does the same for whole batches at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.engine.codec.csv.decode import DecodedRows, WrongTexts, kept_rows
from hotspare.engine.rows.arrays import ELEMENT
from hotspare.engine.rows.bad_reasons import RowReason
from hotspare.engine.rows.elementwise import Rows
from hotspare.engine.rows.refusals import BAD_TEXT_LENGTH_MAX, NO_BAD_ROWS, BadRows, Refusals
from hotspare.model.types import FieldType, Schema

EVENT_MEMBER = "event"
DEPTH_MAX = 100
"""Limit on objects and arrays inside each other, where a message has to be read plainly."""
_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)
"""A text or a bracket. A text that nobody closes goes on to the end: each letter is looked at once, whatever the message holds."""
_PART_OF_ARRAY = re.compile(r"[^;\[\]]*")
_BLANK = " \t\r\n"
_GAP = re.compile(r"[ \t\r\n]*")
NO_NUMBERS = (FieldType.STRING, FieldType.BLOB, *ELEMENT)
"""Types of fields of which no number is a value."""


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """An object: its members in order, also those that come twice."""

    __slots__ = ()


_DECODER = json.JSONDecoder(object_pairs_hook=_Members, parse_float=_Number, parse_int=_Number, parse_constant=_Number)


def meta_names(schema: Schema) -> tuple[str, str]:
    """What the members of opcode and flags are called beside these fields."""
    names = schema.index
    return "hs:opcode" if "opcode" in names else "opcode", "hs:flags" if "flags" in names else "flags"


def names_wanted(schema: Schema) -> list[str]:
    """The members that count, by place: opcode, flags, the fields."""
    return [*meta_names(schema), *schema.names]


def takes_numbers(schema: Schema) -> list[bool]:
    """By place, whether a number may stand there."""
    return [False, False, *(field.type not in NO_NUMBERS for field in schema.fields)]


def wrong_kind(place: int, name: str, kind: str) -> tuple[RowReason, str]:
    """Why a value of that kind cannot stand there."""
    reason = (RowReason.OPCODE, RowReason.FLAG)[place] if place < 2 else RowReason.FIELD_TYPE
    return reason, f"{kind} cannot be the value of {name}"


def not_unicode(name: str) -> tuple[RowReason, str]:
    """Why a text with half of a surrogate pair cannot."""
    return RowReason.UTF8, f"the value of {name} is not Unicode"


@dataclass(slots=True)
class _Items:
    """Objects found, with the message, the index and the text of each."""

    message: list[int]
    index: list[int]
    members: list[_Members]
    text: list[str]


def decode_plainly(values: Sequence[bytes | None], messages: Sequence[int], schema: Schema) -> tuple[DecodedRows | None, BadRows]:
    """Events of messages whose numbers are given, and what cannot be read, each with its index in the message."""
    found = _Items([], [], [], [])
    bad: list[tuple[int, int, str, str, str]] = []
    for value, message in zip(values, messages, strict=True):
        for index, item in enumerate(_items(value or b"")):
            if isinstance(item, _NoObject):
                bad.append((message, index, item.reason, item.sentence, item.text[:BAD_TEXT_LENGTH_MAX]))
                continue
            members, text = item
            found.message.append(message)
            found.index.append(index)
            found.members.append(members)
            found.text.append(text)
    if not found.members:
        return None, BadRows.of(bad)
    rows, refused = _typed(found, schema)
    return rows, BadRows.joined([BadRows.of(bad), refused])


@dataclass(frozen=True, slots=True)
class _NoObject:
    reason: RowReason
    sentence: str
    text: str


_Object: TypeAlias = tuple[_Members, str]
"""An object and its text."""
_Document: TypeAlias = tuple[Any, int, int]
"""A value, where it begins and where it ends."""


def _items(value: bytes) -> Iterator[_Object | _NoObject]:
    """What a message holds, in order."""
    try:
        text = value.decode().removeprefix("\ufeff").strip(_BLANK)
    except UnicodeDecodeError:
        yield _NoObject(RowReason.UTF8, "the message is not UTF-8", value.decode(errors="replace"))
        return
    if not text:
        return
    if text.startswith("["):
        yield from _array(text)
        return
    lines = [line for line in (line.strip(_BLANK) for line in text.split("\n")) if line]
    if all(line.startswith("{") for line in lines):
        for line in lines:
            yield from _documents(line)
    else:
        yield from _documents(text)


def _array(text: str) -> Iterator[_Object | _NoObject]:
    items = None if is_deep(text) else _array_items(text)
    if items is None:
        documents = _parsed_documents(text)
        more = _NoObject(RowReason.FORMAT, "more follows after an array", text)
        yield documents if isinstance(documents, _NoObject) else more
        return
    yield from _objects(items, text)


def _array_items(text: str) -> list[_Document] | None:
    """The items of an array that is all of the text; None where it is anything else."""
    items: list[_Document] = []
    at = _behind_gap(text, 1)
    is_open = text[at : at + 1] != "]"
    try:
        while is_open:
            item, end = _DECODER.raw_decode(text, at)
            items.append((item, at, end))
            at = _behind_gap(text, end)
            is_open = text[at : at + 1] == ","
            if is_open:
                at = _behind_gap(text, at + 1)
    except ValueError:
        return None
    return items if text[at:] == "]" else None


def _documents(text: str) -> Iterator[_Object | _NoObject]:
    documents = _parsed_documents(text)
    if isinstance(documents, _NoObject):
        yield documents
        return
    yield from _objects(documents, text)


def _objects(documents: Sequence[_Document], text: str) -> Iterator[_Object | _NoObject]:
    for item, begin, end in documents:
        yield (item, text[begin:end]) if isinstance(item, _Members) else _no_object(item, text)


def _no_object(item: Any, text: str) -> _NoObject:
    return _NoObject(RowReason.FORMAT, f"{_kind(item)} stands where an object is expected", text)


def kinds_written(value: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the members of a message's first object that are strings, and of those that are numbers; none if no object can be
    read."""
    try:
        item, _ = _DECODER.raw_decode(value[value.index(b"{") :].decode())
    except (ValueError, RecursionError):
        return frozenset(), frozenset()
    strings, numbers = (frozenset(name for name, member in item if type(member) is kind) for kind in (str, _Number))
    return strings, numbers


def _parsed_documents(text: str) -> list[_Document] | _NoObject:
    """All documents of a text; or why it is no JSON."""
    if is_deep(text):
        return _NoObject(RowReason.FORMAT, f"the text is nested deeper than {DEPTH_MAX}", text)
    documents = []
    at = 0
    try:
        while at < len(text):
            document, end = _DECODER.raw_decode(text, at)
            documents.append((document, at, end))
            at = _behind_gap(text, end)
    except ValueError as error:
        reason = str(error).partition(": line")[0]
        return _NoObject(RowReason.FORMAT, f"the text is no JSON: {reason}", text)
    return documents


def why_no_json(text: str) -> str:
    """What is said of such a text."""
    found = _parsed_documents(text)
    assert isinstance(found, _NoObject)
    return found.sentence


def _behind_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap is not None else at


def is_deep(text: str) -> bool:
    """Whether objects and arrays stand in each other deeper than `DEPTH_MAX`."""
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return False
    depth = 0
    for match in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth > DEPTH_MAX:
            return True
    return False


def _kind(item: Any) -> str:
    if item is None:
        return "null"
    if isinstance(item, bool):
        return "true or false"
    if isinstance(item, _Number):
        return "a number"
    if isinstance(item, str):
        return "a string"
    return "an object" if isinstance(item, _Members) else "an array"


class _Columns:
    """Texts of the members wanted, one list per column; `refused[row]` says why a row is bad."""

    def __init__(self, count: int, schema: Schema) -> None:
        self.names = names_wanted(schema)
        self.place = {name: number for number, name in enumerate(self.names)}
        self.takes_numbers = takes_numbers(schema)
        self.takes_arrays = [False, False, *(field.type.is_array for field in schema.fields)]
        self.texts: list[list[str | None]] = [[None] * count for _ in self.names]
        self.refused: dict[int, tuple[RowReason, str]] = {}

    def put(self, row: int, members: _Members) -> None:
        seen: set[int] = set()
        for name, value in members:
            place = self.place.get(name)
            if place is None:
                continue
            if place in seen:
                self.refused.setdefault(row, (RowReason.FORMAT, f"member {name} comes twice"))
            seen.add(place)
            if value is None:
                continue
            if self.takes_arrays[place] and type(value) is list:
                value = _array_text(value)
            if not isinstance(value, str) or (isinstance(value, _Number) and not self.takes_numbers[place]):
                self.refused.setdefault(row, wrong_kind(place, name, _kind(value)))
            elif not is_unicode(value):
                self.refused.setdefault(row, not_unicode(name))
            else:
                self.texts[place][row] = value


def _array_text(items: list[Any]) -> str | list[Any]:
    """What would stand in CSV; the items where one of them is no single value."""
    if all(item is None or (isinstance(item, str) and _PART_OF_ARRAY.fullmatch(item)) for item in items):
        return f"[{';'.join('null' if item is None else item for item in items)}]"
    return items


def is_unicode(text: str) -> bool:
    """Whether the text has no half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _typed(found: _Items, schema: Schema) -> tuple[DecodedRows | None, BadRows]:
    columns = _Columns(len(found.members), schema)
    for row, members in enumerate(found.members):
        nested = _event_members(members, schema)
        if isinstance(nested, str):
            columns.refused[row] = (RowReason.FORMAT, nested)
        columns.put(row, nested if isinstance(nested, _Members) else members)
    reasons, sentences = ([str(each[part]) for each in columns.refused.values()] for part in (0, 1))
    refused = Refusals(np.array(list(columns.refused), np.int64), pa.array(reasons, pa.string()), pa.array(sentences, pa.string()))
    arrays = [pa.array(texts, pa.string()) for texts in columns.texts]
    numbers = np.array(found.message, np.int64), np.array(found.index, np.int32)
    return typed(*numbers, arrays, refused, schema, lambda rows: pa.array([found.text[row] for row in rows.tolist()], pa.string()))


def typed(
    message: Rows,
    index: npt.NDArray[np.int32],
    columns: list[pa.Array],
    refused: Refusals,
    schema: Schema,
    shown: Callable[[Rows], pa.Array],
) -> tuple[DecodedRows | None, BadRows]:
    """Events out of texts by place (`names_wanted`), of which some are `refused` already; `shown` gives rows as they came."""
    wrong = WrongTexts(len(message))
    wrong.begin(refused)
    opcode, flags = wrong.opcodes(columns[0].fill_null("i")), wrong.flags(columns[1].fill_null("n"))
    values = [wrong.values(column, field) for field, column in zip(schema.fields, columns[2:], strict=True)]
    rows = DecodedRows(message, index, opcode, flags, values)
    at = np.flatnonzero(wrong.refused)
    if not len(at):
        return rows, NO_BAD_ROWS
    return (kept_rows(rows, ~wrong.refused) if len(at) < len(message) else None), wrong.bad_rows(rows, at, shown(at))


def _event_members(members: _Members, schema: Schema) -> _Members | str:
    """The members that count: those of `event` and what is beside it; or what is wrong."""
    if EVENT_MEMBER in schema.index:
        return members
    events = [value for name, value in members if name == EVENT_MEMBER and value is not None]
    if not events:
        return members
    if len(events) > 1 or not isinstance(events[0], _Members):
        return "member event is no object, or comes twice"
    beside = [(name, value) for name, value in members if name in meta_names(schema)]
    return _Members([*beside, *events[0]])
