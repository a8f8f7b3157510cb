"""Events as readable text, for bad events: the opcode's letter, then the fields, in CSV without quotes; null is empty."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.chunk import UInt8s
from hotspare.engine.codec.csv_split import BAD_TEXT_LENGTH_MAX
from hotspare.engine.letters import opcode_letters
from hotspare.model.types import FieldType, Schema


def event_texts(schema: Schema, opcode: UInt8s, columns: Sequence[pa.Array]) -> list[str]:
    """One text per event, of at most BAD_TEXT_LENGTH_MAX characters. Dates and stamps are numbers, blobs hexadecimal."""
    parts = [opcode_letters(opcode).to_pylist()]
    parts += [_shown(column, field.type) for column, field in zip(columns, schema.fields, strict=True)]
    return [",".join(row)[:BAD_TEXT_LENGTH_MAX] for row in zip(*parts, strict=True)]


def _shown(column: pa.Array, type_: FieldType) -> list[str]:
    if type_ in (FieldType.DATE, FieldType.STAMP):
        column = column.cast(pa.int64())
    elif type_ is FieldType.STRING:
        column = pc.utf8_slice_codeunits(column, 0, BAD_TEXT_LENGTH_MAX)
    elif type_ is FieldType.BLOB:
        column = pc.binary_slice(column, 0, BAD_TEXT_LENGTH_MAX)
    return ["" if value is None else value.hex() if isinstance(value, bytes) else str(value) for value in column.to_pylist()]
