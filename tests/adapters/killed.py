"""A process that dies before its next action: everything behind it goes on as the action before has left it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Killed(BaseException):
    """No handler of errors catches it, as none does a signal."""

    @staticmethod
    @contextlib.contextmanager
    def after(actions: int) -> Iterator[Callable[[], None]]:
        """What is to be called before each action; the one behind so many does not take place. Ends quietly there."""
        left = [actions]

        def act() -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1

        with contextlib.suppress(Killed):
            yield act


def struck(work: Callable[[Callable[[], None]], object], at: int, strike: Callable[[], object]) -> bool:
    """Whether `work` has so many actions. It calls what it gets before each; at number `at`, from 1, `strike` comes first."""
    actions = 0

    def act() -> None:
        nonlocal actions
        actions += 1
        if actions == at:
            strike()

    work(act)
    return at <= actions


class Mortal:
    """Calls `act` before each call of a method of `door`, and again behind it: its process may die before it has the answer."""

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
