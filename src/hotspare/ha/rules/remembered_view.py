"""Remembers what rules yielded, and evaluates a rule again only if a fact has changed that it read. Pure but for that memory.

A rule is a function of the view alone. So as long as everything that it read is equal, it yields the same. What a rule reads is not
listed anywhere: the rule gets a view that reads each fact when the rule does, and so knows which ones these are. A forgotten fact
is impossible. The time is read like a fact; rules yield due times instead of comparing with it, so that few depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from hotspare.ha.rules.view import View

T = TypeVar("T")
Rule = Callable[[View], Any]


class _RuleView:
    """The view of one evaluation of a rule. Its attributes are the facts that the rule has read, now or in earlier evaluations."""

    __slots__ = ("__dict__", "_view")

    def __init__(self, view: View, names: tuple[str, ...]) -> None:
        self._view = view
        self.__dict__.update({name: getattr(view, name) for name in names})

    def __getattr__(self, name: str) -> object:
        found = self.__dict__[name] = getattr(self._view, name)
        return found


class RememberedView:
    """The newest view, and what rules yielded from it or from earlier views that are equal as far as the rule read them. Not
    thread-safe."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._results: dict[Rule, object] = {}
        self._names: dict[Rule, tuple[str, ...]] = {}
        self._readers: dict[str, list[Rule]] = {}

    @property
    def now_ms(self) -> int:
        return self.view.now_ms

    def update(self, view: View) -> None:
        """Replaces the view, and forgets what rules yielded that have read a fact with another value. A new role has other rules,
        so everything is forgotten then."""
        if view.role_state.role is not self.view.role_state.role:
            self.__init__(view)  # type: ignore[misc]
            return
        before, self.view = self.view, view
        for name, known, found in zip(View._fields, before, view, strict=True):
            if found is not known and found != known:
                for rule in self._readers.get(name, ()):
                    self._results.pop(rule, None)

    def evaluate(self, rule: Callable[[View], T]) -> T:
        """Returns `rule(view)`, as a tuple if the rule yields its result."""
        if rule in self._results:
            return cast(T, self._results[rule])
        before = self._names.get(rule, ())
        view = _RuleView(self.view, before)
        result = rule(cast(View, view))
        found = self._results[rule] = tuple(result) if isinstance(result, Iterator) else result
        if len(view.__dict__) > len(before):
            names = self._names[rule] = tuple(view.__dict__)
            for name in names[len(before) :]:
                self._readers.setdefault(name, []).append(rule)
        return cast(T, found)
