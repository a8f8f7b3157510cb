"""A call that was begun and may go on beside the engine: how a transaction is committed while the next batch is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hotspare.coordination.contract import Leader

T = TypeVar("T")


class Underway(Protocol):
    """What was begun. Used by the one who began it."""

    @property
    def is_over(self) -> bool:
        """Whether `wait` returns at once."""

    def wait(self) -> None:
        """Return when the call has ended. Raises what it raised."""


class Ended:
    """A call that was made at once."""

    is_over = True

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


@dataclass(frozen=True, slots=True)
class AskedEpoch(Generic[T]):
    """The newest epoch was asked for after the last fence; when `call` has ended well, `answers` holds it, with the projects of the
    group where anything was decided about them."""

    call: Underway
    answers: Sequence[tuple[Leader, T]]


def at_once(call: Callable[[], None]) -> Underway:
    """Make the call here and now: for whoever has one thread only."""
    try:
        call()
    except Exception as error:
        return Ended(error)
    return Ended(None)
