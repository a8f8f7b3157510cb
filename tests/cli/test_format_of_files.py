"""`--format` of files that `hotspare publish` reads and `hotspare subscribe` writes (SPEC I5, I6)."""

from __future__ import annotations

import contextlib
import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.formats import arrow_block
from hotspare.model.project import WindowId
from hotspare.projects.load import load_text
from hotspare.rows.batch import output_schema
from tests.cli.running import hotspare_here

PROJECT = """
project: p
queries:
  q:
    windows:
      s: {type: source, opcodes: any, schema: "id*:int64,name:string,x:double"}
      c: {type: copy}
    edges: [s -> c]
"""
WRITTEN = [{"id": i, "name": f"n,{i}", "x": 0.1 * i} for i in range(5)]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Returns the URL of a bus with outputs of the window c."""
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    (tmp_path / "p.yaml").write_text(PROJECT)
    of_event = {"hs:opcode": 1, "hs:flags": 1, "hs:topic": 0, "hs:partition": 0, "hs:offset": 0, "hs:index": 0, "hs:ordinal": 0}
    schema = output_schema(load_text(PROJECT).resolved.schema(WindowId("q", "c")))
    rows = [{**of_event, "hs:sequence": i + 1, "hs:digest": i, **row} for i, row in enumerate(WRITTEN)]
    with contextlib.closing(open_bus(url)) as bus:
        bus.create_topic("hotspare.p.q.s.I", 1)
        bus.create_topic("hotspare.p.q.c.O", 1)
        for begin in (0, 3):
            part = pa.RecordBatch.from_pylist(rows[begin : begin + 3], schema=schema)
            bus.append(Partition("hotspare.p.q.c.O", 0), [Outgoing(arrow_block.encode(part))])
    return url


def subscribed(url: str, folder: Path, *more: str, status: int = 0) -> str:
    arguments = ("--bus", url, "--window", "p/q/c", "--project", folder / "p.yaml", "--to-end", *more, folder / "out")
    done = hotspare_here("subscribe", *arguments)
    assert done.returncode == status, done.stderr
    return done.stderr


def published(url: str, folder: Path, *more: str, status: int = 0) -> str:
    done = hotspare_here("publish", "--bus", url, "--window", "p/q/s", "--project", folder / "p.yaml", *more, folder / "out")
    assert done.returncode == status, done.stderr
    return done.stderr


@pytest.mark.parametrize("format_", ["arrow", "json"])
def test_what_is_written_is_read_again(url: str, tmp_path: Path, format_: str) -> None:
    subscribed(url, tmp_path, "--format", format_)
    assert "published 5 events" in published(url, tmp_path, "--format", format_)
    with contextlib.closing(open_bus(url)) as bus:
        (message,) = bus.read(Partition("hotspare.p.q.s.I", 0), 0, messages_max=9, bytes_max=1 << 20)
    if format_ == "json":
        assert message.value == (tmp_path / "out").read_bytes().removesuffix(b"\n")
        first = json.loads(message.value.splitlines()[0])
        assert {name: first[name] for name in ("id", "name", "x")} == WRITTEN[0]
    else:
        last = list(csv.reader(message.value.decode().splitlines()))[4]
        assert [last[0].lower(), last[1].lower(), *last[2:]] == ["i", "n", "4", "n,4", "0.4"]


def test_any_program_reads_blocks_with_their_types(url: str, tmp_path: Path) -> None:
    subscribed(url, tmp_path, "--format", "arrow")
    found: list[dict[str, object]] = []
    with (tmp_path / "out").open("rb") as file:
        size = (tmp_path / "out").stat().st_size
        while file.tell() < size:
            found += pa.ipc.open_stream(file).read_all().to_pylist()
    assert found == [{"opcode": 1, "flags": 1, **row} for row in WRITTEN]


@pytest.mark.parametrize(
    ("command", "more", "said"),
    [
        (published, ("--format", "avro"), "files in avro are neither read nor written"),
        (published, ("--format", "arrow", "--header", "1", "--delimiter", ";"), "--header, --delimiter of a file in arrow"),
        (subscribed, ("--format", "avro"), "files in avro are neither read nor written"),
        (subscribed, ("--format", "json", "--header", "full"), "--header of a file in json"),
    ],
)
def test_what_means_nothing_is_refused(url: str, tmp_path: Path, command: object, more: tuple[str, ...], said: str) -> None:
    (tmp_path / "out").touch()
    assert callable(command)
    assert said in command(url, tmp_path, *more, status=2)
