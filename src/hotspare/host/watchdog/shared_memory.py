"""The memory that an engine and its watcher share, from its creation to the board in it.

The watcher creates the memory and passes its file descriptor on. The engine knows how many slots it needs, so it sets the size. It
writes the number of slots last, and a watcher waits for that number.
"""

from __future__ import annotations

import mmap
import os
import sys

from hotspare.base.call_board import BoardSetting, CallBoard, board_bytes

BOARD_VARIABLE = "HOTSPARE_CALL_BOARD"
"""The environment variable of an engine with a parent that watches it: `FD:PID`, the descriptor of the memory and the parent."""
FACTS_VARIABLE = "HOTSPARE_FACTS"
"""The environment variable of an engine that publishes facts (`published_facts`): `FD:START`, the descriptor of their memory and
the number of the engine's start."""
IS_POSSIBLE = sys.platform == "linux"
"""Whether this system can watch: processor times of threads are read from /proc."""


def create_memory() -> int:
    """Returns the file descriptor of new shared memory, which child processes inherit."""
    memory = os.memfd_create("hotspare-calls")
    os.ftruncate(memory, board_bytes(0))
    os.set_inheritable(memory, True)  # noqa: FBT003 - takes it by place only
    return memory


def engine_board(memory: int, slots: int) -> CallBoard:
    """Returns the board with `slots` slots for the engine, which owns the descriptor from now on, and closes it. A watcher sees the
    board once `publish_board` is called."""
    os.ftruncate(memory, board_bytes(slots))
    board = _mapped(memory, board_bytes(slots))
    os.close(memory)
    return board


def publish_board(board: CallBoard, slots: int) -> None:
    board.set_setting(BoardSetting.SLOTS, slots)


def watcher_board(memory: int) -> CallBoard | None:
    """Returns the board for a watcher; None before the engine has published it."""
    slots = _mapped(memory, board_bytes(0)).setting(BoardSetting.SLOTS)
    return _mapped(memory, board_bytes(slots)) if slots else None


def _mapped(memory: int, size: int) -> CallBoard:
    return CallBoard(memoryview(mmap.mmap(memory, size)))
