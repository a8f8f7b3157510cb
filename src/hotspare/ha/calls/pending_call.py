"""Calls that may run concurrently with the engine: a transaction is committed while the next batch is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from hotspare.coordination.contract import Leader

T = TypeVar("T")


class PendingCall(Protocol):
    """A call that has begun. Only the thread that began it may use this object."""

    @property
    def is_over(self) -> bool:
        """Whether `wait` returns at once."""

    def wait(self) -> None:
        """Waits until the call has ended. Raises the error of the call, if it failed."""


class CompletedCall:
    """A call that has already ended; `wait` raises `error`, unless it is None."""

    is_over = True

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


@dataclass(frozen=True, slots=True)
class EpochRequest(Generic[T]):
    """A request for the newest epoch, sent after the last fence. Once `call` has succeeded, `answers` has one pair: the leader, and
    the projects of the group if any decision was made about them."""

    call: PendingCall
    answers: Sequence[tuple[Leader, T]]


def run_inline(call: Callable[[], None]) -> PendingCall:
    """Runs `call` in this thread and returns it as an ended call. Never raises: `wait` raises the error of `call`."""
    try:
        call()
    except Exception as error:
        return CompletedCall(error)
    return CompletedCall(None)
