"""What one event of a JSON or XML file says: texts by name (SPEC I5). What cannot be read is None, and becomes a bad event."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias
from xml.etree import ElementTree

Fields: TypeAlias = Mapping[str, str | None]
"""The texts of an event's fields; None is null. Opcode and flags stand under their own names."""

OPCODE, FLAGS, VALUE = "opcode", "flags", "value"
_EVENT = "event"
_OPCODE_WORDS = {"insert": "i", "update": "u", "upsert": "p", "delete": "d", "safedelete": "s"}


def json_fields(text: bytes) -> Fields | None:
    """Members of an object; of its member `event`, where that is an object, with what stands beside it."""
    try:
        found = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if isinstance(found.get(_EVENT), dict):
        found = {**{name: found[name] for name in (OPCODE, FLAGS) if name in found}, **found[_EVENT]}
    return {name: _json_text(value) for name, value in found.items()}


def _json_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and all(item is None or isinstance(item, str) for item in value):
        return "[" + ";".join("null" if item is None else item for item in value) + "]"
    return json.dumps(value)


def xml_fields(text: bytes) -> Fields | None:
    """Child elements by their tags, or `<value name=...>`; one that is `<x/>` or empty is null. The opcode is a child or an
    attribute. The text begins with the element, so nothing in it can declare entities."""
    try:
        element = ElementTree.fromstring(text.decode())  # noqa: S314 - it can declare nothing
    except (ElementTree.ParseError, UnicodeDecodeError):
        return None
    found: dict[str, str | None] = {name: element.get(name) for name in (OPCODE, FLAGS) if element.get(name)}
    for child in element:
        name = child.get("name") if child.tag == VALUE else None
        found[name or child.tag] = child.text
    return found


def opcode_letter(text: str | None) -> str:
    """The letter of an opcode, which may be written as a word."""
    word = (text or "i").strip().lower()
    return _OPCODE_WORDS.get(word, word)
