"""The first rows of a CSV file as columns of text: its delimiter, its titles, and the rows that no project could read.

The readers that publish and replay the file also cut and split rows here, so they find the same.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import pyarrow as pa

from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.file_rows import FileRows
from hotspare.adapters.files.row_file import Growth, RowFile
from hotspare.adapters.files.source_bytes import open_bytes
from hotspare.base.errors import UsageError
from hotspare.formats.csv.grammar import grammar
from hotspare.formats.csv.split import Messages, TextLayout, split
from hotspare.model.types import FIELDS_MAX
from hotspare.rows.bad_reasons import RowReason

ROWS_MAX = 1_000_000
"""Limit on the rows of a sample: a file may be larger than memory."""
_BYTES_MAX = 256 << 20
_DELIMITERS = ("\t", ";", "|", ",")
"""The delimiters that may be guessed, in order of preference: a comma also occurs in decimal numbers and texts."""
_DELIMITER_SAMPLE_ROWS = 100
"""The number of rows by which the delimiter is chosen."""
_OTHER_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Encodings by their byte order mark; UTF-32's begins with UTF-16's."""
_TITLE = re.compile(r"[^\W\d][\w .,:()/%#€$&+-]{0,99}")
"""A text that may be a title."""


class Extent(Enum):
    """The part of a file that a sample covers."""

    WHOLE = "whole"
    BEGINNING = "beginning"


@dataclass(frozen=True)
class CsvSample:
    """The first rows of `path`. `titles` is None without a title line. `columns` holds one string array per column, null for an
    empty value. `uneven_rows` counts rows with another number of columns or misplaced quotes; `uneven_line` is the first one's
    line, or 0."""

    path: Path
    delimiter: str
    titles: tuple[str, ...] | None
    columns: tuple[pa.Array, ...]
    uneven_rows: int
    uneven_line: int
    extent: Extent
    header_rows: int = 0
    """The number of rows up to the titles, including these and blank rows before them; 0 without titles."""

    @property
    def rows(self) -> int:
        return len(self.columns[0])


def read_sample(path: Path, delimiter: str = "", header_rows: int | None = None, rows_max: int = 100_000) -> CsvSample:
    """Returns the first rows of a CSV file, at most `rows_max`. Guesses the delimiter if `delimiter` is empty, and the title line
    if `header_rows` is None.

    Raises UsageError if the file cannot be read, is not UTF-8, is compressed in another way than its name says, or has no rows.
    """
    _check_encoding(path)
    chosen = delimiter or _delimiter(path)
    with closing(RowFile(path, form=RowForm(delimiter=chosen), skip_rows=0, growth=Growth.FIXED)) as file:
        found = _read_first_rows(file, rows_max + 2)  # a title line, and one row that shows whether there are more
        is_read = file.is_exhausted
    if not len(found):
        raise UsageError(f"file {path} has no rows", hint="give a CSV file with a line of titles and some rows")
    first = [grammar(chosen.encode()).value(column) for column in grammar(chosen.encode()).columns(found.texts[0].as_py())]
    body = found.slice_rows(1, len(found))
    if header_rows == 0 or (header_rows is None and not _are_titles(first, body, chosen)):
        extent = Extent.WHOLE if is_read and len(found) <= rows_max else Extent.BEGINNING
        return replace(_sample(path, chosen, None, found.slice_rows(0, rows_max), len(first)), extent=extent)
    if not len(body):
        raise UsageError(f"file {path} has titles and no rows", hint="add some rows: types are guessed from them")
    titles = tuple((text or b"").decode(errors="replace") for text in first)
    extent = Extent.WHOLE if is_read and len(body) <= rows_max else Extent.BEGINNING
    sample = _sample(path, chosen, titles, body.slice_rows(0, rows_max), len(first))
    return replace(sample, extent=extent, header_rows=int(found.lines[0]))


