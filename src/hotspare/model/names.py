"""The names that a project may use, their lengths, and suggestions for misspelled ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Set

NAME = re.compile(r"[A-Za-z0-9_\-]+")
"""The form of names of projects, queries and windows: they become parts of topic names (SPEC B1)."""

FIELD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The form of names of fields, which every expression language can write without quotes."""

PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.\-]+")

NAME_LENGTH_MAX = 100
FIELD_NAME_LENGTH_MAX = 255
EXPRESSION_LENGTH_MAX = 16_384
"""Limit on the characters of one expression."""
LISTED_MAX = 20
OPCODE_FIELD, FLAGS_FIELD = "ESP_OPCODE", "ESP_FLAGS"
"""The names of an event's own opcode and flags in expressions, unless fields have these names (SPEC A26)."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def first_unprintable(text: str) -> str:
    """Returns the first character of `text` that a project's text may not contain, or ""."""
    found = _UNPRINTABLE.search(text)
    return found.group() if found else ""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Returns the name in `known` that is nearest to `name`, ignoring case; "" if none is near."""
    lower = {k.lower(): k for k in sorted(known, reverse=True)}
    near = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return lower[near[0]] if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the nearest of `known`, or "" if none is near."""
    near = nearest_name(name, known)
    return f"did you mean {near!r}?" if near else ""


def one_of(known: Iterable[str]) -> str:
    """Returns a hint that lists the possible names, without an empty one."""
    return "use one of: " + ", ".join(name for name in known if name)


def nearest_names_hint(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the nearest of `known`, else with at most LISTED_MAX of them."""
    names = sorted(known) if isinstance(known, Set) else list(known)
    listed = ", ".join(names[:LISTED_MAX]) + (" ..." if len(names) > LISTED_MAX else "")
    return did_you_mean(name, names) or (f"known are {listed}" if names else "nothing has a name here")


def repeated(names: Iterable[str]) -> list[str]:
    """Returns names that occur more than once, each once, in order."""
    count: dict[str, int] = {}
    for name in names:
        count[name] = count.get(name, 0) + 1
    return [name for name, n in count.items() if n > 1]
