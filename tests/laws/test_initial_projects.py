"""Law of `hotspare init`: for any table written as CSV, its project replays the same file to the same rows, none of them bad."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.formats.csv.decode import CsvOptions, decode_rows
from hotspare.formats.csv.grammar import BYTE_ORDER_MARK, quoted
from hotspare.host.project import checked_project
from hotspare.model.events import Flag, Opcode
from hotspare.model.project import WindowId
from hotspare.rows.values import parse
from tests.cli.running import hotspare_here
from tests.examples import examples

pytestmark = pytest.mark.law

_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
_NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.integers(0, 120).map(str),
    st.floats(allow_nan=True).map(repr),
    st.sampled_from(["007", "+49", "0x1f", "1,5", "NaN", "-0", "1e400"]),
)
_TIMES = st.one_of(
    st.datetimes().map(str),
    st.dates().map(str),
    st.integers(1_600_000_000, 1_800_000_000).map(str),
    st.integers(1_600_000_000_000_000, 1_800_000_000_000_000).map(str),
    st.sampled_from(["20260105", "2026-01-05T09:00Z", "2026-13-45", "05.01.2026", "2026-W09-5", "0001-01-01"]),
)
_COLUMNS = st.sampled_from([_TEXTS, _NUMBERS, _TIMES, st.integers(-9, 9).map(str), st.booleans().map(str), _TEXTS | _NUMBERS])
_TITLES = st.one_of(_TEXTS, st.sampled_from(["id", "ID", "Key", "order", "at", "time", "select", "Unit Price (€)", "ESP_OPCODE"]))


@dataclass(frozen=True)
class Table:
    titles: list[str] | None
    columns: list[list[str | None]]
    delimiter: str
    line_end: str
    mark: bytes

    def written(self) -> bytes:
        rows = [list(row) for row in zip(*self.columns, strict=True)]
        lines = rows if self.titles is None else [[*self.titles], *rows]
        return self.mark + b"".join(self.delimiter.encode().join(map(self._cell, line)) + self.line_end.encode() for line in lines)

    def _cell(self, text: str | None) -> bytes:
        if text is None:
            return b""
        is_plain = text.isascii() and text.replace("-", "").replace(".", "").isalnum()
        return text.encode() if is_plain else quoted(text.encode())


@st.composite
def tables(draw: st.DrawFn) -> Table:
    count = draw(st.integers(1, 8))
    kinds = draw(st.lists(_COLUMNS, min_size=1, max_size=4))
    columns = [draw(st.lists(st.none() | kind, min_size=count, max_size=count)) for kind in kinds]
    columns.insert(draw(st.integers(0, len(columns))), [str(n) for n in draw(st.permutations(range(count)))])  # no row is blank
    titles = draw(st.none() | st.lists(_TITLES, min_size=len(columns), max_size=len(columns)).filter(any))
    return Table(
        titles,
        columns,
        draw(st.sampled_from([",", ";", "\t", "|"])),
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.sampled_from([b"", BYTE_ORDER_MARK])),
    )


@given(table=tables())
@examples(0.5)
def test_every_row_comes_back(table: Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, project, out = (Path(folder) / name for name in ("a table.csv", "p.yaml", "out.csv"))
        file.write_bytes(table.written())
        form = ("--delimiter", table.delimiter, "--header", "0" if table.titles is None else "1")
        made = hotspare_here("init", file, "-o", project, *form)
        assert made.returncode == 0, made.stderr
        checked = hotspare_here("validate", project)
        assert (checked.returncode, checked.stderr) == (0, "")
        (words,) = [shlex.split(line)[2:-2] for line in made.stdout.splitlines() if line.startswith("hotspare replay")]
        done = hotspare_here("replay", *words, "--out", f"main/a_table={out}", "--doubles", "exact")
        rows = len(table.columns[0])
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1] == f"{rows} events in; out: {rows} rows of main/a_table; bad events: 0"
        schema = checked_project(project, {}).resolved.schema(WindowId("main", "a_table"))
        rows_put_out = out.read_bytes().partition(b"\n")[2] if "--plain" in words else out.read_bytes()
        form = CsvOptions(opcode=Opcode.INSERT, flags=Flag.NORMAL) if "--plain" in words else CsvOptions()
        ((found,), _) = decode_rows(pa.array([rows_put_out], pa.binary()), schema, form)
        fields = schema.fields[len(schema) - len(table.columns) :]  # after a generated key
        for field, texts, values in zip(fields, table.columns, found.columns[-len(fields) :], strict=True):
            expected, wrong = parse(pa.array(texts, pa.string()), field.type)
            assert not len(wrong)
            assert list(map(repr, values.to_pylist())) == list(map(repr, expected.to_pylist())), field
