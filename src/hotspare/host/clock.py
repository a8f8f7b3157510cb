"""The one clock of an engine process: monotonic, for differences only; and its sleep."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def pause(duration_ms: int) -> None:
    time.sleep(duration_ms / 1000)
