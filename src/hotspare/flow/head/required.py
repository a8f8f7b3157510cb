"""Refuses events that lack a field which their source window requires, and names a JSON member that may be the field misspelt.

A field is null if no member of a JSON event has its name, so a misspelt name would make null a value like any other. The check
looks at columns alone; only messages of events that are refused are parsed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from hotspare.formats.csv.decode import DecodedRows
from hotspare.formats.json.plain import unknown_members
from hotspare.model.events import Flag, Opcode
from hotspare.model.names import nearest_name
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import FORM_MASK, MessageFormat
from hotspare.rows.elementwise import true_rows
from hotspare.rows.refusals import NOTHING_REFUSED, Refusals

_NAMES_MAX = 100
"""An event with more unknown members gets no hint: every engine would compare each of them."""
_WITH_VALUES = [int(Opcode.INSERT), int(Opcode.UPDATE), int(Opcode.UPSERT)]


def lacking(rows: DecodedRows, raw: pa.RecordBatch, schema: Schema, required: Sequence[int]) -> Refusals:
    """Returns the refusals of events in which one of the fields at the places `required` is null; each names the first of these.

    Deletes and partial updates need not have other fields than the key, so none of them is refused. The messages of `rows` are
    rows of `raw`, which may lack the column `value`.
    """
    first = np.full(len(rows.message), -1, np.int64)
    for place in reversed(required):
        if rows.columns[place].null_count:
            first[true_rows(rows.columns[place].is_null())] = place
    if not (first >= 0).any():
        return NOTHING_REFUSED
    has_values = np.isin(rows.opcode, _WITH_VALUES) & ((rows.flags & np.uint8(Flag.PARTIAL)) == 0)
    refused = np.flatnonzero((first >= 0) & has_values)
    fields = [schema.names[place] for place in first[refused].tolist()]
    sentences = [f"the required field {field} is null" for field in fields]
    if "value" in raw.schema.names:
        hints = _hints(raw, rows.message[refused].tolist(), rows.index[refused].tolist(), fields, schema)
        sentences = [sentence + hint for sentence, hint in zip(sentences, hints, strict=True)]
    causes = {sentence: number for number, sentence in enumerate(dict.fromkeys(sentences))}
    cause = np.array([causes[sentence] for sentence in sentences], np.int64)
    return Refusals.of(refused, cause, [(BadReason.REQUIRED, sentence) for sentence in causes])


def _hints(
    raw: pa.RecordBatch, messages: Sequence[int], places: Sequence[int], fields: Sequence[str], schema: Schema
) -> Iterator[str]:
    """Yields for each event, at a place in one of the messages, a hint at the unknown member whose name is near that of the field;
    "" if there is none."""
    parsed, unknown = -1, list[frozenset[str]]()
    for message, place, field in zip(messages, places, fields, strict=True):
        if message != parsed:
            parsed, is_json = message, raw.column("format")[message].as_py() & FORM_MASK == MessageFormat.JSON
            unknown = unknown_members(raw.column("value")[message].as_py() or b"", schema) if is_json else []
        names = unknown[place] if place < len(unknown) else frozenset()
        near = nearest_name(field, names) if len(names) <= _NAMES_MAX else ""
        yield f"; unknown member {near!r}: did you mean {field!r}?" if near else ""
