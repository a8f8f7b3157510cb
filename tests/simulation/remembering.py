"""Compares, at each decision of a run, what rules yield from a remembered view with what they yield from the whole view.

Planted errors decide next to it without effect: memories that miss the changes of one field of the view.
`Comparison.unnoticed` has those that no decision has revealed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from hotspare.ha.effects import ha_loop
from hotspare.ha.group_state import GroupState, decided_from, view_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import decide
from hotspare.ha.rules.remembered_view import RememberedView
from hotspare.ha.rules.view import RuleEvaluator, View

CONSTANT = frozenset({"settings", "engine", "shard", "wall_ms"})
"""The fields that never change while an engine runs here, where no snapshot has a schedule."""


class Forgetful:
    """A memory that misses the changes of the field `missed`."""

    def __init__(self, missed: str, view: View) -> None:
        self._missed = missed
        self._memory = RememberedView(view)

    def updated(self, view: View) -> RememberedView:
        self._memory.update(view._replace(**{self._missed: getattr(self._memory.view, self._missed)}))
        self._memory.view = view
        return self._memory


@dataclass
class Comparison:
    unnoticed: set[str] = field(default_factory=lambda: set(View._fields) - CONSTANT)
    decisions: int = 0
    _memories: WeakKeyDictionary[RememberedView, dict[str, Forgetful]] = field(default_factory=WeakKeyDictionary)

    def decided_from(self, state: GroupState, ports: Ports) -> RememberedView:
        """Returns the remembered view. Raises AssertionError if decisions from it are not those from the whole view."""
        remembered = decided_from(state, ports)
        view = view_of(state, ports)
        right = _decided(view)
        assert _decided(remembered) == right
        self.decisions += 1
        memories = self._memories.setdefault(remembered, {})
        for missed in sorted(self.unnoticed):
            memory = memories.setdefault(missed, Forgetful(missed, view)).updated(view)
            if _decided(memory) != right:
                self.unnoticed.remove(missed)
        return remembered


def _decided(view: RuleEvaluator) -> tuple[Any, ...]:
    return tuple(decide.duties(view)), decide.decide(view), decide.next_due_ms(view), view.evaluate(decide.read_interval_ms)


@contextmanager
def compared() -> Iterator[Comparison]:
    """Compares every decision of all engines in this process while the block runs."""
    comparison = Comparison()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ha_loop, "decided_from", comparison.decided_from)
        yield comparison
