"""Lists of names, written as one text, because dozens of quoted names are hard to read."""

from __future__ import annotations


def split_names(text: str) -> list[str]:
    """Returns the names in a text, separated by blanks and line ends."""
    return text.split()
