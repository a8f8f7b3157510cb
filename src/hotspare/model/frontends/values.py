"""Reads the small texts that every front end shares: schemas, retention, enumerations, edges (SPEC A6, A14, A19, A35)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from hotspare.base.errors import Place, UsageError
from hotspare.model.durations import parse_duration, parse_unit
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import did_you_mean, one_of
from hotspare.model.project import EVERY_SLOT, Eviction, IndexType, Project, Retention, RetentionKind, WindowId
from hotspare.model.quality import Quality, parse_quality
from hotspare.model.types import FIELDS_MAX, Field, FieldType, KeyRole, Schema

TEXT_BYTES_MAX = 16 * 1024 * 1024
"""Limit on the bytes of a project's text."""

INDEX_TYPES: dict[str, IndexType] = {i.value: i for i in IndexType}
FIELD_TYPES: dict[str, FieldType] = {t.value: t for t in FieldType}
TYPE_ALIASES: dict[str, FieldType] = {
    **dict.fromkeys(("float", "float64", "real"), FieldType.DOUBLE),
    **dict.fromkeys(("str", "text", "varchar"), FieldType.STRING),
    **dict.fromkeys(("timestamp", "datetime"), FieldType.STAMP),
    **dict.fromkeys(("long", "bigint"), FieldType.INT64),
    "bytes": FieldType.BLOB,
}
"""Type names of other systems, in lower case, each with the only field type that it can mean."""
_TYPE_HINTS = {
    **dict.fromkeys(("int", "integer"), "write int64, or int32 for 32 bits"),
    **dict.fromkeys(("bool", "boolean"), "write int32, with 1 for true and 0 for false"),
    **dict.fromkeys(("decimal", "numeric"), "write money for 4 decimals, or double"),
    **{name: did_you_mean(type_.value, [type_.value]) for name, type_ in TYPE_ALIASES.items()},
}
"""The hints for type names of other systems, in lower case."""
RETENTION_KINDS: dict[str, RetentionKind] = {k.value: k for k in RetentionKind}
EVICTIONS = {eviction.value: eviction for eviction in Eviction}

_NO_ALIASES: Mapping[str, FieldType] = {}
_ARRAY = re.compile(r"array\s*\(\s*\w+\s*\)")
_COUNT = re.compile(r"[0-9]{1,18}")

V = TypeVar("V")


@dataclass(frozen=True)
class FrontEndResult:
    """A front end's result for a text. `projects`: as far as they could be read; `unreadable`: for each project, its windows that
    could not be read."""

    projects: tuple[Project, ...]
    unreadable: tuple[frozenset[WindowId], ...]
    found: Mistakes


def parse_option(text: str, options: Mapping[str, V], what: str, place: Place, found: Mistakes) -> V | None:
    """Returns the option that `text` names; None after adding a mistake, whose message begins with `what`."""
    value = options.get(text.strip())
    if value is None:
        found.add(place, f"{what} {text.strip()!r} does not exist", did_you_mean(text, options) or one_of(options))
    return value


def parse_duration_or_default(text: str, what: str, default_us: int, place: Place, found: Mistakes) -> int:
    """Returns the microseconds of a duration; `default_us` if the text is blank, and after a mistake. `what` begins the message."""
    if not text.strip():
        return default_us
    try:
        return parse_duration(text)
    except ValueError as error:
        found.add(place, f"{what}: {error}", "write a number and a unit, such as 10 seconds")
        return default_us


def parse_slot(text: str, place: Place, found: Mistakes) -> int:
    """Returns the slot of an edge; EVERY_SLOT if the text is blank, and after a mistake."""
    written = text.strip()
    if written in ("", str(EVERY_SLOT)):
        return EVERY_SLOT
    if _COUNT.fullmatch(written):
        return int(written)
    found.add(place, f"slot {written!r} of an edge is not a whole number", f"write one from 0 on, or {EVERY_SLOT} for every event")
    return EVERY_SLOT


def field_type(
    text: str, name: str, place: Place, found: Mistakes, aliases: Mapping[str, FieldType] = _NO_ALIASES
) -> FieldType | None:
    """Returns the type that `text` names, directly or by `aliases`. For an unknown name adds a mistake and returns `found.assumed`,
    which may be None."""
    written = "".join(text.split()) if _ARRAY.fullmatch(text.strip()) else text.strip()
    word = written.lower()
    if written not in FIELD_TYPES and word in aliases:
        return aliases[word]
    if written in FIELD_TYPES:
        return FIELD_TYPES[written]
    hint = _TYPE_HINTS.get(word) or did_you_mean(written, FIELD_TYPES) or one_of(FIELD_TYPES)
    found.add(place, f"type of field {name}: {written!r} does not exist", hint)
    found.has_unread_type = True
    return found.assumed


