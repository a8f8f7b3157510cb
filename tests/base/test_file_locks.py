"""The holder of a file's lock is identified, and killed only if it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotspare.base.file_locks import end_if_stopped, lock_holder
from hotspare.base.processes import has_process_ended, is_process_stopped, process_command, process_start
from tests.base.lock_children import FLOCK, locking, stop

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell who holds a lock")

_BYTE_120 = "import fcntl; fcntl.lockf(file, fcntl.LOCK_EX, 1, 120)"
_SHARED = "import fcntl; fcntl.lockf(file, fcntl.LOCK_SH, 1, 120)"


@pytest.mark.parametrize(("lock", "byte"), [(FLOCK, None), (FLOCK, 120), (_BYTE_120, None), (_BYTE_120, 120)])
def test_the_holder_of_a_lock_is_found(tmp_path: Path, lock: str, byte: int | None) -> None:
    path = tmp_path / "file"
    assert lock_holder(path, byte) is None
    with locking(path, lock) as child:
        holder = lock_holder(path, byte)
        assert holder is not None
        assert (holder.process_id, holder.start, holder.is_stopped) == (child.pid, process_start(child.pid), False)
        stop(child)
        holder = lock_holder(path, byte)
        assert holder is not None
        assert holder.is_stopped
        assert str(holder) == f"process {child.pid} ({process_command(child.pid)}), which is stopped"
    assert lock_holder(path, byte) is None


def test_who_holds_another_byte_or_shares_or_has_another_file_is_not_meant(tmp_path: Path) -> None:
    path, other = tmp_path / "file", tmp_path / "other"
    other.touch()
    with locking(path, _BYTE_120):
        assert lock_holder(path, 121) is None
        assert lock_holder(other) is None
        assert lock_holder(tmp_path / "absent") is None
    with locking(path, _SHARED):
        assert lock_holder(path, 120) is None


def test_only_a_process_that_is_stopped_is_ended(tmp_path: Path) -> None:
    with locking(tmp_path / "file", FLOCK) as child:
        start = process_start(child.pid)
        assert not end_if_stopped(child.pid, start)
        stop(child)
        assert not end_if_stopped(child.pid, start - 5000), "another process with this id"
        assert end_if_stopped(child.pid, start)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert has_process_ended(child.pid, start)
        assert not is_process_stopped(child.pid)


def test_a_command_is_told_without_its_options_and_addresses() -> None:
    words = [sys.executable, "-c", "print(flush=True); input()", "--password", "secret"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # the program has been executed by now
        assert process_command(child.pid) == Path(sys.executable).name
        child.kill()
    assert process_command(2**22 + 1) == "unknown"
