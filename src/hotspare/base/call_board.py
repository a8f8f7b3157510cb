"""The shared memory in which an engine shows which call of user code runs, and by which its watcher finds a call that does not end.

The thread of such a call may hold the interpreter's lock for ever, so no thread of the engine can watch it. Writing costs a call
some tens of nanoseconds. Nothing here reads a clock, and the core never reads the board, so outputs cannot depend on it.

    header    8 numbers: the settings of the watch (`BoardSetting`)
    text      the length of a JSON text, and the text: what the watcher needs to name a place
    slots     one for each group of the process: 8 numbers (`Cell`), the positions of the rows of the step, and the rows of a loop

All numbers are signed 64-bit integers in native order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from hotspare.base.step_size import STEP_ROWS_MAX

POSITIONS_MAX = STEP_ROWS_MAX
"""The maximum number of rows of a step."""
LOOP_MAX = 4096
"""The maximum number of calls of a loop over events."""
_HEADER = 8
TEXT_BYTES_MAX = 1 << 20
_CELLS = 8
_LOOP = _CELLS + 4 * POSITIONS_MAX
_SLOT = _LOOP + LOOP_MAX
NO_CALL = 0


class BoardSetting(IntEnum):
    """The index of each number of the header."""

    SLOTS = 0
    DEADLINE_MS = 1
    MEMORY_BYTES = 2
    IS_LOADING = 3
    """1 while the engine loads its project, which runs user code without a position."""
    HAS_TRACE = 4
    """1 if the engine writes the lines that its threads execute behind the board when the watcher asks (`host.watchdog.trace`)."""


class Cell(IntEnum):
    """The index of each number of a slot."""

    CALLS = 0
    """The count of calls; changes with each call."""
    NODE = 1
    """One more than the number of the plan's node that calls user code; NO_CALL outside of it."""
    ROW = 2
    """The row of the step that caused the call; in a loop over events, the number of the call among those of the loop."""
    ROWS = 3
    """The rows of the call: 1, or more for a call over columns."""
    THREAD = 4
    """The system's id of the thread that computes."""
    IS_UNLIMITED = 5
    """1 while calls have neither deadline nor memory limit: another engine is known to have passed these positions."""
    IS_LOOP = 6
    """1 during a loop over events."""


CALLS, NODE, ROW, ROWS, IS_LOOP = int(Cell.CALLS), int(Cell.NODE), int(Cell.ROW), int(Cell.ROWS), int(Cell.IS_LOOP)


def board_bytes(slots: int) -> int:
    """Returns the size of a board with `slots` slots. The system provides only the pages of it that are written."""
    return 8 * (_HEADER + 1 + slots * _SLOT) + TEXT_BYTES_MAX


class CallSlot:
    """The part of a board that one group's core writes."""

    def __init__(self, cells: memoryview) -> None:
        """`cells`: a writable view of `q` items over the slot's memory; only the cells if nothing watches it."""
        self.cells = cells
        self.node = 0
        """The node whose window runs: `begin_call` shows it. The core sets it before a window runs."""
        self.is_watched = len(cells) == _SLOT

    def begin_step(self, *columns: memoryview) -> None:
        """Shows the positions of the rows of a step: topic index, partition, offset and index, each a view of `q` items."""
        for number, column in enumerate(columns):
            begin = _CELLS + number * POSITIONS_MAX
            count = min(len(column), POSITIONS_MAX)
            self.cells[begin : begin + count] = column[:count]

    def begin_call(self, row: int, rows: int = 1) -> None:
        """Shows a call of the code of `node` for `rows` rows of which `row` is the first."""
        cells = self.cells
        cells[ROW], cells[ROWS], cells[IS_LOOP] = row, rows, 0
        cells[CALLS] += 1
        cells[NODE] = self.node + 1

    def begin_loop(self, rows: memoryview) -> None:
        """Shows the first of several calls of the code of `node`, for one row each. `rows`: the row of each call, a view of `q`
        items, from 1 to LOOP_MAX of them. Before each call the loop itself writes its number to ROW: that costs least."""
        self.begin_call(0)
        if self.is_watched:
            self.cells[_LOOP : _LOOP + len(rows)] = rows
            self.cells[IS_LOOP] = 1

    def end_window(self) -> None:
        """Shows that no user code runs. What a window does between calls and after them has no limit."""
        self.cells[NODE] = NO_CALL

    def set_thread(self, thread: int) -> None:
        self.cells[Cell.THREAD] = thread

    def lift_limits(self) -> None:
        """Suspends the limits of calls until `restore_limits`."""
        self.cells[Cell.IS_UNLIMITED] = 1

    def restore_limits(self) -> None:
        self.cells[Cell.IS_UNLIMITED] = 0


