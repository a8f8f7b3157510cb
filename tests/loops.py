"""Imports the modules with kernels, for tests of every kernel."""

from __future__ import annotations

import importlib
from pathlib import Path

import hotspare
from hotspare.rows import compile as kernels


def import_loops() -> None:
    """Imports every module with kernels: `KERNELS` is complete then."""
    top = Path(hotspare.__file__).parents[1]
    for path in kernels.loops():
        importlib.import_module(".".join(path.relative_to(top).with_suffix("").parts))
