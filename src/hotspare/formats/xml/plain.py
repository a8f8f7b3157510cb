"""Converts XML events, elements `<event>`, to JSON events (SPEC I5), which `json.plain` then decodes.

Child elements are members, by their tags or as `<value name="...">`; `<event>` has its opcode and flags as attributes, or as
children if no field has these names. An empty element is null; an element with an empty CDATA section is an empty text. The
attribute `encoding` marks base64, for a text that XML cannot hold. Elements inside a child are part of the child's text, byte for
byte, as with a nested value in JSON.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from xml.parsers import expat

from hotspare.formats.json.plain import meta_names
from hotspare.model.types import FieldType, Schema

EVENT, OPCODE, FLAGS, VALUE = "event", "opcode", "flags", "value"
ENCODING, BASE64 = "encoding", "base64"
_quoted = json.JSONEncoder().encode
_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_FIELD_DEPTH = 2
_CDATA = b"<![CDATA["


def json_event(text: bytes, schema: Schema) -> bytes | None:
    """Returns an event as a JSON object on one line, with a member for each attribute and child, also for repeated names. Returns
    None if the text cannot be read. `text` must begin with the element `<event>`, so it cannot declare entities."""
    members: list[str] = []
    parser = _parser(text, schema, members)
    try:
        parser.Parse(text, True)  # noqa: FBT003  the text is whole
    except (expat.ExpatError, ValueError):  # ValueError: also for invalid base64
        return None
    finally:
        parser.StartElementHandler = parser.EndElementHandler = None  # they hold the parser
    return f"{{{','.join(members)}}}".encode()


def _parser(text: bytes, schema: Schema, members: list[str]) -> expat.XMLParserType:
    """Returns a parser for one element `<event>`. The parser appends the event's members, in JSON notation and document order, to
    `members`."""
    parser = expat.ParserCreate("UTF-8")
    parser.buffer_text = True
    depth, tag_at, is_nested, name, encoding = 0, 0, False, "", ""
    parts: list[str] = []
    """The pieces of text since the current field's element began."""

    def begin(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth, tag_at, is_nested, name, encoding
        depth += 1
        if depth == _FIELD_DEPTH:
            name = attributes.get("name", tag) if tag == VALUE else tag
            encoding = attributes.get(ENCODING, "")
            tag_at, is_nested = parser.CurrentByteIndex, False
            parts.clear()
        elif depth > _FIELD_DEPTH:
            is_nested = True
        elif attributes:
            members.extend(_of_event(attributes, schema))

    def end(_tag: str) -> None:
        nonlocal depth
        if depth == _FIELD_DEPTH:
            if is_nested:
                value = _nested(text, tag_at, parser.CurrentByteIndex, schema.index.get(name), schema)
            else:
                value = _value(parts, encoding)
            members.append(f"{_quoted(name)}:{value}")
        depth -= 1

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, end, parts.append
    if _CDATA in text:
        parser.StartCdataSectionHandler = lambda: parts.append("")
    return parser


def _of_event(attributes: Mapping[str, str], schema: Schema) -> list[str]:
    """Returns the JSON members for the opcode and flags attributes of `<event>`."""
    names = zip((OPCODE, FLAGS), meta_names(schema), strict=True)
    given = ((member, attributes[each]) for name, member in names for each in (name, f"hs:{name}") if each in attributes)
    return [f"{_quoted(member)}:{_quoted(text)}" for member, text in given]


def _nested(text: bytes, tag_at: int, end: int, place: int | None, schema: Schema) -> str:
    """Returns the content of a field's element as a JSON string, byte for byte. If the field number `place` is not a string field,
    returns an empty object, which `json.plain` refuses as the value of a field."""
    if place is None or schema.fields[place].type is not FieldType.STRING:
        return "{}"
    tag = _TAG.match(text, tag_at)
    return _quoted(text[tag_at if tag is None else tag.end() : end].decode())


def _value(parts: list[str], encoding: str) -> str:
    if not parts:
        return "null"
    text = "".join(parts)
    return _quoted(base64.b64decode(text.strip(), validate=True).decode() if encoding == BASE64 else text)
