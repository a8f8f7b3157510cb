"""Requests for snapshots that a group had before: they stay facts of it for ever, and cost those who come later little."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.effects import persisting
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.facts import Persisting, PersistRequest

GROUP = "p.project"
BEFORE = 3_000


class Asked:
    """A door to coordination that counts what it is asked."""

    def __init__(self, count: int) -> None:
        """So many requests are done, and one more is not."""
        self.door: Any = MemoryCoordination().client("here")
        self.calls = 0
        for number in range(1, count + 2):
            self.door.set_fact_once(GROUP, f"persist-{number}", json.dumps([f"file:///{number}", ""]).encode())
            if number <= count:
                self.door.set_fact_once(GROUP, f"persist-{number}-result", b"{}")

    def fact(self, group: str, name: str) -> bytes | None:
        self.calls += 1
        found: bytes | None = self.door.fact(group, name)
        return found

    def set_fact_once(self, group: str, name: str, value: bytes) -> bytes:
        self.calls += 1
        found: bytes = self.door.set_fact_once(group, name, value)
        return found


def test_an_engine_finds_the_next_request_without_reading_all_of_before() -> None:
    for count in (0, 1, 2, 3, 7, 8, 100, BEFORE):
        coordination = Asked(count)
        state: Any = SimpleNamespace(group=GROUP, persisting=Persisting())
        ports: Any = SimpleNamespace(coordination=coordination, clock_ms=lambda: 5)
        persisting.read(do.ReadPersist(), state, ports)
        assert (state.persisting.number, state.persisting.request) == (count, PersistRequest(f"file:///{count + 1}"))
        assert coordination.calls < 30
        coordination.set_fact_once(GROUP, f"persist-{count + 1}-result", b"{}")
        persisting.read(do.ReadPersist(), state, ports)
        assert (state.persisting.number, state.persisting.request) == (count + 1, None)


def test_who_asks_adds_the_next_one() -> None:
    for count in (0, 1, 2, 100, BEFORE):
        coordination = Asked(count)
        assert persisting.ask(coordination, GROUP, PersistRequest("file:///new")) == count + 2  # type: ignore[arg-type]
        assert coordination.calls < 30
