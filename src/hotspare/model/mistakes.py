"""Collects every mistake of a project before it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hotspare.base.errors import Mistake, MistakeKind, Place
from hotspare.model.project import WindowId
from hotspare.model.types import FieldType

MISTAKES_MAX = 200
"""Limit on the stored mistakes, and on the stored warnings; a text that is not a project would have more than a user can read."""


WITHOUT_EFFECT = "without effect"
SWITCHED_OFF = "switched off and left out"
READ_AS_MEANT = "read as it is meant"
REFUSED = "cannot be supported"
UNKNOWN = "does not exist yet"
NO_PROJECT = "is not a project"
"""The values of `MistakeKind.what`, each of which describes the subjects of the kind."""


class Mistakes:
    """Collects mistakes and warnings in any order and returns them in the order of the text, each once.

    `windows`: the windows with a mistake; a mistake in a window downstream of one may only be a consequence. `assumed`: the type
    that replaces an unknown type of a field; None makes the schema unreadable. `has_unread_type`: whether a field has an unknown
    type.
    """

    def __init__(self, assumed: FieldType | None = None) -> None:
        self.assumed = assumed
        self.has_unread_type = False
        self._mistakes: dict[Mistake, None] = {}
        self._warnings: dict[Mistake, None] = {}
        self._about: tuple[WindowId, ...] = ()
        self.windows: set[WindowId] = set()

    @contextmanager
    def about(self, *windows: WindowId) -> Iterator[None]:
        """Context manager: a mistake that is added inside also adds these windows to the attribute `windows`."""
        around, self._about = self._about, (*self._about, *windows)
        try:
            yield
        finally:
            self._about = around

    def add(self, place: Place, message: str, hint: str = "", kind: MistakeKind | None = None) -> None:
        self.add_mistake(Mistake(place, message, hint, kind))

    def add_mistake(self, mistake: Mistake) -> None:
        """Adds a mistake that was found elsewhere."""
        self.windows.update(self._about)
        if len(self._mistakes) < MISTAKES_MAX:
            self._mistakes[mistake] = None

    def warn(self, place: Place, message: str, hint: str = "", kind: MistakeKind | None = None) -> None:
        self.add_warning(Mistake(place, message, hint, kind))

    def add_warning(self, warning: Mistake) -> None:
        """Adds a warning that was found elsewhere."""
        if len(self._warnings) < MISTAKES_MAX:
            self._warnings[warning] = None

    def __bool__(self) -> bool:
        return bool(self._mistakes)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return _in_order(self._mistakes)

    @property
    def warnings(self) -> tuple[Mistake, ...]:
        return _in_order(self._warnings)


def brief(warnings: Sequence[Mistake]) -> list[Mistake]:
    """Returns the warnings, with all warnings of one kind merged into one at the place of the first. The merged warning names each
    subject once, with the number of its warnings if there are several.
    """
    found: dict[str, Mistake] = {}
    counts: dict[str, Counter[str]] = {}
    for number, warning in enumerate(warnings):
        key = str(number) if warning.kind is None else warning.kind.what
        found.setdefault(key, warning)
        if warning.kind is not None:
            counts.setdefault(key, Counter()).update(warning.kind.subjects)
    return [_merged(each, key, counts[key]) if key in counts else each for key, each in found.items()]


def _merged(first: Mistake, what: str, counts: Counter[str]) -> Mistake:
    subjects = (subject if count == 1 else f"{subject} ({count} times)" for subject, count in counts.items())
    return Mistake(first.place, f"{what}: {', '.join(subjects)}", "hotspare validate -v shows where and why")


def _in_order(found: dict[Mistake, None]) -> tuple[Mistake, ...]:
    return tuple(sorted(found, key=lambda m: (m.place.file, m.place.line, m.place.column)))
