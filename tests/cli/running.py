"""Runs the command: as a process, like users and scripts, or in this process if only its effects and output count."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotspare.base.interpreter import fixed_environment
from hotspare.cli.main import main
from hotspare.testing.cluster import hotspare_command

TIMEOUT_S = 120


def hotspare(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end; its standard output and error are text, without a terminal."""
    return subprocess.run(
        hotspare_command(*(str(argument) for argument in arguments)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env={**os.environ, "COLUMNS": "120", **environment},
        check=False,
    )


def hotspare_here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs the command as `hotspare` does, without a process: a tenth of the time."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    given = ["hotspare", *(str(argument) for argument in arguments)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(fixed_environment())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "argv", given)
        patch.setenv("COLUMNS", "120")
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    assert isinstance(status, int)
    return subprocess.CompletedProcess(given, status, out.getvalue(), err.getvalue())
