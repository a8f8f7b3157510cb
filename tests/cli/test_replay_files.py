"""`hotspare replay` and its files: places of bad events, and which files are overwritten (SPEC F15, 5.2)."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from tests.cli.running import hotspare_here

PROJECT = """
project: p
queries:
  q:
    windows:
      source:
        type: source
        opcodes: any
        schema: id*:int64,at:stamp,s:string
        connectors:
          first: {kind: fs, direction: publish, properties: {fsname: first.csv, fstype: csv, header: 1, rate: 2}}
          second: {kind: fs, direction: publish, properties: {fsname: second.csv, fstype: csv, repeatcount: 1, rate: 1}}
      other: {type: source, opcodes: any, schema: "id*:int64,at:stamp"}
      end: {type: copy}
      other_end: {type: copy}
    edges: [source -> end, other -> other_end]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(PROJECT)
    return tmp_path


def bad_places(file: Path) -> list[tuple[str, str]]:
    """Returns (file:line, text) of each bad event, the file by its name."""
    with file.open() as lines:
        return [(Path(row["position"]).name, row["text"]) for row in csv.DictReader(lines)]


@pytest.mark.parametrize("batch", [1, 1000])
def test_a_bad_event_is_told_with_its_line_of_the_file(folder: Path, batch: int) -> None:
    """Lines as in an editor: the title, blank lines and line feeds within quotes count, the ticks of replay do not."""
    rows = ["id,at,s", "i,n,1,0,a", "", 'i,n,2,1000000,"two', 'lines"', "x,n,3,1000000,", "i,n,4,9000000,b", "i,n,1,9000000,again"]
    (folder / "in.csv").write_text("\r\n".join(rows))
    bad = folder / "bad.csv"
    files = ("--in", f"q/source={folder / 'in.csv'}", "--header", "1", "--time", "q/source=at", "--bad", bad, "--batch", str(batch))
    done = hotspare_here("replay", folder / "p.yaml", *files, "--out", f"q/end={folder / 'out.csv'}")
    assert done.returncode == 0, done.stderr
    assert bad_places(bad) == [("in.csv:6", "x,n,3,1000000,"), ("in.csv:8", "I,1,9000000,again")]


def test_bad_events_of_several_files_and_repetitions_are_told_with_their_own_lines(folder: Path) -> None:
    (folder / "first.csv").write_text("title\ni,n,1,,\nwrong,n,2,,\ni,n,3,,\nwrong,n,4,,\n")
    (folder / "second.csv").write_text("p,n,5,,\nwrong,n,6,,\n")
    bad = folder / "bad.csv"
    done = hotspare_here("replay", folder / "p.yaml", "--bad", bad)
    assert done.returncode == 0, done.stderr
    expected = {"wrong,n,2,,": {"first.csv:3"}, "wrong,n,4,,": {"first.csv:5"}, "wrong,n,6,,": {"second.csv:2"}}
    places = bad_places(bad)
    assert {text: {place for place, found in places if found == text} for _, text in places} == expected
    assert len(places) == 4, "the second file is read twice"


@pytest.mark.parametrize(
    "options",
    [
        ("--in", "q/source=none.csv"),
        ("--in", "q/source=."),
        ("--in", "q/source=columns.csv"),
        ("--in", "q/source=in.csv", "--bad", "no/such/folder.csv"),
        ("--in", "q/source=in.csv", "--time", "q/other=at"),
    ],
)
def test_a_replay_that_cannot_begin_keeps_the_outputs_of_the_last_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.chdir(folder)
    (folder / "in.csv").write_text("i,n,1,0,a\n")
    (folder / "columns.csv").write_text("i,n,1\n")
    (folder / "out.csv").write_text("kept\n")
    done = hotspare_here("replay", "p.yaml", *options, "--header", "0", "--out", "q/end=out.csv")
    assert done.returncode == 2, done.stderr
    assert (folder / "out.csv").read_text() == "kept\n"


def test_a_replay_writes_its_outputs_anew(folder: Path) -> None:
    (folder / "in.csv").write_text("i,n,1,0,a\nwrong\n")
    for name in ("out.csv", "bad.csv"):
        (folder / name).write_text("of before\n" * 9)
    files = ("--in", f"q/source={folder / 'in.csv'}", "--out", f"q/end={folder / 'out.csv'}", "--bad", folder / "bad.csv")
    assert hotspare_here("replay", folder / "p.yaml", *files, "--header", "0").returncode == 0
    assert (folder / "out.csv").read_text() == "I,N, 1,0,a\n"
    assert (folder / "bad.csv").read_text().startswith("reason,window,position,")


