"""Parses numbers in text that other processes wrote: the text may have any length, and may not make an engine fail."""

from __future__ import annotations

DIGITS_MAX = 18


def parsed_number(text: str) -> int | None:
    """Returns the number; None if the text is not a decimal number of at most DIGITS_MAX digits."""
    return int(text) if text.isdecimal() and len(text) <= DIGITS_MAX else None
