"""`hotspare dev`: servers that outlive the command, are found again by their record, and are the only ones that it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from hotspare.base.processes import process_start
from hotspare.coordination.open import open_coordination
from hotspare.testing.cluster import wait_until
from hotspare.testing.dev_servers import DevKind, DevRecord, identify_process, read_record, running_record, take_down, write_record
from tests.cli.running import hotspare

pytestmark = pytest.mark.servers

WAIT_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "dev"
    take_down(tmp_path / "dev", DevKind.ZOOKEEPER)


def record_of(folder: Path) -> DevRecord:
    record = read_record(folder, DevKind.ZOOKEEPER)
    assert record is not None
    return record


def test_up_once_and_again_status_down(folder: Path) -> None:
    up = hotspare("dev", "zookeeper", "up", "--folder", folder)
    assert up.returncode == 0, up.stderr
    url = up.stdout.strip()
    assert re.fullmatch(r"zookeeper://127\.0\.0\.1:\d+", url)
    open_coordination(url).close()
    assert hotspare("dev", "zookeeper", "up", "--folder", folder).stdout.strip() == url
    record = record_of(folder)
    status = hotspare("dev", "zookeeper", "status", "--folder", folder)
    assert (status.returncode, status.stdout.splitlines()) == (
        0,
        [f"zookeeper is up: {url}", f"  zookeeper: process {record.servers[0].process_id}"],
    )
    down = hotspare("dev", "zookeeper", "down", "--folder", folder)
    assert (down.returncode, down.stdout.strip()) == (0, f"zookeeper at {url} is down, and its data is gone")
    assert all(process.has_exited for process in (record.keeper, *record.servers))
    assert not (folder / "zookeeper" / "data").exists()
    status = hotspare("dev", "zookeeper", "status", "--folder", folder)
    assert (status.returncode, status.stdout.strip()) == (1, "zookeeper is not up")
    assert hotspare("dev", "zookeeper", "down", "--folder", folder).stdout.strip() == "zookeeper was not up"


def test_the_servers_end_with_their_keeper_however_it_ends(folder: Path) -> None:
    assert hotspare("dev", "zookeeper", "up", "--folder", folder).returncode == 0
    record = record_of(folder)
    record.keeper.send(signal.SIGKILL)
    everything = (record.keeper, *record.servers)
    wait_until(lambda: all(process.has_exited for process in everything), "the keeper ends, and the server with it", WAIT_S)
    assert running_record(folder, DevKind.ZOOKEEPER) is None
    assert hotspare("dev", "zookeeper", "status", "--folder", folder).returncode == 1


def test_a_process_that_was_given_the_id_of_one_of_them_is_left_alone(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        (folder / "zookeeper").mkdir(parents=True)
        process = replace(identify_process("keeper", stranger.pid), process_start=process_start(stranger.pid) - 5_000)
        write_record(folder, DevKind.ZOOKEEPER, DevRecord("zookeeper://127.0.0.1:1", process, (process,)))
        assert running_record(folder, DevKind.ZOOKEEPER) is None
        assert take_down(folder, DevKind.ZOOKEEPER) is not None
        assert read_record(folder, DevKind.ZOOKEEPER) is None
        assert psutil.Process(stranger.pid).status() != psutil.STATUS_ZOMBIE
        stranger.communicate(b"\n")
        assert stranger.returncode == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url":"x","keeper":{},"servers":[]}'])
def test_a_damaged_record_is_none(folder: Path, text: str) -> None:
    (folder / "kafka").mkdir(parents=True)
    (folder / "kafka" / "record.json").write_text(text)
    assert read_record(folder, DevKind.KAFKA) is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("kafka", "up", "--brokers", "2"), "--brokers 2 cannot be used with kafka"),
        (("zookeeper", "up", "--brokers", "3"), "--brokers 3 cannot be used with zookeeper"),
        (("kafka", "up", "--folder", "/dev/null"), "folder /dev/null/kafka cannot be used"),
        (("kafka", "restart"), "'restart' is not one of"),
        (("rabbit", "up"), "'rabbit' is not one of"),
    ],
)
def test_what_cannot_be_used(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = hotspare("dev", *arguments, XDG_STATE_HOME=str(tmp_path))
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []
