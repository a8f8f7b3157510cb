"""The progress line shows its numbers first on any terminal, and never truncates them."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

_SHOW = """
from hotspare.cli.shared.display import progress_bar
with progress_bar("subscribe to hotspare.logins.security.three_failed_attempts.O") as show:
    show(2_006, 0, "2006 rows, sequence 2006")
"""


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_the_numbers_of_a_progress_line_are_whole(columns: int) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    done = subprocess.Popen([sys.executable, "-c", _SHOW], stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the end of a terminal on Linux
            break
        said += part
        if not part:
            break
    os.close(ours)
    assert done.wait(60) == 0
    lines = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", said).decode().replace("\r", "\n").splitlines()
    assert any("2006 rows, sequence 2006" in line for line in lines), lines
    assert max(map(len, lines)) <= columns
