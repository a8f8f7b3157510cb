"""One project of the examples of all window types: what warms an engine up, and what the laws run."""

from __future__ import annotations

from textwrap import indent

from hotspare.model.windows.registry import WINDOW_TYPES


def examples() -> str:
    """YAML of a project with one query per type, named as the type."""
    queries = [f"  {name}:\n{indent(each.example.strip(), '    ')}\n" for name, each in WINDOW_TYPES.items()]
    return "project: examples\nqueries:\n" + "".join(queries)
