"""Reads texts whose invalid lines are marked with `!!` in a comment, so that a test itself shows which lines must be reported."""

from __future__ import annotations

import pytest

from hotspare.base.errors import ProjectError
from hotspare.projects.load import load_text

MARK = "!!"


def marked_lines(text: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines(), 1) if MARK in line]


def mistakes(text: str) -> list[tuple[int, str, str]]:
    """Returns line, message and hint of every mistake of a project that must be refused."""
    with pytest.raises(ProjectError) as raised:
        load_text(text, "p")
    return [(m.place.line, m.message, m.hint) for m in raised.value.mistakes]


def assert_only_mistake(text: str, message: str, hint: str = "") -> None:
    """Asserts that the project has one mistake, in the marked line, with these words in it."""
    found = mistakes(text)
    assert [line for line, _, _ in found] == marked_lines(text), found
    assert message in found[0][1]
    assert hint in found[0][2]
