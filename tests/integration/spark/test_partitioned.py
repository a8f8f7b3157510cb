"""Spark's view of an application's tasks: where they are, and never a secret."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import psutil
import pytest

from hotspare.runners.spark.partitioned.cluster import SparkCluster, SparkClusterOptions, parse_master
from hotspare.runners.spark.partitioned.jobs import TaskJobs
from hotspare.runners.spark.partitioned.place import TaskPlace
from hotspare.runners.spark.settings import LIMITS
from hotspare.testing.cluster import wait_until

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]
WAIT_S = 120
SECRET = "not-for-others-9f2c"


@pytest.fixture(autouse=True)
def tasks_find_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "src"), str(ROOT))))


@contextlib.contextmanager
def started(master: str, wanted: int, **conf: str) -> Iterator[SparkCluster]:
    cluster = SparkCluster(SparkClusterOptions(parse_master(master), "tasks", wanted, conf))
    try:
        yield cluster
    finally:
        cluster.stop()


def lasting(secret: str, said: str, place: TaskPlace) -> str:
    """Writes its place to a file, and runs until it is killed."""
    fresh = Path(said, f".{place.stage}-{place.id}")
    fresh.write_text(f"{place.attempt} {os.getpid()}")
    fresh.rename(Path(said, f"{place.stage}-{place.id}"))
    threading.Event().wait()
    return secret


def places_in(folder: Path) -> dict[TaskPlace, int]:
    """Returns the places that tasks wrote, the earliest first, with their process ids."""
    found = {}
    for path in folder.glob("[0-9]*"):
        attempt, process = map(int, path.read_text().split())
        found[TaskPlace(attempt, *map(int, path.name.split("-")))] = process
    return dict(sorted(found.items(), key=lambda each: each[0].id))


def returning(secret: str, place: TaskPlace) -> tuple[int, int]:
    return len(secret), place.attempt


def test_jobs_return_what_their_task_did_and_say_when_they_are_broken_off_and_whose_attempt_is_over(tmp_path: Path) -> None:
    ends: SimpleQueue[tuple[object, object]] = SimpleQueue()
    with started("local[2]", 2) as cluster:
        assert cluster.await_slots() == 2
        jobs = TaskJobs(cluster)
        jobs.start("quick", "returns", partial(returning, SECRET), lambda *end: ends.put(end))
        assert ends.get(timeout=WAIT_S) == ((len(SECRET), 0), None)
        jobs.start("slow", "lasts", partial(lasting, SECRET, str(tmp_path)), lambda *end: ends.put(end))
        wait_until(lambda: len(places_in(tmp_path)) == 1, "it runs", WAIT_S)
        ((first, process),) = places_in(tmp_path).items()
        assert not jobs.is_over(first)
        assert jobs.running("quick") is None
        running = jobs.running("slow")
        assert running is not None
        assert (running.executor, 0 <= running.runs_ms < WAIT_S * 1_000) == ("driver", True)
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: len(places_in(tmp_path)) == 2, "it runs again, in the same job", WAIT_S)
        _, second = places_in(tmp_path)
        assert (first.stage, first.attempt, second.stage, second.attempt) == (first.stage, 0, first.stage, 1)
        assert (jobs.is_over(first), jobs.is_over(second)) == (True, False)
        jobs.cancel("slow")
        returned, error = ends.get(timeout=WAIT_S)
        assert returned is None
        assert "slow was aborted" in str(error)
        wait_until(lambda: jobs.running("slow") is None, "its slot is free", WAIT_S)


def test_executors_are_known_and_replaced_and_no_secret_is_seen(tmp_path: Path) -> None:
    """The secret is in no setting, no event log, and no command line of any process below the driver."""
    events, places = tmp_path / "events", tmp_path / "places"
    events.mkdir()
    places.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.hidden": SECRET[::-1]}
    with started("local-cluster[2,1,1024]", 2, **conf) as cluster:
        assert cluster.await_slots() == 2
        settings = dict(cluster.session.spark.sparkContext.getConf().getAll())
        assert {limit.setting: settings[limit.setting] for limit in LIMITS} == {limit.setting: limit.value for limit in LIMITS}
        jobs = TaskJobs(cluster)
        for number in range(2):
            jobs.start(f"task {number}", "lasts", partial(lasting, SECRET, str(places)), lambda *_: None)
        wait_until(lambda: len(places_in(places)) == 2, "both run", WAIT_S)
        found = {jobs.executor_of(place): place for place in places_in(places)}
        assert sorted(found) == ["0", "1"]
        commands = [word for child in psutil.Process().children(recursive=True) for word in child.cmdline()]
        assert not any(SECRET in word or SECRET[::-1] in word for word in commands)
        assert SECRET not in str(settings)
        jobs.end_executor("0")
        wait_until(lambda: len(places_in(places)) == 3, "the task of the executor that was ended runs again", WAIT_S)
        (again,) = places_in(places).keys() - set(found.values())
        assert again.attempt == 1
        assert [jobs.is_over(place) for place in (found["0"], found["1"], again)] == [True, False, False]
    written = [path for path in events.rglob("*") if path.is_file()]
    assert written
    assert not any(SECRET.encode() in path.read_bytes() for path in written)
