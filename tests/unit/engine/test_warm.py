"""Warming up reaches every kernel, so that a running engine never compiles."""

from __future__ import annotations

import subprocess
import sys

from tests.laws.kernel_inputs import GENERATORS

_PROGRAM = """
import importlib, pkgutil
from hotspare.engine import kernels
from hotspare.engine.warm import warm_up
for module in pkgutil.iter_modules(kernels.__path__):
    importlib.import_module(f"{kernels.__name__}.{module.name}")
warm_up()
print(*(name for name, kernel in sorted(kernels.KERNELS.items()) if kernel.signatures))
"""


def test_every_kernel_is_compiled() -> None:
    """In a process of its own. Kernels that only kernels call come with their callers."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    called_by_python = set(GENERATORS) - {"hashing.xxh64", "index.add", "index.has_room", "multi_index.first_in_order"}
    assert sorted(called_by_python - set(done.stdout.split())) == []
