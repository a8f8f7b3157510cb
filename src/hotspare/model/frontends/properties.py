"""Replaces @NAME@ by project properties (SPEC A4), the same way in every front end."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hotspare.base.errors import Place
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import did_you_mean

HOME = "ESP_PROJECT_HOME"
RESERVED: frozenset[str] = frozenset({HOME, "ESP_PROJECT_OUTPUT"})
"""The properties that are set when a project is started. A text that refers to an unset one loads, with a warning."""

REPLACEMENTS_MAX = 1_000
"""Limit on the replacements in one text; a text that needs more has properties that refer to each other in a cycle."""

EXPANDED_LENGTH_MAX = 1 << 20

_REFERENCE = re.compile(r"@([A-Za-z_][A-Za-z0-9_.\-]*)@")


class Substitution:
    """Replaces references in the texts of one project until no reference to a known property is left. `home`: the folder of the
    project, as the caller passes it; "" if the text has no folder.
    """

    def __init__(self, values: Mapping[str, str], found: Mistakes, home: str = "") -> None:
        self._values = values
        self.home = home
        self._found = found
        self._unused = set(values)
        self._named: set[str] = set()

    def warn_of_unused(self, given: Mapping[str, str], own: Mapping[str, str], place: Place) -> None:
        """Adds a warning for each name in `given` (values from outside) that is not in `own` and that no text refers to. Call it
        after all texts are read."""
        for name in sorted(given):
            if name in self._unused and name not in own and name not in RESERVED:
                hint = did_you_mean(name, {*own, *self._named}) or "leave it out, or refer to it as @NAME@"
                self._found.warn(place, f"the project has no property {name}, which is given from outside", hint)

    def replace_references(self, text: str, place: Place) -> str:
        """Returns `text` with references replaced. A reference to an unknown property is kept, with a warning. If properties refer
        to each other in a cycle, adds a mistake and returns a truncated text."""
        if "@" not in text:
            return text
        for _ in range(REPLACEMENTS_MAX):
            # From the beginning each time: a replacement may complete a reference that begins before it.
            match = _next_known(text, self._values)
            if match is None:
                self._warn_unset(text, place)
                return text
            self._unused.discard(match[1])
            text = text[: match.start()] + self._values[match[1]] + text[match.end() :]
            if len(text) > EXPANDED_LENGTH_MAX:
                break
        self._found.add(
            place, f"project properties refer to each other in a circle: {text[:40]!r}...", "remove a reference from the circle"
        )
        return text[:EXPANDED_LENGTH_MAX]

    def _warn_unset(self, text: str, place: Place) -> None:
        for match in _REFERENCE.finditer(text):
            reserved = match[1] in RESERVED
            self._named.add(match[1])
            hint = (
                "it is set when the project is started" if reserved else "add it to the project's properties or set it from outside"
            )
            self._found.warn(place, f"project property {match[1]} is not set", hint)


def _next_known(text: str, values: Mapping[str, str]) -> re.Match[str] | None:
    """Returns the first reference to a known property, None if there is none. A reference to an unknown property may share its
    last @ with the next reference."""
    match = _REFERENCE.search(text)
    while match is not None and match[1] not in values:
        match = _REFERENCE.search(text, match.end() - 1)
    return match


def merged_properties(own: Mapping[str, str], given: Mapping[str, str]) -> tuple[dict[str, str], tuple[tuple[str, str], ...]]:
    """Returns the values for references, and the project's own properties, sorted; in both, `given` overrides `own`.

    Properties that are given only from outside (a folder, a host) do not become part of the project.
    """
    seen = {**own, **given}
    return seen, tuple(sorted((name, seen[name]) for name in own))
