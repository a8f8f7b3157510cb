"""Matches the title line of a CSV file with the fields of a source window (`plain`; docs/events.md, "CSV with a title line")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.codec.json.plain import names_wanted
from hotspare.errors import UsageError
from hotspare.model.events import OPCODE_LETTER
from hotspare.model.names import did_you_mean, nearest, repeated
from hotspare.model.project import KeyOrigin
from hotspare.model.row_defaults import RowDefaults
from hotspare.model.types import Schema

_ABSENT = -1
_NORMAL = b"n"


@dataclass(frozen=True)
class Placement:
    """The columns of a file with titles. `columns`: for opcode, flags and each field of the schema the number of its column, -1 if
    the file has none. `count`: how many columns the file has. `opcode`: that of a row without the column."""

    columns: tuple[int, ...]
    count: int
    opcode: bytes

    @property
    def prefix(self) -> bytes | None:
        """The bytes that make a row canonical when they are put before it; None if columns have to be moved."""
        fields = self.columns[2:]
        lacking = next((place for place, column in enumerate(fields) if column != _ABSENT), len(fields))
        if self.columns[:2] != (_ABSENT, _ABSENT) or fields[lacking:] != tuple(range(self.count)):
            return None
        return self.opcode + b"," + _NORMAL + b"," + b"," * lacking

    @property
    def has_opcodes(self) -> bool:
        return self.columns[0] != _ABSENT

    def moved(self, rows: pa.Array, delimiter: bytes) -> pa.Array | None:
        """Returns what `canonical` makes of each row of a binary array, joined by commas; None if a row has quotes, escapes, commas
        that are not the delimiter, or another count of columns."""
        data = [b'"', b"\\", *([b","] if delimiter != b"," else [])]
        parts = pc.split_pattern(rows, delimiter)
        if any(pc.any(pc.match_substring(rows, each)).as_py() for each in data):
            return None
        if not pc.all(pc.equal(pc.list_value_length(parts), self.count)).as_py():
            return None
        values = parts.flatten()
        defaults = [self.opcode, _NORMAL, *[b""] * (len(self.columns) - 2)]
        columns = [
            default if column == _ABSENT else values.take(pa.array(range(column, len(values), self.count)))
            for column, default in zip(self.columns, defaults, strict=True)
        ]
        return pc.binary_join_element_wise(*columns, b",")

    def canonical(self, row: Sequence[bytes]) -> list[bytes]:
        """Returns opcode, flags and fields of a row. A row with more or fewer columns than there are titles has as many more or
        fewer than a canonical one, so that the engine refuses it."""
        found = [row[column] if 0 <= column < len(row) else b"" for column in self.columns]
        found[0] = self.opcode if self.columns[0] == _ABSENT else found[0]
        found[1] = _NORMAL if self.columns[1] == _ABSENT else found[1]
        missing = self.count - len(row)
        return found[: max(1, len(found) - missing)] if missing > 0 else [*found, *row[self.count :]]


def placed(titles: Sequence[str], schema: Schema, defaults: RowDefaults, file: str) -> tuple[Placement, tuple[str, ...]]:
    """Returns where the columns go, and sentences about columns that are left out and fields that are null in every row.

    A title is the name of a field, `opcode` or `flags` (`hs:opcode`, `hs:flags` if a field has the name), else one of these in
    other letters, upper or lower case. UsageError if no title matches, two match one field, a key has no column, or a title is
    nearly the name of a field that has none.
    """
    names = names_wanted(schema)
    meant = _meant(titles, names)
    found = {name: column for column, name in enumerate(meant) if name}
    lacking = [field.name for field in schema.fields if field.name not in found]
    if len(lacking) == len(schema):
        raise UsageError(
            f"no title in the first line of {file} is a field of the window",
            detail=f"titles {', '.join(titles)[:200]!r}, schema {schema}",
            hint="with plain, the first line names the columns",
        )
    if twice := repeated(name for name in meant if name):
        raise UsageError(f"file {file} has two columns for field {twice[0]!r}", hint="rename one of them")
    notes = []
    for column, (title, name) in enumerate(zip(titles, meant, strict=True), 1):
        if name:
            continue
        if hint := did_you_mean(title, lacking):
            raise UsageError(f"title {title!r} in column {column} of {file}: not a field of the window", hint=hint)
        notes.append(f"column {column} of {file}, {title!r}, is left out: the window has no such field")
    for field in schema.fields:
        if field.name not in lacking or (field.is_key and defaults.keys is KeyOrigin.AUTOGENERATED):
            continue
        if field.is_key:
            raise UsageError(f"file {file} has no column for key {field.name!r}", hint=nearest(field.name, titles))
        notes.append(f"file {file} has no column for field {field.name!r}, which is null in every row")
    columns = tuple(found.get(name, _ABSENT) for name in names)
    return Placement(columns, len(titles), OPCODE_LETTER[defaults.opcode].lower().encode()), tuple(notes)


def _meant(titles: Sequence[str], names: Sequence[str]) -> list[str]:
    """Returns the name that each title means, "" for none."""
    folded: Mapping[str, list[str]] = {name.casefold(): [] for name in names}
    for name in names:
        if name not in titles:
            folded[name.casefold()].append(name)
    found = []
    for title in titles:
        others = folded.get(title.casefold(), [])
        found.append(title if title in names else others[0] if len(others) == 1 else "")
    return found
