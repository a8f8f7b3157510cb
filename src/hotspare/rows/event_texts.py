"""Events as readable text, for bad events: the opcode's letter, then the fields, in CSV without quotes; null is empty."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.arrays import texts_of
from hotspare.rows.chunk import UInt8s
from hotspare.rows.letters import opcode_letters
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, clipped


def event_texts(schema: Schema, opcode: UInt8s, columns: Sequence[pa.Array]) -> pa.Array:
    """Returns one string per event, of at most BAD_TEXT_LENGTH_MAX characters. Dates and stamps are numbers, blobs hexadecimal."""
    parts = [opcode_letters(opcode)]
    parts += [_shown(column, field.type) for column, field in zip(columns, schema.fields, strict=True)]
    return clipped(pc.binary_join_element_wise(*parts, ",", null_handling="replace", null_replacement=""))


def _shown(column: pa.Array, type_: FieldType) -> pa.Array:
    if type_ in TIME_TYPES:
        return column.cast(pa.int64()).cast(pa.string())
    if type_ is FieldType.STRING:
        return clipped(column)
    if type_ is FieldType.BLOB:
        values = pc.binary_slice(column, 0, BAD_TEXT_LENGTH_MAX).to_pylist()
        return pa.array([None if value is None else value.hex() for value in values], pa.string())
    if type_.is_array:
        return clipped(texts_of(column, lambda elements: elements.cast(pa.string())))
    text = column.cast(pa.string())
    if type_ is FieldType.DOUBLE:
        whole = pc.equal(pc.floor(column), column).fill_null(False)  # noqa: FBT003
        if whole.true_count:
            return pc.if_else(pc.match_substring_regex(text, "^-?[0-9]+$"), pc.binary_join_element_wise(text, ".0", ""), text)
    return text
