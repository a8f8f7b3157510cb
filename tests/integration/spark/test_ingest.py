"""Rows pass Spark's scan: Spark counts them, names offsets and shows its tasks; what dies below the driver loses nothing."""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import EndCause, RunnerEnd, RunnerInput, SourceTopic, SparkOptions
from hotspare.runners.spark.ordered import OrderedRunner
from hotspare.testing.cluster import wait_until
from tests.integration.spark.subject import head

pytestmark = pytest.mark.spark

WAIT_S = 240
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
PARTITIONS, MESSAGES = 4, 4_000
TOPICS = (SourceTopic("rows", PARTITIONS),)
WORKER = ["pyspark.daemon", "pyspark.worker"]


class Counted:
    """Counts the messages that a runner delivers, by partition and offset."""

    def __init__(self) -> None:
        self.messages: Counter[tuple[int, int]] = Counter()
        self.misplaced = 0
        self.ends: list[RunnerEnd] = []
        self._newest: dict[int, int] = {}
        self._changed = threading.Condition()

    def take(self, table: pa.Table, _: NextInput) -> None:
        with self._changed:
            for partition, offset in zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True):
                self.misplaced += offset < self._newest.get(partition, 0)
                self._newest[partition] = offset
                self.messages[partition, offset] += 1
            self._changed.notify_all()

    def ended(self, end: RunnerEnd) -> None:
        with self._changed:
            self.ends.append(end)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count or self.ends, WAIT_S)
        assert not self.ends, self.ends[0].error

    @property
    def is_exact(self) -> bool:
        return not self.misplaced and set(self.messages.values()) == {1}


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'bus.db'}"
    bus = open_bus(url)
    bus.create_topic("rows", PARTITIONS)
    bus.close()
    append(url, 0, MESSAGES // 2)
    return url


def append(url: str, first: int, end: int) -> None:
    bus = open_bus(url)
    for partition in range(PARTITIONS):
        messages = [Outgoing(b"i,n,%d,1.5,a" % i) for i in range(first, end) if i % PARTITIONS == partition]
        bus.append(Partition("rows", partition), messages)
    bus.close()


@contextmanager
def running(url: str, spark: SparkOptions) -> Iterator[tuple[Counted, OrderedRunner]]:
    counted = Counted()
    runner = OrderedRunner(RunnerInput(url, TOPICS, head()), counted.take, counted.ended, spark=spark)
    runner.start({})
    try:
        yield counted, runner
    finally:
        runner.stop()
    assert counted.ends == [RunnerEnd(EndCause.STOPPED)]


def progress_of(folder: Path) -> list[dict[str, Any]]:
    """Returns the progress of the source in each micro-batch, from Spark's event log."""
    lines = [line for path in folder.rglob("*") if path.is_file() for line in path.read_text(errors="replace").splitlines()]
    events = [json.loads(line) for line in lines if "QueryProgressEvent" in line]
    return [source for event in events for source in event["progress"]["sources"]]


def test_spark_counts_each_message_and_names_offsets_and_no_file_of_it_has_a_secret(url: str, tmp_path: Path) -> None:
    log = tmp_path / "events"
    log.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": log.as_uri()}
    with running(url, SparkOptions(conf=conf)) as (counted, runner):
        counted.wait_for(MESSAGES // 2)
        append(url, MESSAGES // 2, MESSAGES)
        counted.wait_for(MESSAGES)
        spans = runner._spans
        assert spans is not None
        secret = spans.address.secret
    assert counted.is_exact
    progress = progress_of(log)
    assert sum(each["numInputRows"] for each in progress) == MESSAGES
    offsets = [json.loads(each["endOffset"])["offsets"]["rows"] for each in progress]
    assert dict.fromkeys(map(str, range(PARTITIONS)), 0) in offsets
    written = b"".join(path.read_bytes() for path in log.rglob("*") if path.is_file())
    assert url.encode() not in written
    assert not any(form in written for form in (secret, secret.hex().encode(), base64.b64encode(secret)))


def workers_below(pid: int) -> list[int]:
    """Returns the ids of Python workers, without the daemons that fork them."""
    found = [child for child in psutil.Process(pid).children(recursive=True) if command(child)[-2:] == WORKER]
    daemons = {child.ppid() for child in found}
    return [child.pid for child in found if child.pid not in daemons]


def command(process: psutil.Process) -> list[str]:
    """Returns the words of a process's command; none for a process that is ending."""
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def test_a_killed_worker_is_replaced_and_loses_nothing(url: str) -> None:
    with running(url, SparkOptions()) as (counted, runner):
        counted.wait_for(MESSAGES // 2)
        for pid in workers_below(runner.session.jvm.pid):
            os.kill(pid, signal.SIGKILL)
        append(url, MESSAGES // 2, MESSAGES)
        counted.wait_for(MESSAGES)
    assert counted.is_exact


@pytest.mark.timeout(600)
def test_a_killed_executor_is_replaced_and_loses_nothing(url: str) -> None:
    with running(url, SparkOptions("local-cluster[2,1,512]")) as (counted, runner):
        counted.wait_for(MESSAGES // 2)
        executors = [
            child for child in psutil.Process(runner.session.jvm.pid).children(recursive=True) if EXECUTOR in command(child)
        ]
        assert len(executors) == 2
        executors[0].kill()
        append(url, MESSAGES // 2, MESSAGES)
        counted.wait_for(MESSAGES)
    assert counted.is_exact


def test_the_user_interface_is_at_the_port_that_was_named(url: str) -> None:
    from urllib.request import urlopen

    with running(url, SparkOptions(ui_port=4_311)) as (counted, runner):
        counted.wait_for(MESSAGES // 2)
        address = runner.ui_url
        (application,) = json.loads(urlopen(f"{address}/api/v1/applications").read())
        stages = f"{address}/api/v1/applications/{application['id']}/stages?status=active"
        wait_until(lambda: [stage["numActiveTasks"] for stage in json.loads(urlopen(stages).read())] == [2], "tasks", WAIT_S)
