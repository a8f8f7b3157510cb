"""Reads rows of a file from any row on, also while the file grows; detects a file that is truncated or replaced meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path

import numpy as np

from hotspare.adapters.failover.source_position import CHECK_BYTES_MAX, tail_digest
from hotspare.adapters.files.block_rows import open_as_csv
from hotspare.adapters.files.canonical import FileFormat, RowForm
from hotspare.adapters.files.cutters import LINE_BYTES_MAX, LineTooLong
from hotspare.adapters.files.file_rows import FileRows, text_bounds
from hotspare.adapters.files.source_bytes import PlainBytes, is_compressed, open_bytes
from hotspare.base.errors import UsageError
from hotspare.formats.csv.grammar import BYTE_ORDER_MARK, is_blank

_READ_BYTES = 256 * 1024


class Growth(Enum):
    """Whether rows may be added to the file while it is read."""

    FIXED = "fixed"
    GROWING = "growing"
    """More rows are awaited; a row counts only once its line end is written."""


class RowFile:
    """Reads a file once; `form` cuts it into rows. Skips the first `skip_rows` rows, and all blank rows.

    A title line is not a row: it determines `form` from then on, and `warn` gets sentences about titles that match no field.
    `warn` also gets a sentence at the end of a file that does not grow and has no rows.
    """

    def __init__(
        self,
        path: Path,
        *,
        form: RowForm,
        skip_rows: int,
        growth: Growth,
        warn: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._path = path
        self._growth = growth
        self._skip_rows = skip_rows
        self._skip_left = skip_rows
        self.form = form
        """The form of the rows read; once the title line is read, it includes the titles."""
        self._warn = warn
        self._ready = FileRows.from_rows([])
        self._ended = self._has_rows = False
        self._failure: UsageError | None = None
        """The error to raise after the rows that are ready."""
        self._end_seen: tuple[int, str] | None = None
        """The end of a growing file at the last read, and the check of the text before that end."""
        if is_compressed(path) and growth is Growth.GROWING:
            raise UsageError(
                f"file {path} is compressed: a growing file must not be", hint="leave growing out, or write it uncompressed"
            )
        self._file = open_bytes(path)
        if form.format is FileFormat.BINARY:
            self._file.close()
            self._file = _rows_of_blocks(path, form)
        self._read_offset = 0
        self._cutter = form.cutter(0)
        self._taken_end = 0

    @property
    def bytes_total(self) -> int:
        """The current size of the file, uncompressed."""
        return self._file.size()

    @property
    def bytes_total_or_zero(self) -> int:
        """The size as `bytes_total`, or 0 if it is not known yet."""
        return self._file.size_or_zero()

    @property
    def is_exhausted(self) -> bool:
        """Whether all rows of a file that does not grow have been returned."""
        return self._ended and not len(self._ready)

    def close(self) -> None:
        self._file.close()

    def seek(self, offset: int, check: str) -> None:
        """Continues at `offset`, the end of a row that was read earlier. Raises UsageError if the file has changed since."""
        if offset == 0:
            return
        tail = self._tail(offset)
        if len(tail) < min(offset, CHECK_BYTES_MAX):
            raise self._changed(f"{offset} bytes of it are published, and it has {self.bytes_total} now")
        if check and tail_digest(tail) != check:
            raise self._changed(f"the text before byte {offset} differs from the published one")
        if self.form.format is FileFormat.CSV and not tail.endswith(b"\n") and self._file.read_at(1, offset):
            raise self._changed(
                f"its last row had no line end when it was published, and it has grown from {offset} to {self.bytes_total} bytes",
                "publish a file that grows with --growing (property growinginputfile of a connector)",
            )
        self._read_titles()
        self._skip_left = 0
        self._ready, self._ended, self._has_rows = FileRows.from_rows([]), False, True
        self._read_offset = self._taken_end = offset
        self._cutter = self.form.cutter(offset)

    def read_rows(self, rows_max: int, bytes_max: int = LINE_BYTES_MAX) -> FileRows:
        """Returns the next rows: at most `rows_max`, and unless it is one row, at most `bytes_max`. Empty at the end of the file,
        or while nothing more is written to it. Raises UsageError for an unreadable row, once all rows before it are returned."""
        while len(self._ready) < rows_max and self._ready.text_bytes < bytes_max and not self._ended and self._fill():
            pass
        if self._failure is not None and not len(self._ready):
            raise self._failure
        bounds = text_bounds(self._ready.texts)
        fitting = int(np.searchsorted(bounds[1:], bounds[0] + bytes_max, side="right"))
        count = min(rows_max, len(self._ready), max(1, fitting))
        taken, self._ready = self._ready.slice_rows(0, count), self._ready.slice_rows(count, len(self._ready))
        if len(taken):
            self._taken_end = int(taken.ends[-1])
        return taken

    def count_rows(self, offset: int, look: Callable[[], object] = lambda: None) -> int:
        """Returns the number of rows that end at or before `offset`, counted from the beginning. Calls `look` after each portion,
        since counting may take long."""
        count = 0
        while len(rows := self.read_rows(4096)):
            look()
            count += int(np.searchsorted(rows.ends, offset, side="right"))
            if rows.ends[-1] > offset:
                break
        return count

    def position_digest(self) -> str:
        """Returns the digest of the text before the end of the last row read, for `seek`."""
        return tail_digest(self._tail(self._taken_end))

    def _tail(self, offset: int) -> bytes:
        start = max(0, offset - CHECK_BYTES_MAX)
        return self._file.read_at(offset - start, start)

    def _fill(self) -> bool:
        """Reads the next portion of the file; returns whether there was one. Returns False also if the file has changed or cannot
        be read; `_failure` is the error then."""
        if self._failure is not None:
            return False
        try:
            return self._read()
        except UsageError as error:
            self._failure = error
        except OSError as error:
            self._failure = UsageError(f"file {self._path} cannot be read", detail=error.strerror or str(error))
        return False

    def _read(self) -> bool:
        data = self._file.read_at(_READ_BYTES, self._read_offset)
        if not data:
            self._check_not_replaced()
            if self._growth is Growth.FIXED:
                self._ended = True
                self._add(FileRows.from_rows(self._cutter.finish()))
                if not self._has_rows:
                    what = "element <event>" if self.form.format is FileFormat.XML else "rows"
                    self._warn(f"file {self._path} has no {what}: nothing of it is published")
            elif self._end_seen is None or self._end_seen[0] != self._read_offset:
                self._end_seen = self._read_offset, tail_digest(self._tail(self._read_offset))
            return False
        if self._end_seen is not None and tail_digest(self._tail(self._end_seen[0])) != self._end_seen[1]:
            raise self._changed(f"it was truncated and rewritten: the text before byte {self._end_seen[0]} has changed")
        self._end_seen = None
        if self._read_offset == 0 and data.startswith(BYTE_ORDER_MARK):
            data = data[len(BYTE_ORDER_MARK) :]
            self._cutter = self.form.cutter(len(BYTE_ORDER_MARK))
            self._read_offset = len(BYTE_ORDER_MARK)
        self._read_offset += len(data)
        try:
            self._add(self._cutter.cut_rows(data))
        except LineTooLong as error:
            what = "line end" if self.form.format is FileFormat.CSV else "end of an event"
            raise UsageError(
                f"file {self._path} has no {what} within {LINE_BYTES_MAX} bytes after byte {error.offset}",
                hint=f"check that it is a {self.form.format.value} file",
            ) from None
        return True

    @property
    def _lacks_titles(self) -> bool:
        return self.form.plain is not None and self.form.column_mapping is None

    def _read_titles(self) -> None:
        """Reads up to the title line, which determines the form of rows even if reading continues far behind it."""
        while self._lacks_titles and self._fill():
            pass
        if self._failure is not None:
            raise self._failure

    def _add(self, rows: FileRows) -> None:
        skipped = min(self._skip_left, len(rows))
        self._skip_left -= skipped
        rows = rows.slice_rows(skipped, len(rows))
        kept = rows.starts_with_alphanumeric
        for number in np.flatnonzero(~kept).tolist():
            kept[number] = not is_blank(rows.texts[number].as_py())
        rows = rows.filter_rows(kept)
        if self._lacks_titles and len(rows):
            self.form, notes = self.form.with_titles(rows.texts[0].as_py(), str(self._path))
            rows = rows.slice_rows(1, len(rows))
            for note in notes:
                self._warn(note)
        self._has_rows |= len(rows) > 0
        self._ready = FileRows.concat_rows((self._ready, rows))

    def _check_not_replaced(self) -> None:
        size = self.bytes_total
        if size < self._read_offset:
            raise self._changed(f"{self._read_offset} bytes of it were read, and it has {size} now")
        if self._growth is Growth.GROWING and not self._file.is_same_file(self._path):
            raise self._changed("another file has this name now")

    def _changed(self, detail: str, hint: str = "publish the new file under another --source name") -> UsageError:
        return UsageError(f"file {self._path} has changed since its rows were read", detail=detail, hint=hint)


def _rows_of_blocks(path: Path, form: RowForm) -> PlainBytes:
    assert form.schema is not None
    try:
        return PlainBytes(open_as_csv(path, form.schema))
    except OSError as error:
        raise UsageError(f"file {path} cannot be converted to rows", detail=error.strerror or str(error)) from error


def check_readable(path: Path) -> None:
    """Raises UsageError if a file cannot be published."""
    open_bytes(path).close()
