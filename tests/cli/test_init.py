"""`hotspare init`: its guesses from a CSV file, its refusals, and that its project runs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from hotspare.adapters.guess.columns import field_names, guess_table
from hotspare.adapters.guess.sample import Extent, read_sample
from tests.cli.running import hotspare_here

_MACHINES = """\
at,machine,load,note
2026-01-05 09:00:00,a,0.41,
2026-01-05 09:00:01,b,0.62,"hot, very"
2026-01-05 09:00:02,a,0.95,
"""


def csv(folder: Path, text: str | bytes, name: str = "in.csv") -> Path:
    file = folder / name
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


@pytest.mark.parametrize(
    ("texts", "type_", "why"),
    [
        ("1 -5 0", "int64", "whole numbers, -5 to 1"),
        ("1 2.5 1e-3", "double", "numbers"),
        ("99999999999999999999", "string", "whole numbers beyond 64 bits"),
        ("007 12", "string", "digits with zeros or signs that a number would lose"),
        ("+4912 12", "string", "digits with zeros or signs that a number would lose"),
        ("2026-01-05 2026-02-01", "date", "days"),
        ("2026-01-05T09:00:00+01:00 2026-01-05", "stamp", "times"),
        ("20260105 2026-01-05", "string", "texts"),
        ("05.01.2026 06.01.2026", "string", "maybe times: give their format with --dateformat"),
        ("nan inf", "string", "texts"),
        ("true False", "string", "texts: hotspare has no type for truth values"),
        ("1 2 3 4 5 6 7 8 9 N/A", "string", "numbers, except 1 such as 'N/A': leave those empty for null"),
        ("a b", "string", "texts"),
    ],
)
def test_the_type_of_a_column(tmp_path: Path, texts: str, type_: str, why: str) -> None:
    (column,) = guess_table(read_sample(csv(tmp_path, "x\n" + "\n".join(texts.split())), header_rows=1)).columns
    assert (column.type.value, column.type_reason) == (type_, why)


@pytest.mark.parametrize(
    ("value", "type_"),
    [("1767603600", "date"), ("1767603600000000", "stamp"), ("1767603600000", "int64"), ("17", "int64")],
)
def test_numbers_are_times_by_title_and_size(tmp_path: Path, value: str, type_: str) -> None:
    first, second = guess_table(read_sample(csv(tmp_path, f"created_at,count\n{value},{value}\n"))).columns
    assert (first.type.value, second.type.value) == (type_, "int64")


def test_null_in_every_row_is_a_text(tmp_path: Path) -> None:
    table = guess_table(read_sample(csv(tmp_path, "a,b\n1,\n2,\n")))
    assert [(column.type.value, column.nulls) for column in table.columns] == [("int64", 0), ("string", 2)]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("id,x\n1,1\n2,1\n", "id"),
        ("id,x\n1,1\n1,1\n", ""),
        ("id,x\n1,1\n,1\n", ""),
        ("order_id,id\n1,5\n2,6\n", "id"),
        ("x,orderId\n1,5\n2,6\n", "orderId"),
        ("x,y\n1,5\n2,6\n", ""),
        ("id,x\n1.5,1\n2.5,1\n", ""),
    ],
)
def test_the_key_is_unique_and_says_so_by_its_title(tmp_path: Path, text: str, key: str) -> None:
    table = guess_table(read_sample(csv(tmp_path, text)))
    assert table.key == key
    assert sum(field.is_key for field in table.schema.fields) == 1


@pytest.mark.parametrize(
    ("text", "delimiter", "titles"),
    [
        ("a,b\n1,2\n", ",", ("a", "b")),
        ("a;b\n1,5;2,5\n", ";", ("a", "b")),
        ("a\tb\n1\t2\n", "\t", ("a", "b")),
        ("a|b\n1|x,y\n", "|", ("a", "b")),
        ("\ufeffa,b\r\n1,2\r\n", ",", ("a", "b")),
        ("1,2\n3,4\n", ",", None),
        ("x,y\nx,y\n", ",", None),
        ("a,a\n1,2\n", ",", None),
        ('"a, b",c\n1,2\n', ",", ("a, b", "c")),
        ("only\n1\n", ",", ("only",)),
    ],
)
def test_delimiter_and_titles(tmp_path: Path, text: str, delimiter: str, titles: tuple[str, ...] | None) -> None:
    sample = read_sample(csv(tmp_path, text))
    assert (sample.delimiter, sample.titles) == (delimiter, titles)


def test_blank_rows_before_titles_are_left_out_with_them(tmp_path: Path) -> None:
    """A file connector counts them among its header rows."""
    file = csv(tmp_path, "\n\nname;city\nbob;x\nann;y\nbob;x\n")
    done = hotspare_here("init", file, "-o", tmp_path / "p.yaml")
    assert done.returncode == 0, done.stderr
    source = file.name.partition(".")[0]
    out = tmp_path / "out.csv"
    done = hotspare_here("replay", tmp_path / "p.yaml", "--plain", "--out", f"main/{source}={out}")
    assert "3 events in" in done.stdout + done.stderr, done.stderr


def test_a_sample_is_bounded(tmp_path: Path) -> None:
    file = csv(tmp_path, "id\n" + "\n".join(map(str, range(100))) + "\ntext\n")
    sample = read_sample(file, rows_max=100)
    assert (sample.rows, sample.extent) == (100, Extent.BEGINNING)
    assert (read_sample(file, rows_max=101).rows, read_sample(file, rows_max=101).extent) == (101, Extent.WHOLE)


def test_names_of_fields() -> None:
    titles = ["Unit Price (€)", "2nd", "", "a", "A", "ESP_OPCODE", "_x"]
    assert field_names(titles) == ["Unit_Price", "_2nd", "column3", "a", "A_2", "ESP_OPCODE_2", "_x"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "has no rows"),
        (b"\xef\xbb\xbf\n\n", "has no rows"),
        (b"a,b\n", "has titles and no rows"),
        ("a,b\n1,2\n".encode("utf-16"), "is in UTF-16, not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "is in UTF-16, not UTF-8"),
        ("a,b\n1,2\n".encode("utf-32"), "is in UTF-32, not UTF-8"),
        ("a,b\n1,ö\n".encode("latin-1"), "line 2: not UTF-8"),
        (b"a\x01\x00\x02,b", "is binary, not CSV"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "compressed by gzip, but has no suffix for it"),
        (",".join(f"c{n}" for n in range(1025)).encode() + b"\n" + b"1" + b",1" * 1024, "has 1025 columns, at most 1024"),
    ],
)
def test_what_no_project_reads_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    done = hotspare_here("init", csv(tmp_path, content), "-o", tmp_path / "p.yaml")
    assert done.returncode == 2
    assert told in done.stderr
    assert not (tmp_path / "p.yaml").exists()


def test_a_file_is_replaced_by_request_alone(tmp_path: Path) -> None:
    file, project = csv(tmp_path, _MACHINES), tmp_path / "p.yaml"
    project.write_text("mine")
    refused = hotspare_here("init", file, "-o", project)
    assert (refused.returncode, project.read_text()) == (2, "mine")
    assert "exists" in refused.stderr
    assert hotspare_here("init", file, "-o", project, "--force").returncode == 0
    assert project.read_text().startswith("# Written by hotspare init")


def test_rows_of_other_widths_are_told(tmp_path: Path) -> None:
    done = hotspare_here("init", csv(tmp_path, "a,b\n1,2\n1\n2,3\n1,2,3\n"), "-o", tmp_path / "p.yaml")
    assert (done.returncode, done.stderr) == (
        0,
        "warning: 2 rows have another number of columns, the first on line 3: bad events\n",
    )


def test_the_printed_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder's name has a blank, and the file is compressed and has another delimiter."""
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "my machines.csv.gz").write_bytes(gzip.compress(_MACHINES.replace(",", "\t").encode()))
    made = hotspare_here("init", "my machines.csv.gz")
    assert made.returncode == 0, made.stderr
    (line,) = [line for line in made.stdout.splitlines() if line.startswith("hotspare replay")]
    done = hotspare_here(*line.split()[1:])
    assert done.stderr == "3 events in; out: 1 rows of main/alerts; bad events: 0\n"
    assert (folder / "alerts.csv").read_text() == "I,N, 2,1767603602000000,a,0.950000,\n"


def test_the_window_by_event_time_loads(tmp_path: Path) -> None:
    """A user can uncomment the window that the written project suggests."""
    project = tmp_path / "p.yaml"
    assert hotspare_here("init", csv(tmp_path, _MACHINES), "-o", project).returncode == 0
    text = project.read_text().replace("      # recent:", "      recent:").replace("edges: [", "edges: [in -> recent, ")
    project.write_text(text)
    files = ("--plain", "--in", f"main/in={tmp_path / 'in.csv'}", "--out", f"main/recent={tmp_path / 'recent.csv'}")
    done = hotspare_here("replay", project, *files)
    assert (done.returncode, done.stderr) == (0, "3 events in; out: 3 rows of main/recent; bad events: 0\n")
