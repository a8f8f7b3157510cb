"""Regular expressions of user code: Python's own, but for flags that depend on the machine or print."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hotspare.scripting.python.plain_values import plain_value
from hotspare.scripting.python.words import words

_FLAGS_AT = {**dict.fromkeys(("match", "fullmatch", "search", "findall", "finditer"), 1), "split": 2, "sub": 3, "subn": 3}
"""The functions, each with the place of `flags` among its arguments behind the pattern."""
_FLAGS = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.UNICODE


def pattern_members() -> Mapping[str, Any]:
    """The module `re`."""
    flags = {name: getattr(re, name) for name in words("A ASCII I IGNORECASE M MULTILINE S DOTALL X VERBOSE U UNICODE NOFLAG")}
    functions = {name: _function(name) for name in _FLAGS_AT}
    kinds = {"Pattern": re.Pattern, "Match": re.Match, "error": re.error}
    return flags | functions | kinds | {"compile": _compiled, "escape": re.escape}


def _function(name: str) -> Callable[..., Any]:
    at = _FLAGS_AT[name]

    def apply(pattern: Any, /, *arguments: Any, flags: int = 0, **named: Any) -> Any:
        if len(arguments) > at:
            flags, arguments = arguments[at], arguments[:at]
        return getattr(_compiled(pattern, flags), name)(*arguments, **named)

    return apply


def _compiled(pattern: Any, flags: int = 0) -> re.Pattern[Any]:
    if int(flags) & ~int(_FLAGS):
        raise ValueError("the flags of a regular expression are ASCII, IGNORECASE, MULTILINE, DOTALL and VERBOSE")
    if isinstance(pattern, re.Pattern):
        return re.compile(pattern)
    made = re.compile(plain_value(pattern), int(flags))
    if made.flags & re.LOCALE:
        raise ValueError("a regular expression cannot ask for the locale, which differs between engines")
    return made
