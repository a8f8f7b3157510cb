"""Unusual files: endless lines, pipes, truncated and rewritten files, full disks. Nothing is lost, and all is reported (SPEC I5,
I6)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.adapters.connectors import ConnectorSet, ConnectorState
from hotspare.adapters.files.cutters import LINE_BYTES_MAX
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.files.publisher import PublishOptions, PublishProgress, publish_file
from hotspare.adapters.files.row_file import Growth
from hotspare.adapters.files.subscriber import SubscribeOptions, Until, subscribe_file
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import SqliteBus
from hotspare.projects.load import load_text
from hotspare.telemetry.log import Log
from hotspare.testing.cluster import wait_until
from tests.adapters import test_connectors
from tests.adapters.outputs import ROWS, ROWS_TEXT
from tests.adapters.outputs import publish as publish_outputs
from tests.cli.running import hotspare_here
from tests.cli.test_replay import PROJECT
from tests.small_disk import mounted

IN = Partition("p.project.cq.source.I")
OUT = "p.project.cq.window.O"


@pytest.fixture
def bus() -> Bus:
    opened = MemoryBus().client("c")
    for topic in (IN.topic, OUT):
        opened.create_topic(topic)
    return opened


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Yields a folder on a disk of 1 MiB."""
    with mounted(1 << 20) as disk:
        yield disk.folder


def publish(bus: Bus, path: Path, stop: threading.Event | None = None, **options: object) -> PublishProgress:
    return publish_file(bus, IN, path, PublishOptions(**options), stop or threading.Event())  # type: ignore[arg-type]


def rows(bus: Bus) -> list[bytes]:
    messages = bus.read(IN, 0, messages_max=100_000, bytes_max=1 << 28)
    return [row for message in messages for row in message.value.split(b"\n")]


