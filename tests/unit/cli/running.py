"""Runs the command as a process of its own, as users and scripts do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hotspare.testing.cluster import command

TIMEOUT_S = 120


def hotspare(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The finished command; its standard output and error are text, without terminal."""
    return subprocess.run(
        command(*(str(argument) for argument in arguments)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "COLUMNS": "120", **environment},
        check=False,
    )
