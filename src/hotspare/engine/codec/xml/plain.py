"""XML events to JSON ones (SPEC I5): what an element `<event>` says, in the words of `json.plain`, which judges it.

Child elements are members, by their tags or as `<value name="...">`; `<event>` has its opcode and flags as attributes, or as
children if no field has these names. An empty element is null, one with an empty CDATA section an empty text. A text that XML
cannot hold is in base64, as its attribute `encoding` says. Elements inside a child are its text, byte for byte, as a nested value
of JSON is.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from xml.parsers import expat

from hotspare.engine.codec.json.plain import meta_names
from hotspare.model.types import FieldType, Schema

EVENT, OPCODE, FLAGS, VALUE = "event", "opcode", "flags", "value"
ENCODING, BASE64 = "encoding", "base64"
_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_FIELD_DEPTH = 2


def json_event(text: bytes, schema: Schema) -> bytes | None:
    """Returns a JSON object on one line with all that the element says, a member for each child, also if two have one name; None if
    the text is not an element that can be read. Nothing in it can declare an entity, because it begins with the element."""
    element = _Element(text, schema)
    try:
        element.parser.Parse(text, True)  # noqa: FBT003  the text is whole
    except (expat.ExpatError, ValueError):  # also of what is no base64
        return None
    return f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in element.members)}}}".encode()


class _Element:
    """Gathers the members of one element as the parser meets them: names, and values in JSON."""

    def __init__(self, text: bytes, schema: Schema) -> None:
        self.members: list[tuple[str, str]] = []
        self.parser = expat.ParserCreate("UTF-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add
        self.parser.StartCdataSectionHandler = lambda: self._add("")
        self._text = text
        self._schema = schema
        self._depth = 0
        self._name = ""
        self._encoding = ""
        self._parts: list[str] = []
        self._content_at = 0
        self._is_nested = False

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            for name, member in zip((OPCODE, FLAGS), meta_names(self._schema), strict=True):
                self.members += [(member, json.dumps(attributes[each])) for each in (name, f"hs:{name}") if each in attributes]
        elif self._depth == _FIELD_DEPTH:
            self._name = attributes.get("name", tag) if tag == VALUE else tag
            self._encoding = attributes.get(ENCODING, "")
            self._parts, self._is_nested = [], False
            at = self.parser.CurrentByteIndex
            tag_text = _TAG.match(self._text, at)
            self._content_at = at if tag_text is None else tag_text.end()
        else:
            self._is_nested = True

    def _add(self, text: str) -> None:
        if self._depth == _FIELD_DEPTH:
            self._parts.append(text)

    def _end(self, _tag: str) -> None:
        if self._depth == _FIELD_DEPTH:
            self.members.append((self._name, self._value()))
        self._depth -= 1

    def _value(self) -> str:
        if self._is_nested:
            place = self._schema.index.get(self._name)
            is_text = place is not None and self._schema.fields[place].type is FieldType.STRING
            return json.dumps(self._text[self._content_at : self.parser.CurrentByteIndex].decode()) if is_text else "{}"
        if not self._parts:
            return "null"
        text = "".join(self._parts)
        if self._encoding == BASE64:
            text = base64.b64decode(text.strip(), validate=True).decode()
        return json.dumps(text)
