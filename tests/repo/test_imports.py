"""Imports point one way, third-party packages have owners, and `import hotspare` stays light (design, sections 7 and 8)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.repo.imports import DECLARATION_SIDE, MAY_IMPORT, circle, direction, ownership, rooms, slices
from tests.repo.tree import ROOT, Source, sources, violations, whats

HEAVY = ("pyspark", "py4j", "numba", "llvmlite", "confluent_kafka")


def test_every_import_points_up_the_table() -> None:
    assert violations(direction, sources("src")) == []


def test_every_import_of_a_folder_is_of_one_before_it() -> None:
    assert violations(rooms, sources("src")) == []


def test_a_window_type_imports_no_other_one() -> None:
    assert violations(slices, sources("src")) == []
    paths = {source.path for source in sources("src")}
    listed = [f"src/hotspare/windows/{type_}/{name}.py" for type_, names in DECLARATION_SIDE.items() for name in sorted(names)]
    assert [path for path in listed if path not in paths] == []


def test_no_modules_import_each_other() -> None:
    assert circle(sources("src")) == ()


def test_packages_are_imported_by_their_owner_only() -> None:
    assert violations(ownership, sources("src")) == []


def test_every_benchmark_can_be_imported() -> None:
    """Checks that all imports exist, since benchmarks are not run at each change. The job for Flink runs in Flink's own Python."""
    names = [source.module for source in sources("benchmarks") if source.module != "benchmarks.flink.job"]
    program = f"import importlib\nfor name in {names!r}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_package_imports_only_packages_above_it_in_the_table() -> None:
    order = list(MAY_IMPORT)
    for at, (package, others) in enumerate(MAY_IMPORT.items()):
        assert others <= set(order[:at]), f"{package}: {sorted(others - set(order[:at]))}"


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/hotspare/model/x.py", "from hotspare.flow.step import step", "model must not import flow"),
        ("src/hotspare/model/x.py", "from hotspare import flow", "model must not import flow"),
        ("src/hotspare/model/x.py", "import hotspare.flow.step", "model must not import flow"),
        ("src/hotspare/model/x.py", "from ..flow import step", "model must not import flow"),
        ("src/hotspare/model/x.py", "from .. import flow", "model must not import flow"),
        ("src/hotspare/model/__init__.py", "from ..flow import step", "model must not import flow"),
        ("src/hotspare/bus/x.py", "def f():\n    from hotspare.model.types import Schema", "bus must not import model"),
        (
            "src/hotspare/bus/x.py",
            "import importlib\nimportlib.import_module('hotspare.ha.rules.decide')",
            "bus must not import ha",
        ),
        ("src/hotspare/stores/x.py", "if TYPE_CHECKING:\n    from hotspare.bus.contract import Bus", "stores must not import bus"),
        ("src/hotspare/flow/x.py", "from hotspare.bus.contract import Bus", "flow must not import bus"),
        ("src/hotspare/model/x.py", "from hotspare.windows.registry import WINDOW_TYPES", "model must not import windows"),
        ("src/hotspare/ha/x.py", "from hotspare.runners.local import LocalRunner", "ha must not import runners"),
        ("src/hotspare/adapters/x.py", "from hotspare.cli.main import main", "adapters must not import cli"),
        ("src/hotspare/newpart/x.py", "", "package newpart is not in MAY_IMPORT"),
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
            "src/hotspare/table/loops/x.py",
            "def f():\n    import hotspare.table.page_cache.budget",
            "table/loops must not import table/page_cache",
        ),
    ],
)
def test_rooms_bite(path: str, text: str, expected: str) -> None:
    assert whats(rooms, path, text) == [expected]


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        (
            "windows/copy/operator.py",
            "from hotspare.windows.join.operator import JoinOperator",
            "windows/copy must not import windows/join",
        ),
        ("windows/shared/x.py", "from hotspare.windows.join import loops", "windows/shared must not import windows/join"),
        (
            "windows/join/declaration.py",
            "from hotspare.windows.join.loops import join",
            "the declaration of join must not import windows/join/loops",
        ),
        (
            "windows/join/outputs.py",
            "from hotspare.windows.shared.keyed import relation_of",
            "the declaration of join must not import windows/shared/keyed",
        ),
        ("windows/join/declaration.py", "from hotspare.rows.chunk import Chunk", "a declaration must not import rows"),
        (
            "windows/registry.py",
            "from hotspare.windows.join.operator import x",
            "the registry must not import windows/join/operator",
        ),
        ("projects/x.py", "from hotspare.windows.join.declaration import JoinType", "projects must not import windows/join"),
    ],
)
def test_slices_bite(path: str, text: str, expected: str) -> None:
    assert whats(slices, f"src/hotspare/{path}", text) == [expected]


def test_slices_allow() -> None:
    own = "from hotspare.windows.join.loops import join\nfrom hotspare.windows.shared.keyed import relation_of"
    assert whats(slices, "src/hotspare/windows/join/operator.py", own) == []
    assert whats(slices, "src/hotspare/windows/join/declaration.py", "from hotspare.windows.join.outputs import x") == []
    assert whats(slices, "src/hotspare/flow/plan.py", "from hotspare.windows.shared.contract import Operator") == []


def test_a_circle_is_named() -> None:
    one = Source.of("src/hotspare/model/a.py", "from hotspare.model import b")
    other = Source.of("src/hotspare/model/b.py", "def f():\n    from hotspare.model.a import x")
    assert set(circle([one, other])) == {"hotspare.model.a", "hotspare.model.b"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/hotspare/flow/x.py", "from hotspare.model.types import Schema\nfrom hotspare.base.errors import StateError"),
        ("src/hotspare/windows/shared/x.py", "from . import keyed\nfrom .contract import Operator\nimport numpy"),
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
        ("src/hotspare/flow/x.py", "import pyspark.sql", "pyspark"),
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
        ("src/hotspare/bus/kafka/bus.py", "import confluent_kafka"),
        ("src/hotspare/bus/sqlite.py", "import sqlite3"),
    ],
)
def test_ownership_allows(path: str, text: str) -> None:
    assert whats(ownership, path, text) == []


@pytest.mark.parametrize("module", ["hotspare", "hotspare.cli.main", "hotspare.projects.load", "hotspare.projects.fingerprint"])
def test_import_loads_no_heavy_package(module: str) -> None:
    program = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": "src"}, check=False
    )
    assert (run.stdout.strip(), run.stderr) == ("", "")
