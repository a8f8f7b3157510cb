"""Regular expressions for people's code, of bounded texts, and without those that try exponentially many ways.

Python's own try one way after the other. A repetition within a repetition, with nothing between two turns that must be there, has
2^n of them for n letters, so it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from hotspare.engine.code.python.guards import Guards
from hotspare.engine.code.python.words import words

TEXT_LENGTH_MAX = 1 << 16
"""Of a text that a regular expression is applied to."""
_MANY = 16
"""A repetition of more turns than this counts as one without an end."""
_FUNCTIONS = ("match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")


class Pattern:
    """`re.Pattern` of people's code. It cannot be changed."""

    __slots__ = ("_guards", "_pattern", "flags", "groupindex", "groups", "pattern")

    def __init__(self, pattern: re.Pattern[Any], guards: Guards) -> None:
        self._pattern, self._guards = pattern, guards
        self.pattern, self.flags, self.groups = pattern.pattern, pattern.flags, pattern.groups
        self.groupindex = dict(pattern.groupindex)

    def __repr__(self) -> str:
        return repr(self._pattern)

    def match(self, text: Any, *within: int) -> Any:
        return self._pattern.match(self._bounded(text), *within)

    def fullmatch(self, text: Any, *within: int) -> Any:
        return self._pattern.fullmatch(self._bounded(text), *within)

    def search(self, text: Any, *within: int) -> Any:
        return self._pattern.search(self._bounded(text), *within)

    def findall(self, text: Any, *within: int) -> Any:
        return self._pattern.findall(self._bounded(text), *within)

    def finditer(self, text: Any, *within: int) -> Any:
        return self._pattern.finditer(self._bounded(text), *within)

    def split(self, text: Any, maxsplit: int = 0) -> Any:
        return self._pattern.split(self._bounded(text), maxsplit)

    def sub(self, replacement: Any, text: Any, count: int = 0) -> Any:
        return self._guards.sized(self._pattern.sub(replacement, self._bounded(text), count))

    def subn(self, replacement: Any, text: Any, count: int = 0) -> Any:
        return self._pattern.subn(replacement, self._bounded(text), count)

    def _bounded(self, text: Any) -> Any:
        if isinstance(text, str | bytes) and len(text) > TEXT_LENGTH_MAX:
            self._guards.meter.stop(f"a regular expression over a text of more than {TEXT_LENGTH_MAX} letters")
        return self._guards.sized(text)


def members(guards: Guards) -> Mapping[str, Any]:
    """The module `re`."""

    def compile_(pattern: Any, flags: int = 0) -> Pattern:
        return pattern if isinstance(pattern, Pattern) else Pattern(_compiled(pattern, int(flags)), guards)

    def function(name: str) -> Callable[..., Any]:
        def apply(pattern: Any, *arguments: Any, flags: int = 0, **named: Any) -> Any:
            return getattr(compile_(pattern, flags), name)(*arguments, **named)

        return apply

    flags = {
        name: getattr(re, name)
        for name in words(
            """
        A ASCII I IGNORECASE M MULTILINE S DOTALL X VERBOSE NOFLAG
        """
        )
    }
    functions = {name: function(name) for name in _FUNCTIONS}
    return flags | functions | {"compile": compile_, "escape": re.escape, "error": re.error, "Pattern": Pattern, "Match": re.Match}


@lru_cache(maxsize=1024)
def _compiled(pattern: Any, flags: int) -> re.Pattern[Any]:
    if isinstance(pattern, str | bytes) and _explodes(list(parser.parse(pattern, flags))):
        raise ValueError(f"the regular expression {pattern!r} repeats a repetition, which can take for ever")
    return re.compile(pattern, flags)


def _explodes(parts: list[Any]) -> bool:
    """Whether a repetition repeats a repetition, and nothing else of it must be there."""
    for kind, argument in parts:
        inner = _within(str(kind), argument)
        if str(kind) in _REPEATS and argument[1] > _MANY and any(_is_ambiguous(branch) for branch in inner):
            return True
        if any(_explodes(branch) for branch in inner):
            return True
    return False


def _within(kind: str, argument: Any) -> list[list[Any]]:
    """The expressions of which a part is made."""
    if kind in (*_REPEATS, "POSSESSIVE_REPEAT"):
        return _branches(list(argument[2]))
    if kind == "SUBPATTERN":
        return _branches(list(argument[3]))
    if kind == "ATOMIC_GROUP":
        return _branches(list(argument))
    if kind == "BRANCH":
        return [list(branch) for branch in argument[1]]
    if kind in ("ASSERT", "ASSERT_NOT"):
        return [list(argument[1])]
    return []


def _branches(parts: list[Any]) -> list[list[Any]]:
    """The alternatives of an expression; groups around all of it are looked through."""
    if len(parts) == 1 and str(parts[0][0]) in ("BRANCH", "SUBPATTERN"):
        return [each for branch in _within(str(parts[0][0]), parts[0][1]) for each in _branches(branch)]
    return [parts]


def _is_ambiguous(parts: list[Any]) -> bool:
    """A repetition is among the parts, and all others may be empty."""
    repeats = [_repeats(kind, argument) for kind, argument in parts]
    must = [_least(kind, argument) > 0 for kind, argument in parts]
    return any(repeats) and not any(must[i] and not repeats[i] for i in range(len(parts))) and sum(must) <= 1


def _repeats(kind: Any, argument: Any) -> bool:
    if str(kind) in _REPEATS:
        return bool(argument[1] > _MANY)
    return str(kind) == "SUBPATTERN" and any(_repeats(*part) for branch in _within("SUBPATTERN", argument) for part in branch)


def _least(kind: Any, argument: Any) -> int:
    """How many letters a part needs at least, up to one."""
    if str(kind) in _REPEATS:
        return int(argument[0] > 0)
    if str(kind) in ("AT", "ASSERT", "ASSERT_NOT"):
        return 0
    if str(kind) == "SUBPATTERN":
        return min((int(any(_least(*part) for part in branch)) for branch in _within("SUBPATTERN", argument)), default=0)
    return 1
