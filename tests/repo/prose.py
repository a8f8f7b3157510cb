"""Docstrings that have to be read twice: openers that begin no sentence, and private words with a common synonym.

`prose_counts.txt` lists how many each file has. A count may only fall:

    python -m tests.repo.prose            lowers the counts to what is there
    python -m tests.repo.prose PATH ...   lists the docstrings of these files
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence

from tests.repo.tree import ROOT, Source, Violation, nodes, read, sources, violations

COUNTS = "tests/repo/prose_counts.txt"
FOLDERS = ("src", "tests", "benchmarks")
_OPENERS = re.compile(
    r"(?:All|As|At|Behind|Beside|By|For|From|In|Likewise|No|Nobody|None|Of|On|One|So|Somebody|Those|To|What|Where|Who|Whom|Whose"
    r"|With)\b"
)
_WORDS = re.compile(
    r"\b(?:whoever|somebody|nobody|everybody|people's|of others|is no|are none|so many|so long|is asked for|comes of|put out|anew"
    r"|beside|clears? up|stands)\b"
)


def docstrings(source: Source) -> Iterator[Violation]:
    """Yields each docstring that opens with a word that begins no sentence, or has a private word with a common synonym."""
    for node in nodes(source, ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        text = ast.get_docstring(node) or ""
        reasons = [f"opens with {opener[0]!r}" for opener in [_OPENERS.match(text)] if opener]
        reasons += [repr(word) for word in sorted(set(_WORDS.findall(text)))]
        if reasons:
            yield source.violation(node.body[0], f"{', '.join(reasons)}: {text.splitlines()[0][:100]}")


def found(files: Sequence[Source]) -> dict[str, int]:
    """Returns the count of each file that has any."""
    counts = {source.path: len(list(docstrings(source))) for source in files}
    return {path: count for path, count in counts.items() if count}


def listed() -> dict[str, int]:
    """Returns the counts of `prose_counts.txt`, by path."""
    pairs = (line.split() for line in read(COUNTS).splitlines())
    return {path: int(count) for path, count in pairs}


def write(counts: Mapping[str, int]) -> None:
    (ROOT / COUNTS).write_text("".join(f"{path} {count}\n" for path, count in sorted(counts.items())), encoding="utf-8")


def main(paths: Sequence[str]) -> None:
    if paths:
        print("\n".join(violations(docstrings, [Source.of(path, read(path)) for path in paths])))
        return
    now, before = found(sources(*FOLDERS)), listed()
    write({path: min(count, now[path]) for path, count in before.items() if path in now})
    print(f"{sum(before.values())} -> {sum(listed().values())}")


if __name__ == "__main__":
    main(sys.argv[1:])
