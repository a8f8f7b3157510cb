"""docs/commands.md is what the commands say of themselves."""

from __future__ import annotations

from tests.cli.commands_page import PAGE, page


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"
