"""Encodes outputs as XML, an element `<event>` per line, from which `xml.plain` reads equal events (SPEC I6). No root element
encloses the events, because a file that is truncated and continued has no place for the root's closing tag.
"""

from __future__ import annotations

import base64
import re
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa

from hotspare.formats.csv.rows import CsvStyle, value_texts
from hotspare.formats.xml.plain import BASE64, ENCODING, EVENT, FLAGS, OPCODE, VALUE
from hotspare.rows.letters import flag_letters, opcode_letters

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_OUTSIDE_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def rows_to_xml(batch: pa.RecordBatch) -> bytes:
    """Returns an element `<event>` per row of a batch of `rows.batch.output_schema`, each with a line feed. A null field has no
    element."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.name.startswith("hs:"):
            columns.append((*_tag(field.name), value_texts(column, CsvStyle.EXACT).to_pylist()))
    opcodes = opcode_letters(batch.column("hs:opcode")).to_pylist()
    flags = flag_letters(batch.column("hs:flags")).to_pylist()
    lines = []
    for row in range(batch.num_rows):
        fields = "".join(f"<{begin}{_content(texts[row])}</{end}>" for begin, end, texts in columns if texts[row] is not None)
        lines.append(f'<{EVENT} {OPCODE}="{opcodes[row]}" {FLAGS}="{flags[row]}">{fields}</{EVENT}>\n')
    return "".join(lines).encode()


def _tag(name: str) -> tuple[str, str]:
    """Returns the contents of the opening and the closing tag for the field `name`. If the name is not a valid tag, or is reserved
    for events, the element is `<value name="...">`."""
    if _TAG.fullmatch(name) and name not in (OPCODE, FLAGS, VALUE, EVENT):
        return name, name
    return f"{VALUE} name={quoteattr(name)}", VALUE


def _content(text: str) -> str:
    """Returns the end of the opening tag, and the value. A text that XML cannot hold is written in base64."""
    if _OUTSIDE_XML.search(text) is not None:
        return f' {ENCODING}="{BASE64}">{base64.b64encode(text.encode()).decode()}'
    return ">" + (escape(text, {"\r": "&#13;", "\n": "&#10;"}) or "<![CDATA[]]>")
