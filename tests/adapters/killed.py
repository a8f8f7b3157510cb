"""Simulates a process that is killed before one of its actions: later processes find the state after the previous action."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Killed(BaseException):
    """Error handlers do not catch it, as they do not catch a signal."""

    @staticmethod
    @contextlib.contextmanager
    def after(actions: int) -> Iterator[Callable[[], None]]:
        """Yields a function to call before each action, which raises after `actions` calls. The block ends quietly there."""
        left = [actions]

        def act() -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1

        with contextlib.suppress(Killed):
            yield act


def struck(work: Callable[[Callable[[], None]], object], at: int, strike: Callable[[], object]) -> bool:
    """Whether `work` has at least `at` actions. `work` calls its argument before each; before action `at`, from 1, `strike` is
    called."""
    actions = 0

    def act() -> None:
        nonlocal actions
        actions += 1
        if actions == at:
            strike()

    work(act)
    return at <= actions


class Mortal:
    """Calls `act` before and after each method call of `door`: its process may die before it has the answer."""

    def __init__(self, door: Any, act: Callable[[], None]) -> None:
        self._door = door
        self._act = act

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._door, name)
        if not callable(found):
            return found

        def called(*arguments: Any, **named: Any) -> Any:
            self._act()
            result = found(*arguments, **named)
            self._act()
            return result

        return called
