"""`hotspare run` as its users start it: a parent with an engine, which a kill does not end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from hotspare.base.processes import parent_of
from hotspare.testing.cluster import hotspare_command, wait_until
from tests.e2e.site import LEASE, Site

pytestmark = pytest.mark.system
WAIT_S = 60


def test_a_killed_engine_runs_again_and_ends_with_its_parent_on_request(tmp_path: Path) -> None:
    site = Site(tmp_path)
    command = hotspare_command("run", str(site.project), *site.services, "--engine", "one", *LEASE, *site.options)

    def engine() -> int:
        """Returns the process of the active engine; 0 without one."""
        leader, member = site.cluster.leader(), site.cluster.members().get("one")
        is_active = member is not None and (leader.holder, member.role) == ("one", "active")
        return member.process_id if member is not None and is_active else 0

    with (tmp_path / "one.log").open("w") as log, subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log) as parent:
        try:
            wait_until(lambda: engine() > 0, "an active engine", WAIT_S)
            killed = engine()
            assert parent_of(killed) == parent.pid
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: engine() not in (0, killed), "the engine's next start", WAIT_S)
            parent.send_signal(signal.SIGTERM)
            assert parent.wait(WAIT_S) == 0
        finally:
            parent.kill()
    said = (tmp_path / "one.log").read_text()
    assert [said.count(event) for event in ("engine_starting", "engine_restarted", "engine_stopped")] == [2, 1, 1]
    site.cluster.stop()
