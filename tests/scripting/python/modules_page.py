"""Writes docs/python-modules.md from the tables of modules: `python -m tests.scripting.python.modules_page`. A test compares."""

from __future__ import annotations

from pathlib import Path

from hotspare.scripting.python.modules import IMPORTABLE, REFUSED, REFUSED_MEMBERS, allowed_members

PAGE = Path(__file__).parents[3] / "docs" / "python-modules.md"

_HEAD = """# Modules of Python code

After this page you can look up what code of a [Python window](windows/python.md) may import, and what to use instead of the rest.

```python
import math
from collections import defaultdict
from datetime import datetime, timedelta
```

Members are functions, classes and values that cannot change. An import or a use of anything else is refused when the project is
loaded, with what to use instead. Private members, whose names begin with an underscore, cannot be used. The page is written by
`make docs` from `src/hotspare/scripting/python/modules.py`; do not edit it.

| module | members |
|---|---|
"""
_SHORT = "pyarrow.compute"
_REFUSED_MEMBERS_HEAD = """
## Members that cannot be used

| member | what to do instead |
|---|---|
"""
_REFUSED_HEAD = """
## Modules that cannot be imported

| module | reason, and what to do instead |
|---|---|
"""


def render() -> str:
    """Returns the page."""
    rows = [f"| `{module}` | {_members(module)} |" for module in IMPORTABLE]
    members = [f"| `{name}` | {hint[0].upper()}{hint[1:]}. |" for name, hint in REFUSED_MEMBERS.items()]
    modules = [f"| `{name}` | {hint[0].upper()}{hint[1:]}. |" for name, hint in REFUSED.items()]
    parts = [_HEAD, *_lines(rows), _REFUSED_MEMBERS_HEAD, *_lines(members), _REFUSED_HEAD, *_lines(modules)]
    return "".join(parts)


def _lines(rows: list[str]) -> list[str]:
    return [f"{row}\n" for row in rows]


def _members(module: str) -> str:
    if module == _SHORT:
        return "Arrow's functions that work row by row, but for those that draw numbers or need time zones; `cast`, `scalar`"
    return ", ".join(f"`{name}`" for name in allowed_members(module))


if __name__ == "__main__":
    PAGE.write_text(render())
