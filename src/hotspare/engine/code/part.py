"""People's code as a part of a page: an instance that runs, and its variables as bytes.

Freezing writes down all that the variables hold, so it costs what they may hold at most (`Limits.state_bytes_max`), and nothing
where no event came since the last time. A program is opened when it is first needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from hotspare.engine.code.contract import CodeFailure, Instance, Program
from hotspare.engine.state.pages import Column, Columns, expect
from hotspare.errors import SnapshotDamaged

W = TypeVar("W")
_VARIABLES, _UNKEPT = "variables", "unkept"


class CodeState(Generic[W]):
    """The one instance of a program in a page. `unfinished`: what its window has yet to do within a step, in no snapshot."""

    def __init__(self, program: Program) -> None:
        self.unfinished: W | None = None
        self._program = program
        self._instance: Instance | None = None
        self._saved: bytes | None = None
        """What the variables hold, if it is known; None of an instance that has worked since, and of one that was never opened."""

    def running(self) -> Instance:
        """The instance, to be worked with: what was saved of it counts no more."""
        instance = self._opened()
        self._saved = None
        return instance

    def _opened(self) -> Instance:
        if self._instance is None:
            self._instance = self._program.open()
            if self._saved is not None:
                self._instance.load(self._saved)
        return self._instance

    def freeze(self) -> FrozenCode:
        try:
            if self._saved is None:
                self._saved = self._opened().save()
        except CodeFailure as failure:
            return FrozenCode(b"", failure.text)
        return FrozenCode(self._saved)

    def columns(self) -> Columns:
        return self.freeze().columns()

    def load(self, columns: Columns) -> None:
        reason = bytes(expect(columns, _UNKEPT, np.dtype(np.uint8), (-1,)).array)
        if reason:
            raise SnapshotDamaged("the snapshot lacks what people's code kept", detail=reason.decode(errors="replace"))
        self._saved = bytes(expect(columns, _VARIABLES, np.dtype(np.uint8), (-1,)).array)
        self._instance = self._program.open()
        self._instance.load(self._saved)

    def __deepcopy__(self, known: Mapping[int, Any]) -> CodeState[W]:
        """With an instance of its own."""
        twin: CodeState[W] = CodeState(self._program)
        twin._saved = self._opened().save()
        return twin


class FrozenCode:
    """What the variables held. `reason`: why they cannot be restored; "" where they can."""

    def __init__(self, variables: bytes, reason: str = "") -> None:
        self._variables, self._reason = variables, reason

    def freeze(self) -> FrozenCode:
        return self

    def columns(self) -> Columns:
        texts = {_VARIABLES: self._variables, _UNKEPT: self._reason.encode()}
        return {name: Column(np.frombuffer(text, np.uint8)) for name, text in texts.items()}

    def load(self, columns: Columns) -> None:
        self._variables = bytes(expect(columns, _VARIABLES, np.dtype(np.uint8), (-1,)).array)
