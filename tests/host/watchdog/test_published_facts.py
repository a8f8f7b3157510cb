"""The memory in which an engine publishes: what is read is always one whole publication of the engine that runs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from hotspare.host.watchdog.published_facts import FactsMemory, FactsPublisher, PublishedFacts, publisher_of_parent
from hotspare.host.watchdog.shared_memory import FACTS_VARIABLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can watch")
SMALL = 1 << 12


@pytest.fixture
def memory() -> Iterator[FactsMemory]:
    made = FactsMemory(SMALL)
    yield made
    os.close(made.descriptor)


def publisher(memory: FactsMemory, start: int = 0) -> FactsPublisher:
    return FactsPublisher(os.dup(memory.descriptor), start)


def test_the_newest_publication_is_read(memory: FactsMemory) -> None:
    assert memory.read() is None
    own = publisher(memory)
    for size in (3, 2_000, 0, 1_999, 1):  # growing and shrinking
        own.publish({"size": size, "name": "é\n"}, b"x" * size)
        assert memory.read() == PublishedFacts({"size": size, "name": "é\n"}, b"x" * size)


def test_too_long_a_publication_leaves_the_one_before(memory: FactsMemory) -> None:
    own = publisher(memory)
    own.publish({}, b"before")
    with pytest.raises(ValueError, match="at most 4096"):
        own.publish({}, b"x" * SMALL)
    assert memory.read() == PublishedFacts({}, b"before")
    own.publish({}, b"x" * (SMALL - 3))
    assert memory.read() == PublishedFacts({}, b"x" * (SMALL - 3))


def test_an_engine_that_starts_shows_nothing_of_the_one_before(memory: FactsMemory) -> None:
    memory.begin_start(1)
    first = publisher(memory, 1)
    first.publish({"start": 1}, b"first")
    memory.begin_start(2)
    assert memory.read() is None
    publisher(memory, 2).publish({"start": 2}, b"second")
    assert memory.read() == PublishedFacts({"start": 2}, b"second")


def test_an_area_of_another_start_is_not_served(memory: FactsMemory) -> None:
    memory.begin_start(1)
    publisher(memory, 1).publish({"start": 1}, b"first")
    os.pwrite(memory.descriptor, (2).to_bytes(8, sys.byteorder), 0)
    assert memory.read() is None


def test_a_torn_write_is_not_served(memory: FactsMemory) -> None:
    """Each byte of a publication is damaged in turn, as if its write had ended there."""
    own = publisher(memory)
    own.publish({"n": 1}, b"text")
    whole = os.pread(memory.descriptor, 1 << 20, 0)
    for at in range(len(whole)):
        if whole[at]:
            os.pwrite(memory.descriptor, bytes([whole[at] ^ 0x55]), at)
            if not 16 <= at < 24:  # the size of an area, which only the parent writes
                assert memory.read() is None
            os.pwrite(memory.descriptor, whole[at : at + 1], at)
    assert memory.read() == PublishedFacts({"n": 1}, b"text")


def test_an_engine_that_ends_while_it_writes_leaves_the_publication_before(memory: FactsMemory) -> None:
    own = publisher(memory)
    own.publish({}, b"one")
    before = os.pread(memory.descriptor, 24, 0)
    own.publish({}, b"two")
    os.pwrite(memory.descriptor, before, 0)  # as if it had ended before it wrote the number
    assert memory.read() == PublishedFacts({}, b"one")


def test_concurrent_reads_are_whole(memory: FactsMemory) -> None:
    own, is_over, torn = publisher(memory), threading.Event(), list[PublishedFacts]()
    own.publish({"n": 0}, b"")

    def read() -> None:
        while not is_over.is_set():
            found = memory.read()
            if found is not None and found.text != b"%d," % found.facts["n"] * (found.facts["n"] % 500):
                torn.append(found)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(3_000):
        own.publish({"n": n}, b"%d," % n * (n % 500))
    is_over.set()
    for thread in threads:
        thread.join()
    assert torn == []


def test_only_an_engine_of_a_parent_that_answers_publishes(
    memory: FactsMemory, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    assert publisher_of_parent() is None
    memory.begin_start(7)
    monkeypatch.setenv(FACTS_VARIABLE, f"{os.dup(memory.descriptor)}:7")
    made = publisher_of_parent()
    assert made is not None and FACTS_VARIABLE not in os.environ
    made.publish({"a": 1}, b"")
    assert memory.read() == PublishedFacts({"a": 1}, b"")