@pytest.mark.parametrize("name", ["p.yaml", "another-name.csv"])
def test_neither_the_project_nor_an_input_of_another_name_is_written_over(folder: Path, name: str) -> None:
    (folder / "in.csv").write_text("i,n,1,0,a\n")
    (folder / "another-name.csv").hardlink_to(folder / "in.csv")
    before = (folder / name).read_text()
    done = hotspare_here("replay", folder / "p.yaml", "--in", f"q/source={folder / 'in.csv'}", "--out", f"q/end={folder / name}")
    assert (folder / name).read_text() == before
    assert done.returncode == 2
    assert "would be overwritten" in done.stderr


def test_an_option_of_another_runner_is_refused(folder: Path) -> None:
    (folder / "in.csv").write_text("i,n,1,0,a\n")
    files = ("--in", f"q/source={folder / 'in.csv'}", "--out", f"q/end={folder / 'out.csv'}")
    for options, what in (
        (("--head", "driver"), "--head with --runner local has no effect"),
        (("--conf", "a=b"), "--conf without --runner partitioned has no effect"),
        (
            ("--runner", "partitioned", "--doubles", "exact", "--head", "driver"),
            "--head, --doubles with --runner partitioned has no",
        ),
    ):
        done = hotspare_here("replay", folder / "p.yaml", *files, *options)
        assert (done.returncode, what in done.stderr) == (2, True), done.stderr
    done = hotspare_here("run", folder / "p.yaml", "--bus", "memory://b", "--runner", "local", "--spark-ui", "4040")
    assert (done.returncode, "--spark-ui with --runner local has no effect" in done.stderr) == (2, True), done.stderr


def test_parquet_is_for_the_runner_that_knows_it(folder: Path) -> None:
    """It used to be read as rows with too few columns, and CSV was written to files named as Parquet."""
    (folder / "in.csv").write_text("i,n,1,0,a\n")
    (folder / "table").mkdir()
    for file in (folder / "in.data", folder / "table" / "part.parquet"):
        file.write_bytes(b"PAR1 and so on")
    for given, out, what in (
        ("in.data", "out.csv", "in.data is Parquet, and this runner reads text only"),
        ("table", "out.csv", "table is Parquet, and this runner reads text only"),
        ("in.csv", "out.parquet", "out.parquet would be CSV, this runner writes text only"),
    ):
        done = hotspare_here("replay", folder / "p.yaml", "--in", f"q/source={folder / given}", "--out", f"q/end={folder / out}")
        assert (done.returncode, what in done.stderr) == (2, True), done.stderr
        assert not (folder / out).exists()


def test_whoever_does_not_ask_for_bad_events_is_told_how(folder: Path) -> None:
    (folder / "in.csv").write_text("i,n,1,0,a\nwrong,n,2,0,a\n")
    files = ("--in", f"q/source={folder / 'in.csv'}", "--header", "0", "--out", f"q/end={folder / 'out.csv'}")
    assert "bad events: 1 (--bad FILE shows them with reasons)\n" in hotspare_here("replay", folder / "p.yaml", *files).stderr
    asked = hotspare_here("replay", folder / "p.yaml", *files, "--bad", folder / "bad.csv")
    assert "bad events: 1\n" in asked.stderr


def test_seconds_in_a_compressed_file_by_their_unit(folder: Path) -> None:
    """SPEC I5: without the unit the first stamps look wrong, with one warning; a compressed file without the suffix is refused."""
    rows = gzip.compress(b"".join(b"i,n,%d,%d,\n" % (number, 1_700_000_000 + number) for number in range(3)))
    (folder / "in.csv.gz").write_bytes(rows)
    (folder / "in.csv").write_bytes(rows)
    files = ("--in", f"q/source={folder / 'in.csv.gz'}", "--out", f"q/end={folder / 'out.csv'}", "--header", "0")
    told = hotspare_here("replay", folder / "p.yaml", *files).stderr
    assert told.count("warning: the first stamps of") == 1
    done = hotspare_here("replay", folder / "p.yaml", *files, "--stamp-unit", "seconds")
    assert "warning" not in done.stderr
    assert (folder / "out.csv").read_text() == "".join(f"I,N, {i},{1_700_000_000 + i}000000,\n" for i in range(3))
    done = hotspare_here("replay", folder / "p.yaml", "--in", f"q/source={folder / 'in.csv'}", *files[2:])
    assert done.returncode == 2
    assert "is compressed by gzip, but has no suffix for it" in done.stderr


def test_a_time_for_a_window_without_input_is_refused(folder: Path) -> None:
    """It used to be ignored silently."""
    (folder / "in.csv").write_text("i,n,1,0,a\n")
    files = ("--in", f"q/source={folder / 'in.csv'}", "--out", f"q/end={folder / 'out.csv'}")
    done = hotspare_here("replay", folder / "p.yaml", *files, "--time", "q/other=at")
    assert done.returncode == 2
    assert "--time names q/other, which has no input" in done.stderr
