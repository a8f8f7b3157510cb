"""Simulates a machine with a wrong clock: processes on this machine see another time of day, by Debian's libfaketime.
Monotonic time, which timeouts use, is unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_LIBRARY = "faketime/libfaketimeMT.so.1"
_REAL_MONOTONIC = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_FORCE_MONOTONIC_FIX": "0"}
"""The variables that leave monotonic time unchanged. Without the second one a JVM's waits with a timeout end at once, and a broker
never starts."""
_FOLDERS = (Path("/usr/lib/x86_64-linux-gnu"), Path("/usr/lib/aarch64-linux-gnu"), Path("/usr/lib"))


def why_no_shifted_clock() -> str:
    """Returns the reason why processes on this machine cannot run with a shifted clock; "" if they can."""
    return "" if _library() is not None else f"{_LIBRARY} is not installed"


def _library() -> Path | None:
    return next((path for folder in _FOLDERS if (path := folder / _LIBRARY).exists()), None)


@dataclass(frozen=True, slots=True)
class ShiftedClock:
    """This machine, reached only by itself, with a clock that is `ahead_s` seconds ahead, or behind if negative (`Machine`)."""

    ahead_s: float
    address: str = "127.0.0.1"

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Returns the command that runs `arguments` with this clock. Raises FileNotFoundError if `why_no_shifted_clock` gives a
        reason."""
        library = _library()
        if library is None:
            raise FileNotFoundError(why_no_shifted_clock())
        given = {"LD_PRELOAD": str(library), "FAKETIME": f"{self.ahead_s:+}s", **_REAL_MONOTONIC}
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in given.items()), *arguments]