def _read_first_rows(file: RowFile, rows_max: int) -> FileRows:
    """Returns the first rows of the file, at most `rows_max`; stops after _BYTES_MAX."""
    parts: list[FileRows] = []
    count = size = 0
    while count < rows_max and size < _BYTES_MAX and len(rows := file.read_rows(min(rows_max - count, 65_536))):
        parts.append(rows)
        count, size = count + len(rows), size + rows.text_bytes
    return FileRows.concat_rows(parts)


def _check_encoding(path: Path) -> None:
    """Raises UsageError, naming the encoding, for a file whose first 4,096 bytes show that it is UTF-16, UTF-32 or binary."""
    with closing(open_bytes(path)) as file:
        begin = file.read_at(4096, 0)
    name = next((name for mark, name in _OTHER_ENCODINGS.items() if begin.startswith(mark)), "")
    if not name and b"\0" in begin:
        name = "UTF-16" if begin[1:2] == b"\0" or begin[:1] == b"\0" else "binary"
    if name == "binary":
        raise UsageError(f"file {path} is binary, not CSV", hint="write it as CSV in UTF-8")
    if name:
        raise UsageError(f"file {path} is in {name}, not UTF-8", hint=f"convert it: iconv -f {name} -t UTF-8 {path.name} > NEW.csv")


def _delimiter(path: Path) -> str:
    """Returns the first delimiter that gives every row the same number of columns, more than one; else the one for which most rows
    agree on such a number; a comma if there is none."""
    best, best_share = ",", 0.0
    for delimiter in _DELIMITERS:
        with closing(RowFile(path, form=RowForm(delimiter=delimiter), skip_rows=0, growth=Growth.FIXED)) as file:
            rows: Sequence[bytes] = file.read_rows(_DELIMITER_SAMPLE_ROWS).texts.to_pylist()
        counts = Counter(len(grammar(delimiter.encode()).columns(row)) for row in rows)
        columns, agreeing = counts.most_common(1)[0] if counts else (1, 0)
        share = agreeing / len(rows) if columns > 1 else 0.0
        if share == 1.0:
            return delimiter
        if share > best_share:
            best, best_share = delimiter, share
    return best


def _are_titles(first: Sequence[bytes | None], body: FileRows, delimiter: str) -> bool:
    """Whether the first row looks like titles: distinct names, none of which occurs as a value in its own column. Looks at the
    first _DELIMITER_SAMPLE_ROWS rows of `body`."""
    texts = [(text or b"").decode(errors="replace") for text in first]
    if len({text.lower() for text in texts}) < len(texts) or not all(map(_TITLE.fullmatch, texts)):
        return False
    if not len(body):
        return True
    form = grammar(delimiter.encode())  # for so few rows, this is quicker than to load the compiler of kernels
    below = [form.columns(row) for row in body.slice_rows(0, _DELIMITER_SAMPLE_ROWS).texts.to_pylist()]
    even = [[form.value(column) for column in columns] for columns in below if len(columns) == len(first)]
    return not any(text.encode() in column for text, column in zip(texts, zip(*even, strict=True), strict=False))


def _sample(path: Path, delimiter: str, titles: tuple[str, ...] | None, rows: FileRows, columns: int) -> CsvSample:
    if columns > FIELDS_MAX:
        raise UsageError(f"file {path} has {columns} columns, at most {FIELDS_MAX} are allowed", hint="check --delimiter")
    found, bad = split(Messages.from_values(rows.texts), TextLayout(columns, delimiter))
    for reason, message in zip(bad.reason.to_pylist(), bad.message.tolist(), strict=True):
        if reason == RowReason.UTF8:
            where = f"file {path}, line {int(rows.lines[message])}"
            raise UsageError(
                f"{where}: not UTF-8", hint=f"if it is Latin-1, convert it: iconv -f WINDOWS-1252 -t UTF-8 {path.name} > NEW.csv"
            )
    if not len(found):
        what = f"file {path} has no row of {columns} columns, as its first line has"
        raise UsageError(what, hint="set --delimiter or --header")
    uneven_line = int(rows.lines[bad.message.min()]) if len(bad.message) else 0
    return CsvSample(path, delimiter, titles, tuple(found.texts()), len(bad.message), uneven_line, Extent.BEGINNING)
