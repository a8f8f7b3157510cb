"""Numbers in what others wrote: text of any length comes from there, and no engine may fail of it."""

from __future__ import annotations

DIGITS_MAX = 18


def told_number(text: str) -> int | None:
    """None for what is no number of a size that makes sense."""
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else None
