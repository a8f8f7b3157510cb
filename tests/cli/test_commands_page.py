"""docs/commands.md equals the commands' own help."""

from __future__ import annotations

from tests.cli.commands_page import PAGE, page


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"
