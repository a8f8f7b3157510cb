"""Writes docs/scope.md: each row of the specification, its state, and the tests that show it (`make docs`).

Rows, with titles and states, are in scope_rows.txt. Texts cite rows in one form: `SPEC` and the ids behind it, as in `SPEC A8,
A10-A12`. A test shows a row if its own docstring cites it, a case file if its opening comment does. A module's docstring may cite
the rows that the module is about; that shows nothing yet.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import groupby

from tests.repo.tree import ROOT, Source, Violation, nodes, read, repository_files, sources

PAGE = "docs/scope.md"
ROWS = "tests/repo/scope_rows.txt"
TESTS_MAX = 3
"""At most this many tests of a row are named, and the count of the others."""

_ITEM = r"(?:[A-Z]\d+(?:-[A-Z]\d+)?|\d+(?:\.\d+)*)"
_CITATION = re.compile(rf"\bSPEC\b(?P<items>\s+{_ITEM}(?:(?:,|\s+and)\s+{_ITEM})*(?!\w))?")
_BARE = re.compile(r"(?<![\w`/.-])[A-Z]\d{1,2}(?:-[A-Z]\d{1,2})?(?![\w`])")

_HEAD = """# Scope

After this page you know which features of the earlier systems hotspare has, which it lacks, and which test shows each. Tests and
docstrings cite a row by its id, for example `SPEC A8`.

| state | meaning |
|---|---|
| there | tests show it; the first of them are named |
| partly | it exists with the stated limits |
| not yet | it does not exist |

The last section lists defects of the earlier systems. There, "there" means that hotspare does not have the defect. The page is
written by `make docs` from `tests/repo/scope_rows.txt` and the tests; do not edit it.

"""


class State(Enum):
    THERE = "there"
    PARTLY = "partly"
    NOT_YET = "not yet"


@dataclass(frozen=True)
class Row:
    """A row of the specification. `note`: what is missing, or exists instead."""

    id: str
    title: str
    state: State
    note: str
    section: str


def parse_rows(text: str) -> tuple[Row, ...]:
    """Parses `ID | title | state`, optionally followed by `| note`; lines with `#` open a section. Raises ValueError with the
    line's number."""
    found, section = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.strip():
            try:
                row_id, title, state, *note = (part.strip() for part in line.split(" | "))
                found.append(Row(row_id, title, State(state), *note or [""], section))
            except (ValueError, TypeError):
                raise ValueError(f"{ROWS}:{number}: not understood: {line}") from None
    return tuple(found)


@cache
def rows() -> tuple[Row, ...]:
    return parse_rows(read(ROWS))


@cache
def row_ids() -> tuple[str, ...]:
    return tuple(row.id for row in rows())


def cited(text: str) -> tuple[str, ...]:
    """Returns the ids that a text cites, ranges written out, each once; ignores sections of the specification (`5.2`)."""
    found: dict[str, None] = {}
    for match in _CITATION.finditer(_flat(text)):
        for first, last in re.findall(r"([A-Z]\d+)(?:-([A-Z]\d+))?", match["items"] or ""):
            found |= dict.fromkeys(_range(first, last or first))
    return tuple(found)


def _flat(text: str) -> str:
    """Returns the text as one line, also if it is a comment of several lines."""
    return re.sub(r"\s*\n[#\s]*", " ", text)


def _range(first: str, last: str) -> Iterator[str]:
    if first[0] == last[0] and int(first[1:]) <= int(last[1:]):
        yield from (f"{first[0]}{number}" for number in range(int(first[1:]), int(last[1:]) + 1))
    else:
        yield f"{first}-{last}"


def misfits(path: str, text: str, known: Sequence[str]) -> Iterator[Violation]:
    """Yields citations in another form, and citations of unknown rows."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in _CITATION.finditer(line):
            rest = line[match.end() :]
            if not match["items"] and rest.strip(" #") and not rest.startswith(("`", '"')):
                yield Violation(path, number, "cites no row after SPEC")
    for row_id in cited(text):
        if row_id not in known:
            yield Violation(path, 1, f"cites {row_id}, which is no row")


def bare(source: Source, known: Sequence[str]) -> Iterator[Violation]:
    """Yields docstrings that name a row without SPEC, which no search would find."""
    for node in nodes(source, ast.Module, ast.ClassDef, ast.FunctionDef):
        prose = [line for line in (ast.get_docstring(node) or "").splitlines() if not line.startswith("    ")]
        text = _CITATION.sub("", _flat("\n".join(prose)))
        for match in _BARE.finditer(text):
            if match[0].partition("-")[0] in known:
                yield source.violation(node, f"names {match[0]} without SPEC")


@dataclass(frozen=True)
class Shown:
    """A test, a case, a benchmark or a document that cites a row as shown by it."""

    place: str
    is_test: bool


@cache
def shown() -> dict[str, tuple[Shown, ...]]:
    """Returns what shows each row: cases and tests, then benchmarks and documents."""
    found: dict[str, list[Shown]] = {}
    for place, text, is_test in _texts():
        for row_id in cited(text):
            found.setdefault(row_id, []).append(Shown(place, is_test))
    return {row_id: tuple(sorted(places, key=lambda s: not s.is_test)) for row_id, places in found.items()}


def _texts() -> Iterator[tuple[str, str, bool]]:
    for path in repository_files():
        if path.startswith("tests/cases/") and path.endswith(".case"):
            yield path, "\n".join(line for line in _opening(read(path))), True
        elif path.endswith(".md") and path != PAGE and path.startswith("docs/"):
            yield path, read(path), False
    for source in sources("tests"):
        for node in source.syntax.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{source.path}::{node.name}", ast.get_docstring(node) or "", True
    for source in sources("benchmarks"):
        yield source.path, ast.get_docstring(source.syntax) or "", False


def _opening(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.startswith("#"):
            return
        yield line


def unshown(found: Sequence[Row], places: dict[str, tuple[Shown, ...]]) -> Iterator[str]:
    """Yields rows whose state differs from what tests, benchmarks and documents show."""
    for row in found:
        by = places.get(row.id, ())
        if row.state is State.THERE and not any(place.is_test for place in by):
            yield f"{row.id} is said to be there, and no test cites it"
        if row.state is State.PARTLY and not by:
            yield f"{row.id} is said to be there in part, and nothing cites it"
        if row.state is State.PARTLY and not row.note:
            yield f"{row.id} does not say what is missing"
        if row.state is State.NOT_YET and any(place.is_test for place in by):
            yield f"{row.id} is said not to be there, and {by[0].place} shows it"


def render() -> str:
    by_state = [sum(row.state is state for row in rows()) for state in State]
    text = [_HEAD, "Of {} rows {} are there, {} partly, and {} not yet.\n".format(len(rows()), *by_state)]
    for section, members in groupby(rows(), key=lambda row: row.section):
        text.append(f"\n## {section}\n\n| row | what it is | state | shown by |\n|---|---|---|---|\n")
        text += [f"| {row.id} | {row.title} | {_state(row)} | {_places(row)} |\n" for row in members]
    return "".join(text)


def _state(row: Row) -> str:
    return f"{row.state.value}: {row.note}" if row.note else row.state.value


def _places(row: Row) -> str:
    if row.state is State.NOT_YET:
        return ""
    places = [f"`{found.place}`" for found in shown().get(row.id, ())]
    more = len(places) - TESTS_MAX
    return " ".join(places[:TESTS_MAX]) + (f" and {more} more" if more > 0 else "")


if __name__ == "__main__":
    (ROOT / PAGE).write_text(render(), encoding="utf-8")
