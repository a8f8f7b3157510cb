"""Masters of Spark on a command line, slots that appear late, and the parts of the package that are sent to executors."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from hotspare.base.errors import UsageError
from hotspare.rows import kernel_files
from hotspare.runners.spark.partitioned import cluster
from hotspare.runners.spark.partitioned.cluster import SLOTS_QUIET_S, SLOTS_TIMEOUT_S, Master, await_stable_slots, parse_master


@pytest.mark.parametrize(
    ("text", "master"),
    [
        ("local", Master("local[1,1000000]", 1, has_executors=False)),
        ("local[3]", Master("local[3,1000000]", 3, has_executors=False)),
        ("local[3,1]", Master("local[3,1000000]", 3, has_executors=False)),
        ("local[*]", Master(f"local[{os.cpu_count()},1000000]", os.cpu_count(), has_executors=False)),
        ("local-cluster[2,3,1024]", Master("local-cluster[2,3,1024]", 6, 1024)),
        ("spark://a:7077", Master("spark://a:7077", is_local=False)),
        ("yarn", Master("yarn", is_local=False)),
        ("k8s://https://a:6443", Master("k8s://https://a:6443", is_local=False)),
    ],
)
def test_master(text: str, master: Master) -> None:
    assert parse_master(text) == master


@pytest.mark.parametrize("text", ["", "local[]", "local[x]", "local-cluster[2,1]", "mesos://a", "spark://", "yarn-client"])
def test_what_is_no_master_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a master of Spark"):
        parse_master(text)


class Slots:
    """Slots that appear at certain seconds."""

    def __init__(self, *come_s: float) -> None:
        self.now_s, self._come_s = 0.0, come_s
        self.told: list[tuple[int, int]] = []

    def came(self, wanted: int) -> int:
        return await_stable_slots(self._look, wanted, lambda *told: self.told.append(told), self._wait, lambda: self.now_s)

    def _look(self) -> int:
        return sum(second <= self.now_s for second in self._come_s)

    def _wait(self, duration_s: float) -> None:
        self.now_s += duration_s


def test_slots_are_waited_for_as_long_as_they_come() -> None:
    slots = Slots(0, 15, 30, 31)
    assert slots.came(4) == 4
    assert slots.told == [(1, 4), (2, 4), (3, 4)]
    assert 31 <= slots.now_s < 32


def test_who_has_some_does_not_wait_long_for_others() -> None:
    slots = Slots(60, 61)
    assert slots.came(64) == 2
    assert slots.told == [(0, 64), (1, 64), (2, 64)]
    assert 61 + SLOTS_QUIET_S <= slots.now_s < 62 + SLOTS_QUIET_S


def test_executors_that_come_and_go_keep_no_application_from_its_beginning() -> None:
    slots = Slots(*range(0, 1_000, 10))
    assert 12 <= slots.came(64) <= 13
    assert slots.now_s < SLOTS_TIMEOUT_S + 1


def test_a_cluster_without_any_is_given_up() -> None:
    slots = Slots()
    assert slots.came(2) == 0
    assert SLOTS_TIMEOUT_S <= slots.now_s < SLOTS_TIMEOUT_S + 1


def test_as_many_as_are_wanted_are_not_waited_for() -> None:
    slots = Slots(0, 0, 0)
    assert slots.came(2) == 3
    assert (slots.told, slots.now_s) == ([], 0)


def test_the_package_has_the_machine_code_of_this_process_and_no_compiled_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package, code = tmp_path / "hotspare", tmp_path / "kernels/a.1.nbc"
    for path in (package / "__init__.py", package / "__pycache__/a.pyc", package / "machine_code/old.1.nbc", code):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    monkeypatch.setattr(cluster, "hotspare", SimpleNamespace(__file__=str(package / "__init__.py")))
    monkeypatch.setattr(kernel_files, "files", lambda: iter([code]))
    found = {name: path for path, name in cluster._package_files() if path.is_file()}
    assert found == {"hotspare/__init__.py": package / "__init__.py", "hotspare/machine_code/a.1.nbc": code}
