"""Writes real readings of this machine's memory to a CSV file, which the file publisher follows as it grows."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

_MEBIBYTE = 1 << 20
_SLICE_S = 0.004
_RESERVE_SHARE = 0.2
_RESERVE_S = 60.0
HEADER = "opcode,flags,id,used_mb,free_mb,read_at"
SENSOR_HEADER = "opcode,flags,id,sensor,used_mb,free_mb,read_at"
SENSORS = 40


def reading() -> str:
    """Returns one CSV row: memory used and free in MiB, and the time of the reading in microseconds since 1970 UTC."""
    memory = psutil.virtual_memory()
    return f"i,n,,{memory.used / _MEBIBYTE:.3f},{memory.available / _MEBIBYTE:.3f},{time.time_ns() // 1000}\n"


def sensor_reading() -> str:
    """Returns a reading with the name of one of `SENSORS` sensors, chosen at random."""
    opcode, flags, key, rest = reading().split(",", 3)
    return f"{opcode},{flags},{key},sensor {secrets.randbelow(SENSORS)},{rest}"


class Sampler:
    """Appends `events` readings at `rate` per second to a file, in a thread of its own. `row` returns the next reading, `header`
    names the fields.

    While `is_spread` returns true, the last fifth of the readings is written more and more slowly, so that the input does not end
    too early.
    """

    def __init__(
        self,
        path: Path,
        events: int,
        rate: float,
        is_spread: Callable[[], bool],
        row: Callable[[], str] = reading,
        header: str = HEADER,
    ) -> None:
        self._path, self._rate, self._is_spread, self._row, self._header = path, rate, is_spread, row, header
        self.events = events
        self._stopped = threading.Event()
        self._held = threading.Event()
        self.written = 0
        self._thread = threading.Thread(target=self._run, name="demo-sampler", daemon=True)

    def start(self) -> None:
        self._path.write_text(self._header + "\n")
        self._thread.start()

    def _run(self) -> None:
        due, last = 0.0, time.monotonic()
        with self._path.open("a") as file:
            while self.written < self.events and not self._stopped.wait(_SLICE_S):
                now = time.monotonic()
                if self._held.is_set():
                    last = now
                    continue
                left = self.events - self.written
                in_reserve = left <= self.events * _RESERVE_SHARE and self._is_spread()
                due += (now - last) * (min(self._rate, left / _RESERVE_S) if in_reserve else self._rate)
                last = now
                count = min(int(due), left)
                due -= count
                file.write("".join(self._row() for _ in range(count)))
                file.flush()
                self.written += count

    def pause_writing(self) -> None:
        """Pauses the writing until a call of `resume_writing`."""
        self._held.set()

    def resume_writing(self) -> None:
        self._held.clear()

    def end_writing(self) -> None:
        """Ends the writing early. `events` becomes the count of the readings written so far."""
        self.stop()
        self.events = self.written

    @property
    def is_done(self) -> bool:
        return self.written >= self.events

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=5)
