"""The files for executors on other machines: archives with a Python that needs nothing of the machine, also under a real worker."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from hotspare.runners.spark.partitioned import cluster as cluster_module
from hotspare.runners.spark.partitioned.cluster import (
    EXECUTOR_PYTHON,
    Shipment,
    SparkCluster,
    SparkClusterOptions,
    parse_master,
    shipment,
)
from hotspare.runners.spark.partitioned.jobs import TaskJobs
from hotspare.runners.spark.partitioned.place import TaskPlace
from hotspare.testing.server_process import LOOPBACK
from hotspare.testing.spark_cluster import StandaloneCluster, WorkerSize

pytestmark = pytest.mark.spark
WAIT_S = 240

_LOOK = """
import importlib, os, pkgutil, sys
import hotspare
from hotspare.rows import compile as kernels
from hotspare.rows import kernel_files
from hotspare.flow.warm import warm_up

def module_names(package):
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        yield found.name
        if found.ispkg:
            yield from module_names(importlib.import_module(found.name))

for name in module_names(hotspare):
    if not name.endswith("__main__"):
        importlib.import_module(name)
warm_up()
files = [module.__file__ for module in list(sys.modules.values()) if getattr(module, "__file__", None)]
here = os.path.realpath(os.getcwd())
said = {
    "python": os.path.realpath(sys.executable),
    "here": here,
    "outside": sorted(file for file in files if not os.path.realpath(file).startswith(here + os.sep)),
    "kernels": sum(bool(kernel.signatures) for kernel in kernels.KERNELS.values()),
    "compiled anew": kernel_files.compiled_here(),
}
"""
"""Imports all of hotspare, as far as it is shipped, and runs every window type."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the environment, which is made once for both tests."""
    return tmp_path_factory.mktemp("environments")


def unpacked(sent: Shipment, folder: Path) -> None:
    """Unpacks the archives as Spark does: each in a folder of the name behind its #."""
    for archive in sent.archives.split(","):
        path, name = archive.removeprefix("file://").split("#")
        with tarfile.open(path) as opened:
            opened.extractall(folder / name, filter="tar")


def assert_complete(said: dict[str, Any]) -> None:
    assert said["python"] == str(Path(said["here"], EXECUTOR_PYTHON))
    assert said["outside"] == []
    assert said["kernels"] > 50
    assert said["compiled anew"] == []


def test_the_archives_hold_a_python_that_needs_nothing_else(cache: Path, tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    place.mkdir()
    elsewhere.mkdir()
    sent = shipment(cache, place)
    unpacked(sent, elsewhere)
    program = f"{_LOOK}\nimport json\nprint(json.dumps(said))"
    done = subprocess.run([EXECUTOR_PYTHON, "-c", program], cwd=elsewhere, env=sent.variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert_complete(json.loads(done.stdout.splitlines()[-1]))


def test_an_environment_is_made_once_and_a_package_at_each_start(cache: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    one = shipment(cache, first).archives.split(",")
    kept = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    other = shipment(cache, second).archives.split(",")
    assert one[0] == other[0]
    assert one[1] != other[1]
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir()} == kept


def looking() -> Callable[[TaskPlace], dict[str, Any]]:
    """Returns a task's function that belongs to no module, because the tests are not shipped."""
    program = _LOOK

    def look(_: TaskPlace) -> dict[str, Any]:
        found: dict[str, Any] = {}
        exec(program, found)
        return dict(found["said"])

    return look


def test_a_cluster_that_has_no_python_of_ours_gets_it(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python is not configured: the worker's own variables have no valid path, and its folder has the shipped files."""
    monkeypatch.setattr(cluster_module, "shipment", lambda _, place: shipment(cache, place))
    ends: SimpleQueue[tuple[object, object]] = SimpleQueue()
    monkeypatch.setenv("PYTHONPATH", os.devnull)
    with StandaloneCluster(tmp_path / "spark", LOOPBACK, [LOOPBACK], WorkerSize(cores=1, memory_mib=1_024)) as servers:
        cluster = SparkCluster(SparkClusterOptions(parse_master(servers.url), "tasks", 1, {"spark.executor.memory": "512m"}))
        try:
            assert cluster.await_slots() == 1
            TaskJobs(cluster).start("look", "looks around", looking(), lambda *end: ends.put(end))
            said, error = ends.get(timeout=WAIT_S)
        finally:
            cluster.stop()
    assert error is None
    assert isinstance(said, dict)
    assert said["here"].startswith(str(tmp_path / "spark" / "work-1"))
    assert_complete(said)