def fill(folder: Path) -> Path:
    """Uses up all space of the disk."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return filler


def test_rows_before_an_endless_line_are_published_and_the_line_is_named(bus: Bus, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"i,n,1,a\ni,n,2,b\ni,n,3," + b"x" * (LINE_BYTES_MAX + 1_000_000) + b"\ni,n,4,d\n")
    for _ in range(2):
        with pytest.raises(UsageError, match=r"no line end within .* bytes after byte 16"):
            publish(bus, path)
        assert rows(bus) == [b"i,n,1,a", b"i,n,2,b"]


def test_a_pipe_is_refused_at_once_by_publish_and_replay(bus: Bus, tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer, and its rows cannot be read again."""
    pipe, project = tmp_path / "pipe", tmp_path / "p.yaml"
    os.mkfifo(pipe)
    project.write_text(PROJECT)
    with pytest.raises(UsageError, match="is not a regular file, so its rows cannot be read again") as refused:
        publish(bus, pipe)
    assert "tcp://" in refused.value.hint
    done = hotspare_here("replay", project, "--in", f"q/source={pipe}", "--out", f"q/big={tmp_path / 'o.csv'}")
    assert (done.returncode, "cannot be read again" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("path", [Path("/dev/null"), Path("pipe")])
def test_a_subscriber_writes_into_nothing_but_a_file(bus: Bus, tmp_path: Path, path: Path) -> None:
    """Its output must be readable again, and truncatable to the recorded position."""
    target = tmp_path / path
    if not target.exists():
        os.mkfifo(target)
    publish_outputs(bus, ROWS)
    with pytest.raises(UsageError, match="is not a regular file, so it cannot be truncated"):
        subscribe_file(bus, OUT, target, OutputRows(FileStyle()), SubscribeOptions(until=Until.END), threading.Event())


@pytest.mark.parametrize("make", ["folder", "missing"])
def test_what_is_no_file_is_named(bus: Bus, tmp_path: Path, make: str) -> None:
    path = tmp_path / "in.csv"
    if make == "folder":
        path.mkdir()
    with pytest.raises(UsageError, match=r"file .*in\.csv cannot be read"):
        publish(bus, path)


@pytest.mark.parametrize("text", [b"", b"\n\r\n  \n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"])
def test_files_without_a_row_publish_nothing(bus: Bus, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(text)
    assert publish(bus, path).events == 0
    assert rows(bus) == []


@pytest.mark.parametrize("text", [b"i,n,1,a", b"i,n,1,a\r\n", b"\xef\xbb\xbfi,n,1,a\n", b"\n\ni,n,1,a\n\n"])
def test_a_single_row_is_published_once_however_it_ends(bus: Bus, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(text)
    assert [publish(bus, path).events for _ in range(2)] == [1, 0]
    assert rows(bus) == [b"i,n,1,a"]


def test_bytes_of_any_kind_are_published_as_they_are(bus: Bus, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    odd = bytes(range(256)).replace(b"\n", b"").replace(b"\r", b"").replace(b'"', b"")
    path.write_bytes(b"i,n,1," + odd + b"\ni,n,2,\0\n")
    publish(bus, path)
    assert b"".join(rows(bus)).count(b"\0") == 2
    assert len(rows(bus)) == 2


@pytest.mark.parametrize("anew", [b"", b"i,n,7,z\n", b"i,n,7,z\n" * 100])
def test_a_growing_file_that_is_cut_and_written_anew_is_noticed(bus: Bus, tmp_path: Path, anew: bytes) -> None:
    """Also if the file is longer than before at the next check."""
    path, failed = tmp_path / "in.csv", list[str]()
    path.write_bytes(b"i,n,1,a\ni,n,2,b\n")

    def work() -> None:
        try:
            publish(bus, path, growth=Growth.GROWING)
        except UsageError as error:
            failed.append(str(error))

    publisher = threading.Thread(target=work)
    publisher.start()
    wait_until(lambda: len(rows(bus)) == 2, "the rows")
    with path.open("r+b") as file:  # in one call each, so that no check falls between
        file.write(anew or b"i,n,9,y\ni,n,9,y\n")
        file.truncate(len(anew) or 3)
        file.seek(0, os.SEEK_END)
        file.write(b"i,n,8,x\n" if anew == b"" else b"")
    publisher.join(120)
    assert not publisher.is_alive()
    assert "has changed since its rows were read" in failed[0]
    assert rows(bus) == [b"i,n,1,a", b"i,n,2,b"]


def test_a_subscriber_on_a_full_disk_says_so_and_goes_on_when_there_is_room(bus: Bus, small_disk: Path) -> None:
    path = small_disk / "out.csv"
    publish_outputs(bus, ROWS)
    options = SubscribeOptions(until=Until.END)

    def subscribe() -> None:
        subscribe_file(bus, OUT, path, OutputRows(FileStyle()), options, threading.Event())

    subscribe()
    filler = fill(small_disk)
    for number in range(200):
        publish_outputs(bus, ROWS, first_sequence=6 + 5 * number)
    with pytest.raises(UsageError, match=r"file .*out\.csv cannot be written now") as refused:
        subscribe()
    assert refused.value.retryable
    assert "No space left" in refused.value.detail
    filler.unlink()
    subscribe()
    assert path.read_bytes() == ROWS_TEXT * 201


def test_a_connector_on_a_full_disk_waits_for_room(bus: Bus, small_disk: Path) -> None:
    publish_outputs(bus, ROWS)
    (small_disk / "in.csv").touch()
    engine = ConnectorSet(load_text(test_connectors.PROJECT, "project.yaml").resolved, bus, "p", small_disk, Log())
    filler = fill(small_disk)
    engine.start(1)
    wait_until(lambda: (small_disk / "out.csv").exists(), "a try")
    assert engine.states()["cq/window/writer"] is ConnectorState.RUNNING
    filler.unlink()
    wait_until(lambda: (small_disk / "out.csv").read_bytes() == ROWS_TEXT, "the rows")
    engine.stop()


def test_a_publisher_tells_why_it_waits_for_a_full_bus_and_goes_on(small_disk: Path, tmp_path: Path) -> None:
    bus = SqliteBus(small_disk / "bus.db")
    bus.create_topic(IN.topic)
    path, expected = tmp_path / "in.csv", [b"i,n,%d,%s" % (number, b"y" * 50) for number in range(2000)]
    path.write_bytes(b"".join(row + b"\n" for row in expected))
    filler, told = fill(small_disk), list[BusError]()

    def troubled(error: BusError) -> None:
        told.append(error)
        filler.unlink(missing_ok=True)

    done = publish_file(bus, IN, path, PublishOptions(report_after_s=0.1), threading.Event(), troubled=troubled)
    assert done.events == 2000
    assert "full" in str(told[0])
    assert rows(bus) == expected
    bus.close()


def test_replay_onto_a_full_disk_names_the_file(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no device that is always full")
    project, rows_file = tmp_path / "p.yaml", tmp_path / "in.csv"
    project.write_text(PROJECT)
    rows_file.write_bytes(b"".join(b"i,n,%d,0,5\n" % number for number in range(10)))
    done = hotspare_here("replay", project, "--in", f"q/source={rows_file}", "--out", f"q/big={full}")
    assert (done.returncode, "file /dev/full cannot be written now" in done.stderr) == (2, True), done.stderr
