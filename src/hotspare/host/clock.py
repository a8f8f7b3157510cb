"""The one clock of an engine process: monotonic, for differences only."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