def unwatched_slot() -> CallSlot:
    """Returns a slot that nothing watches."""
    return CallSlot(memoryview(bytearray(8 * _CELLS)).cast("q"))


@dataclass(frozen=True, slots=True)
class ShownCall:
    """A call as a watcher sees it. `calls` changes with each call. `position`: topic index, partition, offset and index of the
    (first) row that caused it."""

    calls: int
    node: int
    rows: int
    thread: int
    is_unlimited: bool
    position: tuple[int, int, int, int]


class CallBoard:
    """A board over memory that engine and watcher share."""

    def __init__(self, memory: memoryview) -> None:
        """`memory`: a writable view of at least `board_bytes(slots)` bytes, zeros at first."""
        self._memory = memory
        self._numbers = memory[: 8 * (_HEADER + 1)].cast("q")

    def setting(self, setting: BoardSetting) -> int:
        return self._numbers[setting]

    def set_setting(self, setting: BoardSetting, value: int) -> None:
        self._numbers[setting] = value

    @property
    def text(self) -> Mapping[str, Any]:
        """The text that the engine wrote by `set_text`; empty before."""
        begin = 8 * (_HEADER + 1)
        length = self._numbers[_HEADER]
        return json.loads(bytes(self._memory[begin : begin + length])) if length else {}

    def set_text(self, content: Mapping[str, Any]) -> None:
        """Writes `content` as the JSON text. Raises ValueError if that is longer than TEXT_BYTES_MAX."""
        encoded = json.dumps(content).encode()
        if len(encoded) > TEXT_BYTES_MAX:
            raise ValueError(f"the text of the call board has {len(encoded)} bytes, at most {TEXT_BYTES_MAX} are possible")
        begin = 8 * (_HEADER + 1)
        self._memory[begin : begin + len(encoded)] = encoded
        self._numbers[_HEADER] = len(encoded)

    def slot(self, number: int) -> CallSlot:
        return CallSlot(self._cells(number))

    def shown_call(self, number: int) -> ShownCall | None:
        """Returns the call that runs in slot `number`; None if none does. The values may be of two calls if the engine writes
        meanwhile; a caller acts only on what stays the same."""
        cells = self._cells(number)
        if cells[NODE] == NO_CALL:
            return None
        number, row = 0, cells[ROW]
        if cells[IS_LOOP]:
            number = min(row, LOOP_MAX - 1)
            row = cells[_LOOP + number]
        row = min(row, POSITIONS_MAX - 1)
        topic, partition, offset, index = (cells[_CELLS + column * POSITIONS_MAX + row] for column in range(4))
        unlimited = bool(cells[Cell.IS_UNLIMITED])
        position = topic, partition, offset, index
        calls = LOOP_MAX * cells[CALLS] + number
        return ShownCall(calls, cells[NODE] - 1, cells[ROWS], cells[Cell.THREAD], unlimited, position)

    def _cells(self, number: int) -> memoryview:
        begin = 8 * (_HEADER + 1) + TEXT_BYTES_MAX + 8 * number * _SLOT
        return self._memory[begin : begin + 8 * _SLOT].cast("q")
