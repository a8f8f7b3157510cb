"""Brings rows of a file into the forms that inbound topics hold: CSV, `opcode,flag,field,...` with commas, or JSON (SPEC 5.2, I5).

Options of a publisher about its source (its format, missing columns, another delimiter, how times are written) end here, so that a
topic may have several publishers and its reader needs no options. What a row says is read by `formats` alone, and a row that
does not fit is passed on as it is: the engine makes a bad event of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.adapters.files.cutters import Cutter, JsonCutter, RowCutter, XmlCutter
from hotspare.adapters.time_texts import StampUnit, TimeTexts
from hotspare.base.errors import UsageError
from hotspare.flow.head.unknown_members import UnknownMember, merged, unknown_members_of
from hotspare.formats.csv.grammar import BYTE_ORDER_MARK, grammar, is_quoted, quoted
from hotspare.formats.json.plain import cut_events, event_alone, has_field, names_wanted, texts_of_event
from hotspare.formats.xml.plain import json_event
from hotspare.model.events import OPCODE_LETTER, OPCODE_WORDS, Opcode
from hotspare.model.names import did_you_mean, nearest, repeated
from hotspare.model.project import KeyOrigin
from hotspare.model.row_defaults import RowDefaults
from hotspare.model.types import Schema
from hotspare.rows.batch import MessageFormat

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
        """Returns what `canonical` makes of each row of a binary array, joined by commas; None if a row has quotes, escapes, a byte
        order mark, commas that are not the delimiter, or another count of columns."""
        data = [b'"', b"\\", BYTE_ORDER_MARK, *([b","] if delimiter != b"," else [])]
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
    generated = {field.name for field in schema.fields if field.is_key and defaults.keys is KeyOrigin.AUTOGENERATED}
    wanted = [name for name in lacking if name not in generated]
    notes = []
    for column, (title, name) in enumerate(zip(titles, meant, strict=True), 1):
        if name:
            continue
        if hint := did_you_mean(title, wanted):
            raise UsageError(f"title {title!r} in column {column} of {file}: not a field of the window", hint=hint)
        notes.append(f"column {column} of {file}, {title!r}, is left out: the window has no such field")
    for field in schema.fields:
        if field.name not in wanted:
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


class FileFormat(Enum):
    """How a file is written (SPEC I5: fstype)."""

    CSV = "csv"
    JSON = "json"
    XML = "xml"
    BINARY = "binary"
    """Blocks (`adapters.files.block_rows`), which are read as rows."""


_ROWS = (FileFormat.CSV, FileFormat.BINARY)


class OpcodeColumn(Enum):
    """The first column of the file."""

    PRESENT = "present"
    ABSENT = "absent"
    """Every row is an insert (SPEC I5: addcsvopcode)."""


class FlagColumn(Enum):
    """The column of flags; the value is what is put in where it is missing."""

    PRESENT = ""
    NORMAL = "n"
    PARTIAL = "p"


class InsertOpcode(Enum):
    """What an insert of the file becomes (SPEC I5: publishwithupsert)."""

    INSERT = "i"
    UPSERT = "p"


class KeyPresence(Enum):
    """Whether the file has the column of an autogenerated key (SPEC I5: noautogenfield)."""

    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True)
class RowForm:
    """How the rows of a source are written. `schema` is needed only for `key` absent, for times that are not canonical, for XML,
    blocks and JSON that is rewritten. Formats other than CSV need no more of the rest than `insert` and the times: their events
    name their fields. `stamp_unit` is that of numbers in stamps.

    `plain` is not None if the first line of the file names its columns: then `opcode`, `flag` and `key` count for nothing, and rows
    are read by the form that `titled` returns, which has a `placement`.

    UsageError where an option cannot be used.
    """

    opcode: OpcodeColumn = OpcodeColumn.PRESENT
    flag: FlagColumn = FlagColumn.PRESENT
    insert: InsertOpcode = InsertOpcode.INSERT
    key: KeyPresence = KeyPresence.PRESENT
    delimiter: str = ","
    date_format: str = ""
    stamp_unit: StampUnit = StampUnit.MICROSECONDS
    schema: Schema | None = None
    format: FileFormat = FileFormat.CSV
    plain: RowDefaults | None = None
    placement: Placement | None = None

    def __post_init__(self) -> None:
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\\\r\n ':
            raise UsageError(
                f"delimiter {self.delimiter!r} cannot be used", hint="use one character other than a quote, a backslash or a blank"
            )
        is_rewritten_json = self.format is FileFormat.JSON and self.is_rewritten
        is_named, has_times = self.format in (FileFormat.XML, FileFormat.BINARY), not self.times.is_canonical
        if self.plain is not None and self.format is not FileFormat.CSV:
            what = f"plain is about columns of csv, and events in {self.format.value} name their fields"
            raise UsageError(what, hint="leave plain out")
        is_by_schema = self.key is KeyPresence.ABSENT or has_times or self.plain is not None
        if self.schema is None and (is_by_schema or is_named or is_rewritten_json):
            raise UsageError(
                "no engine has described the window yet: it is starting, or none was started",
                detail="titles, a missing key column, a date format, a unit of stamps, or a format but CSV needs its schema",
                hint="wait until `hotspare status` shows an active engine, or name the project's file with --project",
            )
        if has_times and self.format is FileFormat.BINARY:
            raise UsageError("times of binary blocks have a type and no text", hint="leave dateformat and stampformat out")

    @cached_property
    def times(self) -> TimeTexts:
        return TimeTexts(self.date_format, self.stamp_unit)

    @property
    def written(self) -> MessageFormat:
        """The format of the rows as topics hold them."""
        return MessageFormat.CSV if self.format in _ROWS else MessageFormat.JSON

    @cached_property
    def prefix_columns(self) -> int:
        """How many columns stand before the fields."""
        return int(self.opcode is OpcodeColumn.PRESENT) + int(self.flag is FlagColumn.PRESENT)

    @property
    def columns(self) -> int | None:
        """How many columns a row of the file has; None if the schema is not known, or columns are not counted."""
        if self.schema is None or self.format not in _ROWS:
            return None
        if self.placement is not None:
            return self.placement.count
        return self.prefix_columns + len(self.schema) - int(self.key is KeyPresence.ABSENT)

    @property
    def delimiter_bytes(self) -> bytes:
        return self.delimiter.encode()

    @property
    def is_rewritten(self) -> bool:
        """Whether values of a row may change, so that it is read."""
        return self.insert is InsertOpcode.UPSERT or not self.times.is_canonical

    @cached_property
    def _takes_prefix(self) -> bool:
        """Whether a row of CSV needs at most a prefix."""
        if self.placement is not None:
            return self.placement.prefix is not None and self.delimiter == "," and self.times.is_canonical
        return not (
            self.delimiter != ","
            or not self.times.is_canonical
            or self.key is KeyPresence.ABSENT
            or (self.opcode is OpcodeColumn.PRESENT and (self.flag is not FlagColumn.PRESENT or self.is_rewritten))
        )

    @cached_property
    def _is_moved(self) -> bool:
        """Whether columns are put elsewhere and nothing else is done to a row."""
        is_kept = self.insert is InsertOpcode.INSERT or self.placement is None or not self.placement.has_opcodes
        return self.placement is not None and not self._takes_prefix and self.times.is_canonical and is_kept

    @cached_property
    def _prefix(self) -> bytes:
        if self.placement is not None:
            return self.placement.prefix or b""
        parts = [self.insert.value] if self.opcode is OpcodeColumn.ABSENT else []
        parts += [self.flag.value] if self.flag is not FlagColumn.PRESENT else []
        return "".join(f"{part}," for part in parts).encode()

    def cutter(self, position: int) -> Cutter:
        """What cuts the file's bytes into rows from a position on, the end of a row."""
        if self.format in _ROWS:
            return RowCutter(position, self.delimiter_bytes)
        return JsonCutter(position) if self.format is FileFormat.JSON else XmlCutter(position)

    def has_field(self, row: bytes) -> bool | None:
        """Whether an event of a format that names its fields has one of the schema; None if it cannot be read."""
        return None if self.schema is None else has_field(self._json(row), self.schema)

    def unknown_members(self, rows: Sequence[bytes]) -> list[UnknownMember]:
        """Returns the members of these rows that no field of the schema has, before any row is rewritten; none of CSV."""
        if self.schema is None or self.format in _ROWS:
            return []
        return merged(each for row in rows for each in unknown_members_of(self._json(row), "", self.schema))

    def titled(self, row: bytes, file: str) -> tuple[RowForm, tuple[str, ...]]:
        """Returns the form of the rows behind this title line of `file`, and sentences about columns that match no field, and
        fields without a column. UsageError as `titles.placed`."""
        assert self.plain is not None and self.schema is not None
        titles = [(self._value(column) or "").strip() for column in self.split(row)]
        defaults = self.plain if self.insert is InsertOpcode.INSERT else replace(self.plain, opcode=Opcode.UPSERT)
        placement, notes = placed(titles, self.schema, defaults, file)
        return replace(self, placement=placement), notes

    def split(self, row: bytes) -> list[bytes]:
        """The columns of a row as they are written, quotes and escapes kept."""
        return grammar(self.delimiter_bytes).columns(row)

    def canonical(self, rows: Sequence[bytes]) -> list[bytes]:
        """The rows as topics hold them (`written`), one for one. A row's result does not depend on the others."""
        if self.format not in _ROWS:
            events = [self._json(row) for row in rows]
            return self._rewritten_events(events) if self.is_rewritten else events
        if self._takes_prefix:
            return [self._prefix + row.removeprefix(BYTE_ORDER_MARK) for row in rows] if self._prefix else list(rows)
        rewritten = [self._rewritten(self.split(row)) for row in rows]
        for place, type_ in self.times.fields(self.schema):
            found = [columns for columns in rewritten if 2 + place < len(columns)]
            texts = [_text(columns[2 + place]) for columns in found]
            for columns, number in zip(found, self.times.canonical(texts, type_), strict=True):
                if number is not None:
                    columns[2 + place] = number.encode()
        return [b",".join(columns) for columns in rewritten]

    def canonical_texts(self, rows: pa.Array) -> pa.Array:
        """The same of a binary array."""
        if self.placement is not None and self._is_moved:
            moved = self.placement.moved(rows, self.delimiter_bytes)
            if moved is not None:
                return moved
        if self.format not in _ROWS or not self._takes_prefix or (self._prefix and _any_begins(rows, BYTE_ORDER_MARK)):
            return pa.array(self.canonical(rows.to_pylist()), pa.binary())
        return pc.binary_join_element_wise(self._prefix, rows, b"") if self._prefix else rows

    def _rewritten(self, columns: list[bytes]) -> list[bytes]:
        """Opcode, flag and fields of a row of this form."""
        if self.placement is not None:
            return self._placed(self.placement.canonical(columns))
        head: list[bytes] = []
        if self.opcode is OpcodeColumn.PRESENT and columns:
            opcode = columns.pop(0)
            is_upsert = self.insert is InsertOpcode.UPSERT and _is_insert(self._value(opcode))
            head.append(self.insert.value.encode() if is_upsert else opcode)
        else:
            head.append(self.insert.value.encode())
        if self.flag is not FlagColumn.PRESENT:
            head.append(self.flag.value.encode())
        elif columns:
            head.append(columns.pop(0))
        if self.schema is not None and self.key is KeyPresence.ABSENT:
            columns.insert(self.schema.key_indexes[0], b"")
        return [*head, *map(self._for_commas, columns)]

    def _placed(self, columns: list[bytes]) -> list[bytes]:
        is_upsert = self.insert is InsertOpcode.UPSERT and _is_insert(self._value(columns[0]))
        return [self.insert.value.encode() if is_upsert else columns[0], *map(self._for_commas, columns[1:])]

    def _for_commas(self, column: bytes) -> bytes:
        """A column that was separated by another delimiter: commas and escapes in it must mean the same now."""
        if self.delimiter == "," or is_quoted(column) or (b"," not in column and b"\\" not in column):
            return column
        return quoted(grammar(self.delimiter_bytes).value(column) or b"")

    def _value(self, column: bytes) -> str | None:
        return _decoded(grammar(self.delimiter_bytes).value(column))

    def _json(self, row: bytes) -> bytes:
        """An event as JSON; a row that is none as it is, of XML on one line, so that nothing in it is taken for another event."""
        if self.format is FileFormat.XML and self.schema is not None:
            return json_event(row, self.schema) or row.replace(b"\n", b" ")
        return event_alone(row)

    def _rewritten_events(self, events: Sequence[bytes]) -> list[bytes]:
        """JSON events with other opcodes and times; of each the members that count, as strings."""
        assert self.schema is not None
        parts = [cut_events(event) or [event] for event in events]
        texts = [text for part in parts for text in part]
        read = [texts_of_event(text, self.schema) for text in texts]
        found = [values for values in read if values is not None]
        for place, type_ in self.times.fields(self.schema):
            numbers = self.times.canonical([values[2 + place] for values in found], type_)
            for values, number in zip(found, numbers, strict=True):
                values[2 + place] = values[2 + place] if number is None else number
        names = names_wanted(self.schema)
        for values in found:
            values[0] = self.insert.value if values[0] is None or _is_insert(values[0]) else values[0]
        written = (text if values is None else _object(names, values) for text, values in zip(texts, read, strict=True))
        return [b"\n".join(next(written) for _ in part) for part in parts]


def _object(names: Sequence[str], values: Sequence[str | None]) -> bytes:
    members = {name: value for name, value in zip(names, values, strict=True) if value is not None}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def _is_insert(word: str | None) -> bool:
    return word is not None and OPCODE_WORDS.get(word.strip().lower()) is Opcode.INSERT


def _any_begins(rows: pa.Array, text: bytes) -> bool:
    return bool(pc.any(pc.starts_with(rows, text)).as_py())


def _text(column: bytes) -> str | None:
    """Returns the value of a column of canonical CSV; None if it is empty or not UTF-8."""
    return _decoded(grammar().value(column))


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
