"""User code as a part of a page: a running instance, and its variables as bytes.

The cost of freezing depends on the language (`Instance.freeze`): at most proportional to the size of the variables, or almost
nothing. If no event was processed since the last freeze, it costs nothing. A program is opened when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from hotspare.base.errors import StateError
from hotspare.scripting.contract import CodeFailure, Instance, Program, SharedCode
from hotspare.table.memory import PinnedPart
from hotspare.table.pages import Column, Columns, require_column

W = TypeVar("W")
_VARIABLES = "variables"


class CodeState(PinnedPart, Generic[W]):
    """The one instance of a program in a page. The instance is opened at first use. `unfinished`: work that the window does later
    in the same step; it is in no snapshot.
    """

    def __init__(self, program: Program) -> None:
        self.unfinished: W | None = None
        self.shared: SharedCode | None = None
        """The state that the window's code shares with other code of the project during a step; None without such state."""
        self._program = program
        self._instance: Instance | None = None
        self._frozen: FrozenCode | None = None
        """The frozen variables; None if the instance may have changed them since, or if there are no variables yet."""

    @property
    def pinned_bytes(self) -> int:
        return self._instance.memory_bytes if self._instance is not None else 0

    def live_instance(self) -> Instance:
        """Returns the instance for a call. The frozen copy of its variables is dropped, because the call may change them."""
        instance = self._opened()
        instance.attach_shared_code(self.shared)
        self._frozen = None
        return instance

    def _opened(self) -> Instance:
        if self._instance is None:
            self._instance = self._program.open()
            if self._frozen is not None:
                self._instance.load(self._frozen.variables())
        return self._instance

    def freeze(self) -> FrozenCode:
        try:
            if self._frozen is None:
                self._frozen = FrozenCode(self._opened().freeze())
        except CodeFailure as failure:
            return FrozenCode(bytes, failure.text)
        return self._frozen

    def columns(self) -> Columns:
        return self.freeze().columns()

    def load(self, columns: Columns) -> None:
        saved = bytes(require_column(columns, _VARIABLES, np.dtype(np.uint8), (-1,)).array)
        self._instance = self._program.open()
        self._instance.load(saved)
        self._frozen = FrozenCode(lambda: saved)

    def __deepcopy__(self, known: Mapping[int, Any]) -> CodeState[W]:
        """Returns a twin with an instance of its own. If the variables cannot be saved, the twin shares the instance; the window
        reports that error.
        """
        twin: CodeState[W] = CodeState(self._program)
        twin.set_window_memory(self._home)
        try:
            saved = self._opened().save()
        except CodeFailure:
            twin._instance = self._instance
        else:
            twin._frozen = FrozenCode(lambda: saved)
        return twin


class FrozenCode:
    """The variables of a program at one moment. `saved` computes their bytes at first use. `reason`: why a snapshot cannot hold
    them; "" if it can.
    """

    def __init__(self, saved: Callable[[], bytes], reason: str = "") -> None:
        self._saved, self._reason = saved, reason
        self._told: bytes | None = None

    def variables(self) -> bytes:
        if self._told is None:
            self._told = self._saved()
        return self._told

    def freeze(self) -> FrozenCode:
        return self

    def columns(self) -> Columns:
        """Returns the variables as a column of bytes. Raises StateError if `reason` is set, so no snapshot is written."""
        if self._reason:
            hint = "change the code: it fails for this reason on every event"
            raise StateError("the variables of user code cannot be kept", detail=self._reason, hint=hint)
        return {_VARIABLES: Column(np.frombuffer(self.variables(), np.uint8))}

    def load(self, columns: Columns) -> None:
        self._told = bytes(require_column(columns, _VARIABLES, np.dtype(np.uint8), (-1,)).array)
