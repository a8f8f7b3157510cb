"""The file and line of each recorded message: offsets also count ticks, but not title lines.

Adjacent rows of a file, without a tick between them, are one entry, so the memory does not grow with the file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hotspare.base.places import display_path


@dataclass(slots=True)
class _Runs:
    """Entries of one topic: messages from `offsets[i]` to before `ends[i]` are the lines from `lines[i]` on of file `files[i]`."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    files: array[int] = field(default_factory=lambda: array("q"))


class FilePlaces:
    """The files and lines of messages. `add_message` gets the messages of each topic in order of their offsets; `location_of`
    returns `FILE:LINE`, lines from 1."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._topics: defaultdict[int, _Runs] = defaultdict(_Runs)

    def add_message(self, topic: int, offset: int, file: int, line: int) -> None:
        """Adds a message whose row begins in line `line` of the path with index `file`."""
        runs = self._topics[topic]
        follows = bool(runs.ends) and runs.ends[-1] == offset and runs.files[-1] == file
        if follows and line - runs.lines[-1] == offset - runs.offsets[-1]:
            runs.ends[-1] = offset + 1
            return
        runs.offsets.append(offset)
        runs.ends.append(offset + 1)
        runs.lines.append(line)
        runs.files.append(file)

    def add_adjacent_rows(self, topic: int, offset: int, file: int, lines: Sequence[int]) -> None:
        """Adds messages with offsets from `offset` on, one for each of `lines`: the ascending lines in which their rows begin."""
        first, count = lines[0], len(lines)
        if lines[-1] - first != count - 1:
            for number, line in enumerate(lines):
                self.add_message(topic, offset + number, file, line)
            return
        self.add_message(topic, offset, file, first)
        self._topics[topic].ends[-1] = offset + count

    def location_of(self, topic: int, offset: int) -> str:
        """Returns `FILE:LINE` for a message, `tick after FILE:LINE` for a tick, and `tick` for a tick before all messages."""
        runs = self._topics[topic]
        run = bisect_right(runs.offsets, offset) - 1
        if run < 0:
            return "tick"
        row = min(offset, runs.ends[run] - 1)
        place = f"{display_path(self._paths[runs.files[run]])}:{runs.lines[run] + row - runs.offsets[run]}"
        return place if row == offset else f"tick after {place}"
