"""What the test kit says of processes that outlive those that it started (section 8 of the design: no JVM outlives its engine)."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from hotspare.testing.cluster import Cluster

ORPHANING = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
"""


def test_an_orphan_of_a_killed_process_is_a_leftover(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "none.yaml", f"sqlite:///{tmp_path / 'bus.db'}", "group", "prefix", tmp_path)
    command = [sys.executable, "-c", ORPHANING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        cluster.session_ids.append(parent.pid)
        pidfd = os.pidfd_open(orphan)
        os.kill(orphan, signal.SIGSTOP)  # so that it does not end with its parent
        parent.kill()
        parent.wait()
        assert [line.split()[0] for line in cluster.leftovers(within_s=0)] == [str(orphan)]
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        select.select([pidfd], [], [], 20)
        os.close(pidfd)
        assert cluster.leftovers() == []
    cluster.stop()
