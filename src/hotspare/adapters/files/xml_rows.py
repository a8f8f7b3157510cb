"""Outputs to XML, an element `<event>` per line, so that what is written can be published again (SPEC I6).

No element stands around them: a file that is cut back and continued has no end.
"""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa

from hotspare.adapters.files.event_fields import FLAGS, OPCODE, VALUE
from hotspare.engine.codec.csv.rows import CsvStyle, value_texts
from hotspare.engine.rows.letters import flag_letters, opcode_letters

_TAG = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_OUTSIDE_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def rows_to_xml(batch: pa.RecordBatch) -> bytes:
    """One element per row of a batch of `engine.rows.batch.output_schema`, each with a line feed. A null has no element.
    Characters that XML cannot hold become U+FFFD."""
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.name.startswith("hs:"):
            begin, end = _tags(field.name)
            columns.append((begin, end, value_texts(column, CsvStyle.EXACT).to_pylist()))
    opcodes = opcode_letters(batch.column("hs:opcode")).to_pylist()
    flags = flag_letters(batch.column("hs:flags")).to_pylist()
    lines = []
    for row in range(batch.num_rows):
        fields = "".join(f"{begin}{_escaped(texts[row])}{end}" for begin, end, texts in columns if texts[row] is not None)
        lines.append(f'<event {OPCODE}="{opcodes[row]}" {FLAGS}="{flags[row]}">{fields}</event>\n')
    return "".join(lines).encode()


def _tags(name: str) -> tuple[str, str]:
    """What stands before and behind a value. A field that is called as what an event says of itself stands in an attribute."""
    if _TAG.fullmatch(name) and name not in (OPCODE, FLAGS, VALUE):
        return f"<{name}>", f"</{name}>"
    return f"<{VALUE} name={quoteattr(name)}>", f"</{VALUE}>"


def _escaped(text: str) -> str:
    return escape(_OUTSIDE_XML.sub("\ufffd", text), {"\r": "&#13;", "\n": "&#10;"})
