"""The input of the repository's rules: its files, and Python sources parsed once.

A rule is a function from a `Source` to violations, so a test can feed it a bad snippet as easily as a real file.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeVar

T = TypeVar("T", bound=ast.AST)

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Violation:
    """A place that breaks a rule."""

    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


@dataclass(frozen=True)
class Source:
    """A Python file. `path` is relative to the repository, with slashes; `module` is its dotted name."""

    path: str
    text: str
    syntax: ast.Module

    @classmethod
    def of(cls, path: str, text: str) -> Source:
        return cls(path, text, ast.parse(text, filename=path))

    @property
    def module(self) -> str:
        parts = list(PurePosixPath(self.path.removeprefix("src/")).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def package(self) -> str:
        """The package that a relative import starts from."""
        return self.module if self.path.endswith("__init__.py") else self.module.rpartition(".")[0]

    def violation(self, node: ast.AST, what: str) -> Violation:
        return Violation(self.path, getattr(node, "lineno", 1), what)


Rule = Callable[[Source], Iterator[Violation]]


@cache
def repository_files() -> tuple[str, ...]:
    """Returns every file that is tracked, or would be by `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    return tuple(sorted(name for name in set(listed.split("\0")) if name and (ROOT / name).is_file()))


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def _parsed(path: str) -> Source:
    return Source.of(path, read(path))


def sources(*folders: str) -> tuple[Source, ...]:
    """Returns the Python files below `folders` ("src", "tests", "benchmarks")."""
    wanted = tuple(f"{folder}/" for folder in folders)
    return tuple(_parsed(path) for path in repository_files() if path.startswith(wanted) and path.endswith(".py"))


def violations(rule: Rule, files: Iterable[Source]) -> list[str]:
    """Returns every violation as one readable line; the list is empty if the rule holds."""
    return [str(found) for source in files for found in rule(source)]


def whats(rule: Rule, path: str, text: str) -> list[str]:
    """Returns the complaints of `rule` about a snippet, as if it were the file `path`."""
    return [found.what for found in rule(Source.of(path, text))]


def nodes(source: Source, *types: type[T]) -> Iterator[T]:
    """Yields every node of one of `types`, outer ones first."""
    return (node for node in ast.walk(source.syntax) if isinstance(node, types))


def dotted(node: ast.AST) -> str:
    """Returns `a.b.c` for a name or attribute chain, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        left = dotted(node.value)
        return f"{left}.{node.attr}" if left else ""
    return ""
