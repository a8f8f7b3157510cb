"""Imports point one way, third-party packages have owners, and `import hotspare` stays light (design, sections 7 and 8)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.repo.imports import MAY_IMPORT, circle, direction, ownership, rooms
from tests.repo.tree import ROOT, Source, sources, violations, whats

HEAVY = ("pyspark", "py4j", "numba", "llvmlite", "confluent_kafka")


def test_every_import_points_down_the_layers() -> None:
    assert violations(direction, sources("src")) == []


def test_every_import_points_down_the_folders_of_a_part() -> None:
    assert violations(rooms, sources("src")) == []


def test_no_modules_import_each_other() -> None:
    assert circle(sources("src")) == ()


def test_packages_are_imported_by_their_owner_only() -> None:
    assert violations(ownership, sources("src")) == []


def test_every_benchmark_can_be_imported() -> None:
    """What it takes from others is there: nobody runs all of them at each change. The job for Flink runs in Flink's own Python."""
    names = [source.module for source in sources("benchmarks") if source.module != "benchmarks.flink.job"]
    program = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_layers_have_no_cycle() -> None:
    settled: set[str] = set()
    while len(settled) < len(MAY_IMPORT):
        free = {part for part, others in MAY_IMPORT.items() if part not in settled and others <= settled}
        assert free, f"parts that know each other: {sorted(set(MAY_IMPORT) - settled)}"
        settled |= free


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/hotspare/model/x.py", "from hotspare.flow.step import step", "model must not import engine"),
        ("src/hotspare/model/x.py", "from hotspare import engine", "model must not import engine"),
        ("src/hotspare/model/x.py", "import hotspare.flow.step", "model must not import engine"),
        ("src/hotspare/model/x.py", "from ..engine import step", "model must not import engine"),
        ("src/hotspare/model/x.py", "from .. import engine", "model must not import engine"),
        ("src/hotspare/model/__init__.py", "from ..engine import step", "model must not import engine"),
        ("src/hotspare/bus/x.py", "def f():\n    from hotspare.model.types import Schema", "bus must not import model"),
        (
            "src/hotspare/bus/x.py",
            "import importlib\nimportlib.import_module('hotspare.ha.rules.decide')",
            "bus must not import ha",
        ),
        ("src/hotspare/stores/x.py", "if TYPE_CHECKING:\n    from hotspare.bus.contract import Bus", "stores must not import bus"),
        ("src/hotspare/engine/x.py", "from hotspare.bus.contract import Bus", "engine must not import bus"),
        ("src/hotspare/ha/x.py", "from hotspare.runners.local import LocalRunner", "ha must not import runners"),
        ("src/hotspare/adapters/x.py", "from hotspare.cli.main import main", "adapters must not import cli"),
        ("src/hotspare/newpart/x.py", "", "part newpart has no place in the layers"),
    ],
)
def test_direction_bites(path: str, text: str, expected: str) -> None:
    assert whats(direction, path, text) == [expected]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/hotspare/ha/rules/x.py", "from hotspare.ha.effects.perform import perform", "ha/rules must not import ha/effects"),
        ("src/hotspare/ha/rules/x.py", "from hotspare.ha.effects import perform", "ha/rules must not import ha/effects"),
        (
            "src/hotspare/engine/rows/x.py",
            "def f():\n    import hotspare.table.pages",
            "engine/rows must not import engine/state",
        ),
    ],
)
def test_rooms_bite(path: str, text: str, expected: str) -> None:
    assert whats(rooms, path, text) == [expected]


def test_a_circle_is_named() -> None:
    one = Source.of("src/hotspare/model/a.py", "from hotspare.model import b")
    other = Source.of("src/hotspare/model/b.py", "def f():\n    from hotspare.model.a import x")
    assert set(circle([one, other])) == {"hotspare.model.a", "hotspare.model.b"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/hotspare/engine/x.py", "from hotspare.model.types import Schema\nfrom hotspare.base.errors import StateError"),
        ("src/hotspare/engine/x.py", "from . import batch\nfrom .operators import contract\nimport numpy"),
        ("src/hotspare/ha/x.py", "from hotspare.bus.contract import Bus\nfrom hotspare import __version__"),
        ("src/hotspare/cli/x.py", "from hotspare.runners.local import LocalRunner"),
        ("src/hotspare/__init__.py", "__version__ = '1'"),
    ],
)
def test_direction_allows(path: str, text: str) -> None:
    assert whats(direction, path, text) == []


@pytest.mark.parametrize(
    ("path", "text", "package"),
    [
        ("src/hotspare/engine/x.py", "import pyspark.sql", "pyspark"),
        ("src/hotspare/runners/local.py", "def f():\n    from pyspark.sql import SparkSession", "pyspark"),
        ("src/hotspare/cli/x.py", "__import__('py4j')", "py4j"),
        ("src/hotspare/bus/sqlite.py", "import confluent_kafka", "confluent_kafka"),
        ("src/hotspare/ha/x.py", "import sqlite3", "sqlite3"),
        ("src/hotspare/ha/x.py", "import numba", "numba"),
    ],
)
def test_ownership_bites(path: str, text: str, package: str) -> None:
    (what,) = whats(ownership, path, text)
    assert what.startswith("only ") and what.endswith(f"may import {package}")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/hotspare/runners/spark/session.py", "from pyspark.sql import SparkSession"),
        ("src/hotspare/bus/kafka/producer.py", "import confluent_kafka"),
        ("src/hotspare/bus/sqlite.py", "import sqlite3"),
    ],
)
def test_ownership_allows(path: str, text: str) -> None:
    assert whats(ownership, path, text) == []


@pytest.mark.parametrize("module", ["hotspare", "hotspare.cli.main"])
def test_import_loads_no_heavy_package(module: str) -> None:
    program = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": "src"}, check=False
    )
    assert (run.stdout.strip(), run.stderr) == ("", "")
