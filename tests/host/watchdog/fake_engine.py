"""A fake engine: writes the board as an engine does, and then does what a test orders.

    python -m tests.host.watchdog.fake_engine FOLDER ORDER...

FOLDER has the file of its coordination, and gets a line in `starts` for each start. The last order applies to all further starts.
`engine_environment` and `starts` are for tests."""

from __future__ import annotations

import os
import re
import resource
import signal
import sqlite3
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotspare.base.call_board import BoardSetting, CallBoard, CallSlot
from hotspare.base.stop_signals import ignore_repeated_signals, stop_on_signals
from hotspare.coordination.open import open_coordination
from hotspare.host.watchdog.replay_calls import DECIDED_VARIABLE
from hotspare.host.watchdog.shared_memory import BOARD_VARIABLE, engine_board, publish_board

DEADLINE_MS = 100
MEMORY_BYTES = 32 << 20
GROUP, TOPIC, WINDOW = "p.shop", "p.shop.q.in.I", "q/code"
POSITION = 0, 3, 42, 7
"""Topic index, partition, offset and index of the row that causes the call."""
_EATEN_MAX = 256 << 20


def coordination_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'coordination.db'}"


def starts(folder: Path) -> list[str]:
    """Returns the process id of each start."""
    file = folder / "starts"
    return file.read_text().split() if file.exists() else []


def _board(folder: Path) -> CallBoard:
    board = engine_board(int(os.environ[BOARD_VARIABLE].partition(":")[0]), 1)
    names = {"groups": [GROUP], "windows": ["q/in", WINDOW], "topics": [TOPIC]}
    own = {"engine": "one", "start": f"start-{os.getpid()}", "host": "here", "log_format": "json"}
    board.set_text({**own, **names, "coordination": coordination_url(folder)})
    return board


@contextmanager
def _call(board: CallBoard) -> Iterator[CallSlot]:
    slot = board.slot(0)
    slot.set_thread(threading.get_native_id())
    slot.begin_step(*(memoryview(array("q", [0, 0, number])) for number in POSITION))
    slot.node = 1
    slot.begin_call(2)
    yield slot
    slot.end_window()


def _hang() -> None:
    re.match(r"(a+)+b", "a" * 60)


def _obey(folder: Path, order: str, board: CallBoard) -> int:
    """Returns the exit status."""
    print(f"{order} {os.getpid()}", flush=True)
    if order.isdecimal():
        return int(order)
    if order == "decided":
        (folder / "decided").write_text(os.environ.get(DECIDED_VARIABLE, ""))
        return 0
    if order == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "serve":
        stop = threading.Event()
        with stop_on_signals(stop.set):
            print("serves", flush=True)
            stop.wait()
            print("stops", flush=True)
            sys.stdin.readline()  # until the test has sent all its signals
    if order == "deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        print("serves", flush=True)
        while True:
            signal.pause()
    if order == "lock":
        open_coordination(coordination_url(folder)).close()
        connection = sqlite3.connect(folder / "coordination.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        print("locked", flush=True)
        order = "hang"
    if order == "load":
        board.slot(0).set_thread(threading.get_native_id())
        board.set_setting(BoardSetting.IS_LOADING, 1)
        _hang()
    with _call(board) as slot:
        if order == "unlimited":
            slot.lift_limits()
            until_ms = time.thread_time() * 1_000 + 4 * DEADLINE_MS
            while time.thread_time() * 1_000 < until_ms:
                pass
        elif order == "eat":
            board.set_setting(BoardSetting.DEADLINE_MS, 0)
            used_s = time.thread_time() + 1.0  # until a look has seen the call before it grows
            while time.thread_time() < used_s:
                pass
            eaten: list[bytes] = []
            while len(eaten) << 20 < _EATEN_MAX:
                eaten.append(b"x" * (1 << 20))
            _hang()
        elif order == "wait":
            print("in call", flush=True)
            sys.stdin.readline()
        elif order == "hang":
            _hang()
        elif order == "segv":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), signal.SIGSEGV)
        elif order == "killed in call":
            os.kill(os.getpid(), signal.SIGKILL)
    return 0


def main(folder: Path, *orders: str) -> int:
    with (folder / "starts").open("a") as file:
        file.write(f"{os.getpid()}\n")
    order = orders[min(len(starts(folder)), len(orders)) - 1]
    ignore_repeated_signals()
    board = _board(folder)
    board.set_setting(BoardSetting.DEADLINE_MS, DEADLINE_MS)
    board.set_setting(BoardSetting.MEMORY_BYTES, MEMORY_BYTES if order == "eat" else 0)
    publish_board(board, 1)
    return _obey(folder, order, board)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
