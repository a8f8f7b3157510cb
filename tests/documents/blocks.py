"""The blocks of commands that documents show: fenced as `sh` or `console`, or indented, with the commands as a shell reads them."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"\s*```(?P<kind>\w*)")
_FENCED = ("", "sh", "console")
"""Blocks of other kinds contain no commands."""
_INDENT = " " * 4
_COMMAND = re.compile(r"(?:\$ )?(?:\w+=\$\()?(?:[\w./-]*/)?(?:hotspare|python|make|git|pip|kafka-[\w-]+\.sh|cmp|kill) ")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of commands. `page` is its path in the repository, `line` its first one there, `text` has no indent."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Returns each command with its continuation lines, and without comments."""
        found, open_line = list[str](), ""
        for line in self.text.splitlines():
            open_line += line.removeprefix("$ ") if not open_line else line
            if open_line.endswith("\\"):
                open_line = open_line.removesuffix("\\")
            elif _is_whole(open_line):
                found, open_line = [*found, _without_comment(open_line)], ""
        return [command for command in found if command]


def _is_whole(line: str) -> bool:
    """Whether every quote is closed."""
    try:
        shlex.split(_without_comment(line))
    except ValueError:
        return False
    return True


def _without_comment(line: str) -> str:
    """Returns the line up to the first number sign after a blank that is outside quotes."""
    for sign in re.finditer(r"(?:^|\s)#\s", line):
        with contextlib.suppress(ValueError):
            shlex.split(line[: sign.start()])
            return line[: sign.start()].strip()
    return line.strip()


def pages() -> list[str]:
    found = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yields the blocks of a page that hold a command."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        end, fence = at + 1, _FENCE.match(lines[at])
        body, kept = list[str](), False
        if fence:
            while not lines[end].strip().startswith("```"):
                end += 1
            body, kept, end = lines[at + 1 : end], fence["kind"] in _FENCED, end + 1
        elif lines[at].startswith(_INDENT) and (at == 0 or not lines[at - 1].strip()):
            while end < len(lines) and (lines[end].startswith(_INDENT) or not lines[end].strip()):
                end += 1
            body, kept = [line.removeprefix(_INDENT) for line in lines[at:end]], True
        if kept and any(map(_COMMAND.match, body)):
            yield Block(page, at + (2 if fence else 1), "\n".join(body))
        at = end


def all_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))]


def block(page: str, begin: str) -> Block:
    """Returns the only block of a page whose first command begins with `begin`."""
    (found,) = [each for each in blocks_of(page, (ROOT / page).read_text(encoding="utf-8")) if each.commands()[0].startswith(begin)]
    return found


SHOWN: list[Block] = []
"""The blocks that tests run, once their modules are imported."""


def shows(page: str, *begins: str) -> pytest.MarkDecorator:
    """Marks a test of the blocks whose first commands begin so, which it gets as `shown`."""
    blocks = [block(page, begin) for begin in begins]
    SHOWN.extend(blocks)
    return pytest.mark.parametrize("shown", [blocks], ids=[page.replace("/", "-")])
