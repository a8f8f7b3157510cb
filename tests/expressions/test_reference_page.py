"""Checks that docs/expressions.md agrees with the table of functions."""

from __future__ import annotations

from tests.expressions.reference_page import PAGE, render, unlisted


def test_page_is_fresh() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


def test_every_name_is_listed() -> None:
    assert unlisted() == set()
