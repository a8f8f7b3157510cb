"""Writes docs/commands.md from the commands' own help: `make docs`. A test compares the page with what this would write."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from typer.testing import CliRunner

from hotspare.cli.main import COMMANDS, app
from hotspare.cli.shared import group_report

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
_WIDTH = 110

_HEAD = """# Commands

Written by `make docs` from the commands' help; change the text there.

Every command ends with exit status 0 when it did what was asked, 2 for a command line, setting or project that cannot be used, and
1 when something else went wrong. Errors go to standard error as a code, a sentence, details and a hint; `HOTSPARE_DEBUG=1` adds
where in the code. Progress is shown on standard error if that is a terminal. Ctrl-C asks for a clean end, a second one forces it.
"""

_STATUS = """
## The document of `hotspare status --json`

{text}
"""


def page() -> str:
    """The whole page."""
    application = app()
    parts = [_HEAD]
    for name in (each for command in COMMANDS for each in _with_its_own(command)):
        done = CliRunner().invoke(application, [*name.split(), "--help"], prog_name="hotspare", terminal_width=_WIDTH, color=False)
        help_text = "\n".join(line.rstrip() for line in done.output.strip().splitlines())
        parts.append(f"\n## hotspare {name}\n\n```text\n{help_text}\n```\n")
    parts.append(_STATUS.format(text=inspect.getdoc(group_report)))
    return "".join(parts)


def _with_its_own(command: str) -> list[str]:
    """The command, and those that it has itself."""
    own = getattr(importlib.import_module(f"hotspare.cli.{command}"), "commands", {})
    return [command, *(f"{command} {each}" for each in own)]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
