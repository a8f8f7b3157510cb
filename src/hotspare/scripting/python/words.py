"""Lists of names, written as one text: dozens of them in quotes are hard to read."""

from __future__ import annotations


def words(text: str) -> list[str]:
    """The names in a text, which blanks and line ends part."""
    return text.split()
