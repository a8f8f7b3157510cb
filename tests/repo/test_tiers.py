"""A test that starts a server has the marker of its tier, or fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repo.test_repeating import run

STARTS = """
import subprocess
import pytest
from pathlib import Path
def start():
    server = Path("redis-server").absolute()
    server.write_text("#!/bin/sh\\ntouch started")
    server.chmod(0o755)
    subprocess.run(["/bin/sh", "-c", '"$1"', "sh", server], check=True)
def test_unmarked(): start()
@pytest.mark.servers
def test_marked(): start()
"""


@pytest.mark.parametrize("test", ["test_unmarked", "test_marked"])
def test_a_server_needs_a_marker(test: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = servers\n")
    (tmp_path / "test_starts.py").write_text(STARTS)
    out = run(tmp_path, "-p", "tests.tiers", f"test_starts.py::{test}")
    is_marked = test == "test_marked"
    assert ("starts redis-server; mark it servers or system" in out) is not is_marked, out
    assert (tmp_path / "started").exists() is is_marked
