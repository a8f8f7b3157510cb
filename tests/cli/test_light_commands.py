"""Commands that run no window load neither numba nor Spark: they are quick, also on a machine that has compiled nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hotspare.windows.registry import WINDOW_TYPES, examples_project

ROOT = Path(__file__).parents[2]
_PROGRAM = """
import sys
from hotspare.cli.main import main
try:
    main()
except SystemExit as ended:
    print(ended.code or 0, *({"numba", "llvmlite", "pyspark", "py4j"} & {*sys.modules}), file=sys.stderr)
"""
_PROJECTS = [
    *(ROOT / f"examples/{name}.yaml" for name in ("payments/payments", "motors/motors", "history/cards")),
    ROOT / "tests/documents/pages/sas/orders.xml",
]


def _ended(*words: str | Path) -> str:
    """Runs a command in a process of its own; returns its exit status and the heavy packages that it loaded."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *words], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("project", _PROJECTS, ids=lambda path: path.name)
def test_validate(project: Path) -> None:
    assert _ended("validate", project) == "0"


def test_validate_with_every_type_of_window(tmp_path: Path) -> None:
    """Building an operator and its empty state calls no kernel."""
    project = tmp_path / "project.yaml"
    project.write_text(examples_project(WINDOW_TYPES))
    assert _ended("validate", project) == "0"


def test_publish_and_status(tmp_path: Path) -> None:
    """A bus without a group: one file is refused, another is the first."""
    folder = ROOT / "examples/payments"
    bus, rows, window = f"--bus=sqlite:///{tmp_path}/bus.db", folder / "payments.csv", "--window=payments/fraud/payments"
    assert _ended("publish", rows, bus, window) == "2"
    assert _ended("publish", rows, bus, window, "--project", folder / "payments.yaml", "--create") == "0"
    assert _ended("status", bus) == "1"
