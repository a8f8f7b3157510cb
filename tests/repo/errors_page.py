"""Writes docs/errors.md from hotspare/base/errors.py: `make docs`. A test compares the page with this output."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from hotspare.base import errors
from hotspare.base.errors import HotspareError
from tests.repo.tree import ROOT

PAGE = "docs/errors.md"

_HEAD = """# Errors

After this page you can look up the code of an error, and decide in a script whether to retry.

    hotspare: HS-0100 no group given
      hint: name one, or give --bus URL to see those of all

An error that hotspare raises on purpose is printed as a code and a sentence, then a detail and a hint if it has them. The meaning
of a code never changes. "Retry: yes" means that the same call may succeed later. The page is written by `make docs` from
`src/hotspare/base/errors.py`; do not edit it.

An error is printed as its code and one line, then a detail and a hint if it has them. A code keeps its meaning in all releases.

| code | error | parent | retry | meaning |
|---|---|---|---|---|
"""


def classes() -> tuple[type[HotspareError], ...]:
    """Returns the tree's classes, parents before children, in the order of their codes."""
    found = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, HotspareError)]
    return tuple(sorted(found, key=lambda c: (c.code, len(c.__mro__))))


def drawn() -> dict[str, tuple[str, str]]:
    """Parses the tree drawn in the module's docstring: class name -> (parent's name, text next to it)."""
    tree: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    for indent, name, text in _branches(errors.__doc__ or ""):
        del above[indent:]
        tree[name] = (above[-1] if above else "", text)
        above.append(name)
    return tree


def _branches(text: str) -> Iterator[tuple[int, str, str]]:
    for line in text.splitlines():
        match = re.match(r"^(?P<lead>[│├└─ ]*)(?P<name>[A-Z]\w+)\b(?P<rest>.*)$", line)
        if match and (match["lead"] or match["name"] == HotspareError.__name__):
            rest = re.sub(r"HS-\d\dxx", "", match["rest"]).strip()
            yield len(match["lead"]) // 4, match["name"], rest


def render() -> str:
    beside = drawn()
    rows = []
    for found in classes()[1:]:
        meaning = beside.get(found.__name__, ("", ""))[1] or vars(found)["__doc__"] or ""
        retry = "yes" if found.retryable else ""
        rows.append(f"| {found.code} | {found.__name__} | {found.__mro__[1].__name__} | {retry} | {' '.join(meaning.split())} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    (ROOT / PAGE).write_text(render(), encoding="utf-8")
