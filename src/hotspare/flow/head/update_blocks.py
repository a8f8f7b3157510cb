"""Update blocks in what is published, and what is left of them where one of their rows cannot be read.

A block leaves a window as two rows: the new one, then a delete of the old one. The two stand or fall together: the old row alone
would delete what the block says is there. Of a row that cannot be read nothing but its text is known, so its opcode is looked for
there; where it may stand behind the end of a text that was cut, the delete behind it is not believed either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from hotspare.formats.avro_block import avro_meta_names
from hotspare.formats.csv.decode import CsvOptions, DecodedRows
from hotspare.formats.json.plain import meta_names
from hotspare.model.events import OPCODE_LETTER, Opcode
from hotspare.model.types import Schema
from hotspare.rows.batch import FORM_MASK, MessageFormat
from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.refusals import BAD_TEXT_LENGTH_MAX, BadRows

_WORDS = f"({OPCODE_LETTER[Opcode.UPDATE_BLOCK]}|{Opcode.UPDATE_BLOCK.name.replace('_', '')})"


def rows_of_blocks(events: Sequence[DecodedRows], bad: BadRows, forms: Int64s, schema: Schema, options: CsvOptions) -> list[Bools]:
    """Of the events of each part, which are rows of update blocks. `bad` could not be read; `forms` as the raw column `format`."""
    places = [rows.message << 32 | rows.index for rows in events]
    new = [place[rows.opcode == Opcode.UPDATE_BLOCK] for place, rows in zip(places, events, strict=True)]
    behind = np.concatenate([*new, _unread(events, places, bad, forms, schema, options)]) + 1
    both = zip(places, events, strict=True)
    return [(rows.opcode == Opcode.UPDATE_BLOCK) | _deletes(rows, place, behind) for place, rows in both]


def _deletes(rows: DecodedRows, place: Int64s, where: Int64s) -> Bools:
    found: Bools = (rows.opcode == Opcode.DELETE) & np.isin(place, where)
    return found


def _unread(
    events: Sequence[DecodedRows], places: Sequence[Int64s], bad: BadRows, forms: Int64s, schema: Schema, options: CsvOptions
) -> Int64s:
    """Where a bad row was, or may have been, the new row of a block with a delete behind it."""
    where = bad.message.astype(np.int64) << 32 | bad.index
    deletes = [place[rows.opcode == Opcode.DELETE] for place, rows in zip(places, events, strict=True)]
    before = np.flatnonzero(np.isin(where + 1, np.concatenate([np.empty(0, np.int64), *deletes])))
    found = [row for row in before.tolist() if _opens(int(forms[bad.message[row]]), bad.text[row].as_py(), schema, options)]
    return where[found]


def _opens(form: int, text: str, schema: Schema, options: CsvOptions) -> bool:
    return _LOOKS[MessageFormat(form & FORM_MASK)](text, schema, options)


def _csv(text: str, _: Schema, options: CsvOptions) -> bool:
    ends = rf'\s*"?\s*({re.escape(options.delimiter)}|$)'
    return options.opcode is None and re.match(rf'\s*"?\s*{_WORDS}{ends}', text, re.IGNORECASE) is not None


def _json(text: str, schema: Schema, _: CsvOptions) -> bool:
    return _of_member(text, f'"{re.escape(meta_names(schema)[0])}"', '"')


def _avro(text: str, schema: Schema, _: CsvOptions) -> bool:
    """The text is a record as Python prints it."""
    return _of_member(text, f"'{re.escape(avro_meta_names(schema)[0])}'", "'")


def _of_member(text: str, name: str, quote: str) -> bool:
    if re.search(rf"{name}\s*:\s*{quote}\s*{_WORDS}\s*{quote}", text, re.IGNORECASE):
        return True
    return len(text) >= BAD_TEXT_LENGTH_MAX and re.search(rf"{name}\s*:", text) is None


def _arrow(text: str, _: Schema, __: CsvOptions) -> bool:
    """The text tells the numbers."""
    return text.startswith(f"opcode {int(Opcode.UPDATE_BLOCK)},")


_LOOKS: dict[MessageFormat, Callable[[str, Schema, CsvOptions], bool]] = {
    MessageFormat.CSV: _csv,
    MessageFormat.JSON: _json,
    MessageFormat.AVRO: _avro,
    MessageFormat.ARROW: _arrow,
}
