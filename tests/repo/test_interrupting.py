"""An interrupt ends a run of tests wherever it arrives, even if Python or the code under test discards it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from hotspare.testing.cluster import wait_until
from tests.repo.tree import ROOT

WAIT_S = 120.0
WORDS = f"""
import gc, pathlib, signal, threading
def begun():
    pathlib.Path(__file__).with_name("begun").touch()
def go_on():
    assert threading.Event().wait({WAIT_S}), "it went on after the interrupt"
"""
IN_A_CALLBACK = """
def test_law():
    def interrupted(phase, info):
        gc.callbacks.remove(interrupted)
        signal.raise_signal(signal.SIGINT)
    gc.callbacks.append(interrupted)
    gc.collect()
    go_on()
"""
BY_ANOTHER_HANDLER = """
from hotspare.base.stop_signals import stop_on_signals
def test_command():
    stop = threading.Event()
    with stop_on_signals(stop.set):
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(60)
def test_next():
    go_on()
"""
LEAVES_A_THREAD = f"""
def test_thread():
    threading.Thread(target=threading.Event().wait, args=({WAIT_S},)).start()
    signal.raise_signal(signal.SIGINT)
"""
WAITS = """
def test_waits():
    begun()
    go_on()
"""


@contextmanager
def running(folder: Path, text: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Runs pytest with the plugin over these tests, in their order."""
    file = folder / "test_interrupted.py"
    file.write_text(WORDS + text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.interrupting", "-p", "no:cacheprovider", "-p", "no:randomly", *options]
    command += ["-W", "error", "-c", str(folder / "none.ini"), "--rootdir", str(folder), str(file)]
    (folder / "none.ini").write_text("[pytest]\n")
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    """Returns everything that it printed until the interrupt ended it."""
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, out
    return out


@pytest.mark.parametrize(("text", "passed"), [(IN_A_CALLBACK, 0), (BY_ANOTHER_HANDLER, 1), (LEAVES_A_THREAD, 0)])
def test_an_interrupt_that_is_discarded_ends_the_run(tmp_path: Path, text: str, passed: int) -> None:
    """A garbage collection's callback and a command's handler discard it; a thread left by a test does not keep the process
    alive."""
    with running(tmp_path, text) as process:
        out = said(process)
    assert "KeyboardInterrupt" in out
    assert "went on" not in out
    assert "unraisable" not in out.lower()
    assert (" 1 passed" in out) is bool(passed)


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
def test_an_interrupt_of_the_controller_alone_ends_its_workers(tmp_path: Path, before: signal.Handlers) -> None:
    """Also if all of them began with SIGINT ignored, as background jobs of a shell do."""
    own = signal.signal(signal.SIGINT, before)
    try:
        with running(tmp_path, WAITS, "-n", "1") as process:
            signal.signal(signal.SIGINT, own)
            wait_until((tmp_path / "begun").exists, "the test waits", WAIT_S)
            workers = psutil.Process(process.pid).children()
            process.send_signal(signal.SIGINT)
            assert "KeyboardInterrupt" in said(process)
    finally:
        signal.signal(signal.SIGINT, own)
    assert workers
    wait_until(lambda: not any(worker.is_running() for worker in workers), "the workers have ended", WAIT_S)
