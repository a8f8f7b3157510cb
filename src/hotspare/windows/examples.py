"""One project of the examples of window types: what warms an engine up, and what the laws run."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent

from hotspare.windows.registry import WINDOW_TYPES


def example(name: str) -> str:
    """YAML of a project with the example of one type."""
    return f"project: example\nqueries:\n{_query(name)}"


def examples(types: Iterable[str]) -> str:
    """YAML of a project with one query for each of these types, named as the type."""
    return "project: examples\nqueries:\n" + "".join(map(_query, types))


def _query(name: str) -> str:
    return f"  {name}:\n{indent(WINDOW_TYPES[name].example.strip(), '    ')}\n"
