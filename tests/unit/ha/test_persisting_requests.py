"""Snapshots that somebody asks for: requests of before stay facts for ever, and cost little; and what is copied may be large."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.effects import persisting, restoring
from hotspare.ha.rules import actions as do
from hotspare.ha.rules.facts import Persisting, PersistRequest
from hotspare.stores.contract import SnapshotInfo
from hotspare.stores.memory import MemoryStore

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


def test_what_came_of_the_newest_that_is_done_is_told() -> None:
    for count in (1, 2, 100, BEFORE):
        coordination: Any = Asked(count)
        found = persisting.newest_done(coordination, GROUP)
        assert found is not None
        assert (found.number, found.request.to) == (count, f"file:///{count}")
        assert coordination.calls < 30
    assert persisting.newest_done(Asked(0), GROUP) is None  # type: ignore[arg-type]


class Spy(MemoryStore):
    """Says of what it was given whether it was read before it is asked for."""

    def put(self, group: str, name: str, engine: str, order: int, header: bytes, pages: Any) -> SnapshotInfo:
        given = list(pages)
        assert not any(isinstance(content, bytes) for _, content in given)
        return super().put(group, name, engine, order, header, given)


def test_what_is_copied_from_store_to_store_is_read_page_by_page() -> None:
    """A state may be larger than memory."""
    source, copy, own = MemoryStore(), Spy(), Spy()
    source.put(GROUP, "s", "e", 5, b"{}", [("a", b"1"), ("b", b"2")])
    source.confirm(GROUP, "s")
    coordination: Any = MemoryCoordination().client("here")
    persisting.copy(source, copy, coordination, GROUP)
    assert dict(copy.get(GROUP, "s").pages) == {"a": b"1", "b": b"2"}
    (info,), stored = copy.list(GROUP), copy.get(GROUP, "s")
    to: Any = SimpleNamespace(group=GROUP, store=own)
    assert restoring.take_over(restoring.Found(info, stored.header, stored.pages, (), (), None), to)
    assert [each.name for each in own.list(GROUP)] == ["s"]