def parse_schema(text: str, place: Place, found: Mistakes, aliases: Mapping[str, FieldType] = _NO_ALIASES) -> Schema | None:
    """Returns the schema of the short form `id*:int64,x:double`; None after a mistake. `field_type` reads the types, so an unknown
    type may be replaced by the assumed one."""
    fields: list[Field] = []
    whole = True
    parts = text.split(",")
    if len(parts) > FIELDS_MAX:
        found.add(place, f"a schema has {len(parts)} fields; the limit is {FIELDS_MAX}", "use fewer fields")
        return None
    for part in parts:
        name, colon, type_text = (piece.strip() for piece in part.partition(":"))
        key = name.endswith("*")
        name = name.removesuffix("*").strip()
        if not colon or not name:
            found.add(place, f"schema field {part.strip()!r} is not name:type", "write fields as id*:int64,x:double")
            whole = False
            continue
        type_ = field_type(type_text, name, place, found, aliases)
        if type_ is None:
            whole = False
            continue
        fields.append(Field(name, type_, KeyRole.KEY if key else KeyRole.VALUE))
    return Schema(tuple(fields)) if whole else None


def parse_retention(
    kind: RetentionKind, limit_text: str, time_field: str, unit_text: str, by: tuple[str, ...], place: Place, found: Mistakes
) -> Retention | None:
    """Returns the retention; None after a mistake. `time_field` and `unit_text` are "" and `by` is empty if the text has none."""
    try:
        unit_us = parse_unit(unit_text) if unit_text.strip() else 0
        limit = _count(limit_text) if kind.is_by_count else parse_duration(limit_text)
    except ValueError as error:
        hint = "write a number of events" if kind.is_by_count else "write a number and a unit, such as 30 minutes"
        found.add(place, f"retention {kind.value}: {error}", hint)
        return None
    return Retention(kind, limit, time_field.strip(), unit_us, by, place=place)


def with_eviction(retention: Retention | None, text: str, default: Eviction, found: Mistakes) -> Retention | None:
    """Returns the retention with the eviction that `text` names, `default` if it is "". Retention by system time, and one with an
    unknown eviction, is returned unchanged. None only if `retention` is None."""
    if retention is None:
        return None
    if text and not retention.is_by_events:
        message = f"retention {retention.kind.value} uses system time, which evicts at heartbeats and not by events"
        found.add(retention.place, message, "leave `evict` out")
    eviction = parse_option(text, EVICTIONS, "evict:", retention.place, found) if text else default
    return replace(retention, eviction=eviction) if eviction is not None and retention.is_by_events else retention


def read_quality(text: str, place: Place, found: Mistakes) -> Quality | None:
    """Returns the quality that `text` names; None after a mistake."""
    try:
        return parse_quality(text)
    except UsageError as error:
        found.add(place, error.in_one_line, error.hint)
        return None


def read_pulse(text: str, place: Place, found: Mistakes) -> int:
    """Returns the microseconds between two pulses; 0 after a mistake."""
    try:
        return parse_duration(text)
    except ValueError as error:
        found.add(place, f"pulse interval: {error}", "write a number and a unit, such as 5 seconds")
        return 0


def read_text_bytes_max(text: str, place: Place, found: Mistakes) -> int:
    """Returns the limit in bytes; 0 if the text is "", and after a mistake."""
    if not text:
        return 0
    if text.isascii() and text.isdigit() and 0 < len(text) < 10 and int(text):
        return int(text)
    found.add(place, f"{text!r} is not a maximum size of computed strings in bytes", "write a positive number, such as 1024")
    return 0


def _count(text: str) -> int:
    if not _COUNT.fullmatch(text.strip()):
        raise ValueError(f"{text.strip()!r} is not a number of events")
    return int(text)


_BLANK_LINES = re.compile(r"\A(?:[ \t\r]*\n)+")


def property_value(text: str) -> str:
    """Returns a value without the line breaks that only lay out the text. Other blanks may have a meaning (a delimiter, or the
    indentation of the first of several lines).
    """
    if not (text.startswith("\n") or text.endswith("\n")):
        return text
    bare = text.strip()
    return _BLANK_LINES.sub("", text.rstrip(), count=1) if "\n" in bare else bare
