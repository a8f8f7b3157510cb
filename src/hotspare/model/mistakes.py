"""Collects every mistake of a project before anything is refused (DESIGN section 8)."""

from __future__ import annotations

from hotspare.errors import Mistake, Place

MISTAKES_MAX = 200
"""More are not kept: a text that is no project at all would otherwise drown its reader."""


class Mistakes:
    """Gathers mistakes and warnings in any order and gives them back in the order of the text, each once."""

    def __init__(self) -> None:
        self._mistakes: dict[Mistake, None] = {}
        self._warnings: dict[Mistake, None] = {}

    def add(self, place: Place, message: str, hint: str = "") -> None:
        if len(self._mistakes) < MISTAKES_MAX:
            self._mistakes[Mistake(place, message, hint)] = None

    def warn(self, place: Place, message: str, hint: str = "") -> None:
        if len(self._warnings) < MISTAKES_MAX:
            self._warnings[Mistake(place, message, hint)] = None

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return _in_order(self._mistakes)

    @property
    def warnings(self) -> tuple[Mistake, ...]:
        return _in_order(self._warnings)


def _in_order(found: dict[Mistake, None]) -> tuple[Mistake, ...]:
    return tuple(sorted(found, key=lambda m: (m.place.file, m.place.line, m.place.column)))
