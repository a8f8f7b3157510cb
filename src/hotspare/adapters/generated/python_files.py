"""The files that a publisher's Python code reads: those of the project whose names occur in it, with their content at load time.

As in `lua_files` they become part of the program: a module with a function for `open`, and the parts of `os` for paths to files.
In the code the project's folder is `.` on every machine, so that all engines get the same results.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

from hotspare.adapters.generated.lua_files import project_file

MODULE = "hs_files"
_OPEN = "hs_open"
_SIMPLE = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
_CLASSES = f"""
class path:
    @staticmethod
    def join(first, *others):
        return "/".join([first, *others])


class Opened:
    def __init__(self, text):
        self.lines = [line + "\\n" for line in text.split("\\n")]
        self.lines[-1] = self.lines[-1][:-1]
        self.at = 0

    def read(self):
        return "".join(self.readlines())

    def readlines(self):
        found = [line for line in self.lines[self.at :] if line]
        self.at = len(self.lines)
        return found

    def readline(self):
        self.at += 1
        return self.lines[self.at - 1] if self.at <= len(self.lines) else ""

    def close(self):
        pass

    def __iter__(self):
        return iter(self.readlines())

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return False


def {_OPEN}(name, mode="r", encoding="utf-8", newline=None):
    if mode not in ("r", "rt"):
        raise ValueError("open: mode " + repr(mode) + ": a publisher reads texts, and writes no files")
    text = hs_text(name[2:] if name.startswith("./") else name)
    if text is None:
        raise FileNotFoundError(name + ": not a file of the project that the code of the publisher names")
    return Opened(text)


environ = {{"ESP_PROJECT_HOME": "."}}
"""


class PythonFiles(NamedTuple):
    """The code, changed to open files by `module`, and the files' texts by path. `module` is "" if the code opens no file."""

    code: str
    module: str
    texts: dict[str, bytes]


def python_files(code: str, home: Path) -> PythonFiles:
    """Returns the code and its files. Raises UsageError if a file is too large. Code that is not valid Python stays unchanged."""
    try:
        syntax = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return PythonFiles(code, "", {})
    nodes = list(ast.walk(syntax))
    opens = [node for node in nodes if isinstance(node, ast.Name) and node.id == "open"]
    first = next((node for node in syntax.body if isinstance(node, _SIMPLE)), None)
    if not opens or first is None:
        return PythonFiles(code, "", {})
    texts = {}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value.strip("/")) < 4096:
            written = node.value.removeprefix("./").lstrip("/") if not node.value.startswith(str(home)) else node.value
            found = project_file(home, written)
            if found is not None:
                texts[written] = found
    imports = [
        node for node in nodes if isinstance(node, ast.Import) and [(a.name, a.asname) for a in node.names] == [("os", None)]
    ]
    places = [(node.lineno, node.col_offset, "open", _OPEN) for node in opens]
    places += [(node.lineno, node.col_offset, "import os", f"import {MODULE} as os") for node in imports]
    places.append((first.lineno, first.col_offset, "", f"from {MODULE} import {_OPEN}; "))
    return PythonFiles(_replaced(code, places), _texts(texts) + _CLASSES, texts)


def _replaced(code: str, places: list[tuple[int, int, str, str]]) -> str:
    """Returns the code with replacements at some places: line, column in bytes, the old text and the new one."""
    lines = [line.encode() for line in code.split("\n")]
    for line, column, before, after in sorted(places, reverse=True):
        text = lines[line - 1]
        if text[column:].startswith(before.encode()):
            lines[line - 1] = text[:column] + after.encode() + text[column + len(before) :]
    return b"\n".join(lines).decode()


def _texts(texts: dict[str, bytes]) -> str:
    cases = "".join(f"    if name == {path!r}:\n        return {text.decode(errors='replace')!r}\n" for path, text in texts.items())
    return f"def hs_text(name):\n{cases}    return None\n"
