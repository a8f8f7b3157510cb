"""Checks the first events of a source, and warns once of members that are not fields of the window: they are ignored."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hotspare.adapters.files.canonical import RowForm
from hotspare.flow.head.unknown_members import sentence_of

_ROWS = 100
"""The number of rows that are checked."""


class UnknownMemberCheck:
    """Checks rows of this `form`; `warn` gets a sentence about `source`. Threads may share an object; then it may warn more than
    once."""

    def __init__(self, source: str, form: RowForm, warn: Callable[[str], None]) -> None:
        self._source, self._form, self._warn = source, form, warn
        self._is_done = False

    def warn_on_first_rows(self, rows: Sequence[bytes]) -> None:
        """Checks original rows, before any of them is rewritten: at most the first `_ROWS` of the first call with rows."""
        if self._is_done or not rows:
            return
        self._is_done = True
        if unknown := self._form.unknown_members(rows[:_ROWS]):
            self._warn(sentence_of(self._source, unknown))
