"""The line of user code that an engine executes: the engine writes the stacks of its threads behind the board of calls.

Python's fault handler writes them from a signal handler, without the interpreter's lock, which the call may hold for ever. It does
so when the watcher sends LINE_SIGNAL, and when the engine crashes.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time

from hotspare.base.call_board import BoardSetting, CallBoard, board_bytes

LINE_SIGNAL = signal.SIGXCPU
_WAIT_S, _LOOK_S = 1.0, 0.02
_TRACE_BYTES_MAX = 1 << 18
_FRAME = re.compile(r'^  File "<(?!frozen |string>)([^">]+)>", line (\d+) in (.+)$', re.MULTILINE)
"""A frame of user code: its file is named after the window or module, in angle brackets."""


def write_lines_behind(memory: int, slots: int) -> None:
    """Makes this process write the stacks of its threads behind a board with `slots` slots in `memory`, a descriptor that it keeps.
    An enabled fault handler keeps its file for crashes."""
    os.lseek(memory, board_bytes(slots), os.SEEK_SET)
    faulthandler.register(LINE_SIGNAL, file=memory, all_threads=True)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=memory, all_threads=True)


def requested_line(engine: int, memory: int, board: CallBoard) -> str:
    """Asks a running engine for its stacks; returns the innermost line of user code, as `written_line`. Waits at most a second."""
    if not board.setting(BoardSetting.HAS_TRACE):
        return ""
    with contextlib.suppress(ProcessLookupError):
        os.kill(engine, LINE_SIGNAL)
    until_s, before, now = time.monotonic() + _WAIT_S, "", ""
    while time.monotonic() < until_s and not (now and now == before):
        time.sleep(_LOOK_S)
        before, now = now, _written(memory, board)
    return innermost_line(now)


def written_line(memory: int, board: CallBoard) -> str:
    """Returns the innermost line of user code in the stacks that an engine wrote when it crashed; "" without one."""
    return innermost_line(_written(memory, board))


def innermost_line(stacks: str) -> str:
    """Returns where user code is, for a message; "" if no stack has a line of it. The innermost frame of a stack is its first."""
    frame = _FRAME.search(stacks)
    return "" if frame is None else f"line {frame[2]} of {frame[1]}, in {frame[3]}"


def _written(memory: int, board: CallBoard) -> str:
    written = os.pread(memory, _TRACE_BYTES_MAX, board_bytes(board.setting(BoardSetting.SLOTS)))
    return written.decode(errors="replace")
