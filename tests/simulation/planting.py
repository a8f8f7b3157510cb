"""Plants a bug: a small patch, by name, with the faults around it.

Runs with a bug have more of the faults that it favours, at moments that the seed chooses as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tests.simulation.faults import FaultKind


class Groups(Enum):
    """The kind of run that must find a bug."""

    ONE = "a project that is one group"
    SHARDS = "a project in shards"
    CASCADE = "two projects, one behind the other"
    RECENT = "a group some of whose engines make their state from recent input"
    HANGS = "a group with calls of user code that do not end"
    APPLICATIONS = "applications whose tasks host the engines of shards"


@dataclass(frozen=True)
class Planted:
    """A bug; the call returns a context in which the bug is planted."""

    plant: Callable[[], Any]
    favours: frozenset[FaultKind]
    groups: Groups = Groups.ONE

    def __call__(self) -> Any:
        return self.plant()


PLANTED: dict[str, Planted] = {}
"""Bugs by name."""


def planted(*favours: FaultKind, groups: Groups = Groups.ONE) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(plant: Callable[[], Any]) -> Callable[[], Any]:
        PLANTED[plant.__name__.replace("_", "-")] = Planted(plant, frozenset(favours), groups)
        return plant

    return register


@contextmanager
def both(one: Any, other: Any) -> Iterator[None]:
    with one, other:
        yield
