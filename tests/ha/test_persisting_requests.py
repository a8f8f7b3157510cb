"""Requested snapshots: how the newest request is found and which ones are removed; and large states are copied page by page."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hotspare.base.errors import UsageError
from hotspare.coordination.memory import MemoryCoordination
from hotspare.ha.effects import persisting, restoring
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import requests
from hotspare.ha.rules.facts import Persisting, PersistRequest
from hotspare.stores.contract import SnapshotInfo
from hotspare.stores.memory import MemoryStore

GROUP = "p.project"
BEFORE = 3_000


class Asked:
    """A coordination that counts its calls."""

    def __init__(self, count: int) -> None:
        """Records `count` finished requests, and an unfinished one."""
        self.door: Any = MemoryCoordination().client("here")
        self.calls = 0
        for number in range(1, count + 2):
            self.door.set_fact_once(
                GROUP, f"persist-{number}", json.dumps({"to": f"file:///{number}", "by": "", "keep": 0}).encode()
            )
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

    def fact_names(self, group: str) -> list[str]:
        self.calls += 1
        return list(self.door.fact_names(group))

    def remove_facts(self, group: str, names: list[str]) -> None:
        self.calls += 1
        self.door.remove_facts(group, names)


def test_an_engine_finds_the_next_request_without_reading_all_of_before() -> None:
    for count in (0, 1, 2, 3, 7, 8, 100, BEFORE):
        coordination = Asked(count)
        state: Any = SimpleNamespace(group=GROUP, persisting=Persisting())
        ports: Any = SimpleNamespace(coordination=coordination, clock_ms=lambda: 5)
        persisting.read_persist_request(do.ReadPersist(), state, ports)
        assert (state.persisting.number, state.persisting.request) == (count, PersistRequest(f"file:///{count + 1}"))
        assert coordination.calls < 30
        coordination.set_fact_once(GROUP, f"persist-{count + 1}-result", b"{}")
        persisting.read_persist_request(do.ReadPersist(), state, ports)
        assert (state.persisting.number, state.persisting.request) == (count + 1, None)


def test_who_asks_adds_the_next_one() -> None:
    for count in (0, 1, 2, 100, BEFORE):
        coordination = Asked(count)
        assert persisting.submit_persist_request(coordination, GROUP, PersistRequest("file:///new")) == count + 2  # type: ignore[arg-type]
        assert coordination.calls < 30


def test_what_came_of_the_newest_that_is_done_is_told() -> None:
    for count in (1, 2, 100, BEFORE):
        coordination: Any = Asked(count)
        found = persisting.newest_finished_request(coordination, GROUP)
        assert found is not None
        assert (found.number, found.request.to) == (count, f"file:///{count}")
        assert coordination.calls < 30
    assert persisting.newest_finished_request(Asked(0), GROUP) is None  # type: ignore[arg-type]


class Life:
    """A group in which several commands request snapshots; each removes old requests, possibly much later."""

    def __init__(self, seed: int, kept: int) -> None:
        self.rng = random.Random(seed)
        self.kept = kept
        self.door: Any = MemoryCoordination().client("here")
        self.asked = self.done = 0
        self.late: list[list[str]] = []

    def live(self) -> None:
        if self.done < self.asked and self.rng.random() < 0.6:
            self.done += 1
            self.tell(f"persist-{self.done}-claim-0", f"persist-{self.done}-result")
        else:
            self.asked += 1
            self.tell(f"persist-{self.asked}")
        told = list(persisting._parsed_request_facts(self.door.fact_names(GROUP)))
        self.late.append(requests.removable(told, self.kept))
        if self.rng.random() < 0.6:
            names = self.late.pop(self.rng.randrange(len(self.late)))
            self.door.remove_facts(GROUP, names[: self.rng.randint(0, len(names))])  # a command may be killed meanwhile

    def tell(self, *names: str) -> None:
        for name in names:
            self.door.set_fact_once(GROUP, name, b'{"to": "", "by": "", "keep": 0}')

    def has(self, end: str = "") -> Callable[[int], bool]:
        return lambda number: self.door.fact(GROUP, f"persist-{number}{end}") is not None


def test_requests_are_removed_and_the_newest_is_found() -> None:
    for seed in range(2):
        life = Life(seed, kept=3 + 2 * seed)
        for _ in range(500):
            life.live()
            assert (requests.search_newest(life.has()), requests.search_newest(life.has("-result"))) == (life.asked, life.done)
            newest = range(max(1, life.done - life.kept + 1), life.done + 1)
            assert all(has(n) for n in newest for has in (life.has(), life.has("-result"), life.has("-claim-0")))
        for names in life.late:
            life.door.remove_facts(GROUP, names)
        life.door.remove_facts(GROUP, requests.removable(persisting._parsed_request_facts(life.door.fact_names(GROUP)), life.kept))
        assert life.done > 150
        assert len(life.door.fact_names(GROUP)) < 3 * (life.kept + life.asked - life.done) + 80


def test_an_engine_that_slept_finds_the_newest_again() -> None:
    """It does so after any sleep, whatever it knew before."""
    life = Life(1, kept=2)
    sleepers: dict[int, Any] = {}
    ports: Any = SimpleNamespace(coordination=life.door, clock_ms=lambda: 5)
    for _ in range(600):
        life.live()
        state: Any = SimpleNamespace(group=GROUP, persisting=Persisting(life.done))
        if life.rng.random() < 0.5:
            persisting.read_persist_request(do.ReadPersist(), state, ports)
        sleepers[life.done] = state
    assert len(sleepers) > 200
    for state in sleepers.values():
        for _ in range(len(requests.search_misses(life.done)) + 10):
            persisting.read_persist_request(do.ReadPersist(), state, ports)
        assert state.persisting.number == life.done
        assert (state.persisting.request is None) == (life.asked == life.done)


def test_numbers_rise_for_ever_and_those_that_wait_are_bounded() -> None:
    coordination, ask = Asked(2_000), partial(persisting.submit_persist_request, waiting_max=20)
    assert ask(coordination, GROUP, PersistRequest("file:///new"), kept=5) == 2_002  # type: ignore[arg-type]
    left = coordination.door.fact_names(GROUP)
    assert len(left) < 70
    assert {f"persist-{number}" for number in (1, 1996, 2000, 2001, 2002)} < set(left)
    for number in range(2_003, 2_000 + 20 + 1):
        assert ask(coordination, GROUP, PersistRequest(f"file:///{number}")) == number  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"group p.project has 20 unfinished requests for snapshots"):
        ask(coordination, GROUP, PersistRequest("file:///one more"))  # type: ignore[arg-type]


class Spy(MemoryStore):
    """A store that fails if a page's bytes were read before it requests them."""

    def write_candidate(self, group: str, name: str, engine: str, order: int, header: bytes, pages: Any) -> SnapshotInfo:
        given = list(pages)
        assert not any(isinstance(content, bytes) for _, content in given)
        return super().write_candidate(group, name, engine, order, header, given)


def test_what_is_copied_from_store_to_store_is_read_page_by_page() -> None:
    """A state may be larger than memory."""
    source, copy, own = MemoryStore(), Spy(), Spy()
    source.write_candidate(GROUP, "s", "e", 5, b"{}", [("a", b"1"), ("b", b"2")])
    source.confirm(GROUP, "s")
    coordination: Any = MemoryCoordination().client("here")
    persisting.copy_newest_snapshot(source, copy, coordination, GROUP)
    assert dict(copy.get(GROUP, "s").pages) == {"a": b"1", "b": b"2"}
    (info,), stored = copy.list(GROUP), copy.get(GROUP, "s")
    to: Any = SimpleNamespace(group=GROUP, store=own)
    assert restoring.adopt_persisted(restoring.RestoreCandidate(info, stored.header, stored.pages, (), (), None), to)
    assert [each.name for each in own.list(GROUP)] == ["s"]
