"""Warming up reaches every kernel, so a running engine never compiles; with all on disk it loads what a project needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.laws.kernel_inputs import GENERATORS

ROOT = Path(__file__).parents[2]

_PROGRAM = """
from hotspare.rows import compile as kernels
from hotspare.flow.warm import warm_up
from hotspare.rows.compile import import_all
import_all()
warm_up()
print(*(name for name, kernel in sorted(kernels.KERNELS.items()) if kernel.signatures))
"""


def test_every_kernel_is_compiled() -> None:
    """Runs in a process of its own. Kernels that only kernels call are compiled with their callers."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    called_by_python = set(GENERATORS) - {"hashing.xxh64", "index.add", "index.has_room", "multi_index.first_in_order"}
    assert sorted(called_by_python - set(done.stdout.split())) == []


_OF_PROJECT = """
import sys
from pathlib import Path
from hotspare.rows import compile as kernels
from hotspare.rows import kernel_files
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.flow.warm import batch, warm_up
from hotspare.host.kernels import load_kernels, needs_compiling
from hotspare.projects.load import load_project

def loaded():
    return {(name, signature) for name, kernel in kernels.KERNELS.items() for signature in kernel.signatures}

resolved = load_project(Path(sys.argv[1])).resolved
assert not needs_compiling(resolved)
load_kernels(resolved)
few = loaded()
plan = compile_plan(resolved)
pipeline = Pipeline.fresh(plan)
head = Head.from_plan(plan)
for turn in range(3):
    pipeline.feed(head.decode(batch(plan, turn)))
frozen = pipeline.freeze()
Pipeline.restore(plan, frozen.header, dict(frozen.pages())).feed(head.decode(batch(plan, 3)))
late = sorted({name for name, _ in loaded() - few})
warm_up()
print(len(few), len(loaded()), *late, *kernel_files.compiled_here())
"""
_PROJECTS = ["src/hotspare/demo/sensors.yaml", *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("examples/*/*.yaml")))]


@pytest.fixture(scope="module")
def everything_on_disk() -> None:
    subprocess.run([sys.executable, "-m", "hotspare.host.kernels"], check=True)


@pytest.mark.usefixtures("everything_on_disk")
@pytest.mark.parametrize("project", _PROJECTS)
def test_an_engine_loads_what_its_project_needs_and_nothing_else(project: str) -> None:
    """Runs in a process of its own, with everything on disk."""
    done = subprocess.run([sys.executable, "-c", _OF_PROJECT, ROOT / project], capture_output=True, text=True, check=True)
    own, all_of_them, *late = done.stdout.split()
    assert late == []
    assert int(own) < int(all_of_them)
