"""The state that the Lua code of a project shares (SPEC A38): properties, and snippets with their variables.

A property that one window sets is seen by windows evaluated after it at the same event, and by all from the next event on. So a
project whose code shares anything is stepped one position at a time (`flow.step`), and the values that code reads do not depend on
how the input is cut. Properties and snippets have a page of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hotspare.base.errors import SnapshotDamaged
from hotspare.rows.bad_reasons import BadReason
from hotspare.scripting.canonical_bytes import TooManyBytes, decode, encode
from hotspare.scripting.code_state import CodeState
from hotspare.scripting.contract import CodeFailure, Program, SharedCode, TimeAndSeed, Value
from hotspare.table.memory import PinnedPart
from hotspare.table.pages import Column, Columns, Page, require_column

SHARED_PAGE = "#shared"
"""The name of the page with the shared state. It cannot collide with pages of windows, whose names begin with their query."""
_PROPERTIES, _VALUES = "properties", "values"
_HELD, _TOLD, _CHANGES = "held", "told", "changes"

PROPERTIES_BYTES_MAX = 16 << 20
"""The maximum size of all properties of a project together, in bytes of their canonical form."""


@dataclass(frozen=True, slots=True)
class Property:
    """A property. `change_number`: the number of the change that set it, counted over all properties. `size`: the bytes of its
    canonical form. The value is never modified in place.
    """

    change_number: int
    value: Value
    size: int


class Properties(PinnedPart):
    """The properties of a project by name, as a part of a page. Together they have at most `bytes_max` bytes."""

    def __init__(self, bytes_max: int = PROPERTIES_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._held: dict[str, Property] = {}
        self._told: dict[str, int] = {}
        """For each listener, the number of the last change that it received."""
        self._bytes = 0
        self._changes, self._begun = 0, 0
        """The number of changes so far, and the number of changes before the first event."""

    @property
    def pinned_bytes(self) -> int:
        return self._bytes

    def freeze(self) -> Properties:
        twin = Properties(self._bytes_max)
        twin._held, twin._told = dict(self._held), dict(self._told)
        twin._bytes, twin._changes, twin._begun = self._bytes, self._changes, self._begun
        return twin

    def copy_before_first_event(self) -> Properties:
        """Returns a copy in which all changes so far count as changes before the first event."""
        twin = self.freeze()
        twin._begun = self._changes
        return twin

    def get(self, name: str) -> tuple[Value, int]:
        """Returns the value of a property, None if the property does not exist, and its size in bytes."""
        held = self._held.get(name)
        return (held.value, held.size) if held is not None else (None, 0)

    def set(self, name: str, value: Value) -> int:
        """Sets a property to `value`; None removes the value, which is also a change. Returns the new size in bytes. Raises
        CodeFailure if all properties together exceed the limit.
        """
        others = self._bytes - self.get(name)[1]
        try:
            size = len(encode({name: value}, self._bytes_max - others))
        except TooManyBytes as error:
            message = f"the properties of the project hold more than {self._bytes_max} bytes"
            raise CodeFailure(message, reason=BadReason.CODE_LIMIT) from error
        self._changes, self._bytes = self._changes + 1, others + size
        self._held[name] = Property(self._changes, value, size)
        return size

    def poll_property(self, listener: str, name: str, *, wants_first: object) -> tuple[bool, Value]:
        """Returns (True, value) if the property changed since the last change that `listener` received, else (False, None). For a
        new listener only changes since the first event count, or all changes if `wants_first` is true.
        """
        held = self._held.get(name)
        if held is None or held.change_number <= self._told.get(listener, 0 if wants_first else self._begun):
            return False, None
        self._told[listener] = held.change_number
        return True, held.value

    def columns(self) -> Columns:
        held = {name: [each.change_number, each.value, each.size] for name, each in sorted(self._held.items())}
        written = encode({_HELD: held, _TOLD: dict(sorted(self._told.items())), _CHANGES: self._changes}, 1 << 62)
        return {_VALUES: Column(np.frombuffer(written, np.uint8))}

    def load(self, columns: Columns) -> None:
        read = decode(bytes(require_column(columns, _VALUES, np.dtype(np.uint8), (-1,)).array))
        try:
            self._held = {name: Property(*each) for name, each in read[_HELD].items()}
            self._told, self._changes = dict(read[_TOLD]), int(read[_CHANGES])
            self._bytes = sum(each.size for each in self._held.values())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SnapshotDamaged("the properties of user code cannot be read", detail=str(error)) from error


class StepSharedCode(SharedCode):
    """The shared state during a step: `properties`, and `snippets` by name. A snippet that calls itself, directly or indirectly,
    raises CodeFailure.
    """

    def __init__(self, properties: Properties, snippets: Mapping[str, CodeState[None]]) -> None:
        self._properties = properties
        self._snippets = snippets
        self._running: list[str] = []

    def get(self, name: str) -> tuple[Value, int]:
        return self._properties.get(name)

    def set(self, name: str, value: Value) -> int:
        return self._properties.set(name, value)

    def poll_property(self, listener: str, name: str, *, wants_first: object) -> tuple[bool, Value]:
        return self._properties.poll_property(listener, name, wants_first=wants_first)

    def call(self, snippet: str, function: str, arguments: Sequence[Value], moment: TimeAndSeed) -> tuple[Value, int]:
        state = self._snippets.get(snippet)
        if state is None:
            raise CodeFailure(f"there is no snippet {snippet} that could be called here")
        if snippet in self._running:
            raise CodeFailure(f"snippet {snippet} is called while it runs")
        self._running.append(snippet)
        try:
            instance = state.live_instance()
            returned = instance.call(function, arguments, moment)
        except CodeFailure as failure:
            raise CodeFailure(f"snippet {snippet}: {failure.text}", reason=failure.reason) from failure
        else:
            return returned, instance.steps
        finally:
            self._running.pop()


@dataclass(frozen=True)
class InitialSharedState:
    """The shared state of a project before the first event: the snippets by name, and the properties after the init functions of
    all snippets.
    """

    snippets: Mapping[str, Program]
    properties: Properties

    def open(self) -> Page:
        snippets = {_part(name): CodeState[None](program) for name, program in self.snippets.items()}
        return Page({_PROPERTIES: self.properties.copy_before_first_event(), **snippets})

    def attach_pages(self, pages: Mapping[str, Page]) -> None:
        """Attaches the shared state, in the page SHARED_PAGE of `pages`, to all code in `pages`."""
        parts = pages[SHARED_PAGE].parts
        properties = parts[_PROPERTIES]
        assert isinstance(properties, Properties)
        snippets = {name: part for name in self.snippets if isinstance(part := parts[_part(name)], CodeState)}
        shared = StepSharedCode(properties, snippets)
        for page in pages.values():
            for part in page.parts.values():
                if isinstance(part, CodeState):
                    part.shared = shared


def _part(snippet: str) -> str:
    return f"snippet {snippet}"
