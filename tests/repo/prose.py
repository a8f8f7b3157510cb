"""Docstrings that have to be read twice: openers that begin no sentence, and words for which the trade has better ones.

python -m tests.repo.prose [PATH ...]      lists the docstrings of these files, of all by default
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence

from tests.repo.tree import Source, Violation, nodes, read, sources, violations

FOLDERS = ("src", "tests", "benchmarks")
_OPENERS = re.compile(
    r"(?:All|As|At|Behind|Beside|By|For|From|In|Likewise|No|Nobody|None|Of|On|One|So|Somebody|Those|To|What|Where|Who|Whom|Whose"
    r"|With)\b"
)
_WORDS = re.compile(
    r"\b(?:whoever|somebody|nobody|everybody|people's|of others|is no|are none|so many|so long|is asked for|comes of|put out"
    r"|anew|beside|clears? up|stands)\b"
)


def docstrings(source: Source) -> Iterator[Violation]:
    """Yields each docstring that opens with a word that begins no sentence, or has a private word with a common synonym."""
    for node in nodes(source, ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        text = ast.get_docstring(node) or ""
        reasons = [f"opens with {opener[0]!r}" for opener in [_OPENERS.match(text)] if opener]
        reasons += [repr(word) for word in sorted(set(_WORDS.findall(text)))]
        if reasons:
            yield source.violation(node.body[0], f"{', '.join(reasons)}: {text.splitlines()[0][:100]}")


def main(paths: Sequence[str]) -> None:
    files = [Source.of(path, read(path)) for path in paths] if paths else sources(*FOLDERS)
    print("\n".join(violations(docstrings, files)))


if __name__ == "__main__":
    main(sys.argv[1:])
