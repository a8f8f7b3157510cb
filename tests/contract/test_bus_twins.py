"""The durable bus and the one in memory are the same state machine: any sequence of calls gets the same answers from both.

The simulation runs on the one in memory, so its results hold for the durable one only as far as this test goes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hotspare.base.errors import HotspareError
from hotspare.bus.contract import SOURCE_HEADER, Bus, Commit, HeaderGuard, Outgoing, OutputId, Partition, Producer, Progress
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import SqliteBus
from tests.contract.material import START_US, ManualClock
from tests.examples import examples

TOPICS = ("a", "b", "c")
topic = st.sampled_from(TOPICS)
partition = st.builds(Partition, topic, st.integers(0, 2))
headers = st.lists(st.tuples(st.sampled_from([SOURCE_HEADER, "h", "ü"]), st.binary(max_size=5)), max_size=2).map(tuple)
message = st.builds(Outgoing, st.binary(max_size=20), headers)
messages = st.lists(message, max_size=4)
guard = st.builds(HeaderGuard, st.sampled_from([SOURCE_HEADER, "h"]), st.binary(max_size=1), st.integers(0, 9))
group = st.sampled_from(["g", "h"])
epoch = st.integers(0, 4)
number = st.integers(0, 2**40)
output_id = st.none() | st.builds(OutputId, number, number, number, number, number)
progress = st.builds(Progress, number, output_id, st.integers(0, 2**64 - 1), epoch)
commit = st.builds(
    Commit, st.dictionaries(topic, messages, max_size=2), st.dictionaries(st.sampled_from("st"), progress, max_size=2)
)


class Twins(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.folder = tempfile.TemporaryDirectory()
        self.durable = SqliteBus(Path(self.folder.name) / "bus.db", clock=self.clock)
        self.twins: tuple[Bus, Bus] = (MemoryBus(self.clock).client(), self.durable)
        self.producers: dict[str, tuple[Producer, Producer]] = {}

    def teardown(self) -> None:
        self.durable.close()
        self.folder.cleanup()

    def same(self, call: Callable[[int], Any]) -> None:
        """Checks that `call(which)` ends alike for both: the same result, or an error of the same class with the same text."""

        def end(which: int) -> object:
            try:
                return call(which)
            except HotspareError as error:
                return type(error), str(error)

        expected, found = end(0), end(1)
        assert expected == found

    @rule(by_us=st.integers(-1000, 1000))
    def move_the_clock(self, by_us: int) -> None:
        self.clock.now_us = START_US + by_us

    @rule(topic=topic, partitions=st.integers(1, 2))
    def create(self, topic: str, partitions: int) -> None:
        self.same(lambda which: self.twins[which].create_topic(topic, partitions))

    @rule(partition=partition, messages=messages)
    def append(self, partition: Partition, messages: list[Outgoing]) -> None:
        self.same(lambda which: self.twins[which].append(partition, messages))

    @rule(partition=partition, messages=messages, guard=guard)
    def append_guarded(self, partition: Partition, messages: list[Outgoing], guard: HeaderGuard) -> None:
        self.same(lambda which: self.twins[which].append_guarded(partition, messages, guard))

    @rule(partition=partition, before=st.integers(0, 20))
    def trim(self, partition: Partition, before: int) -> None:
        self.same(lambda which: self.twins[which].trim(partition, before))

    @rule(partition=partition, offset=st.integers(-1, 20), count=st.integers(0, 5), size=st.integers(0, 40))
    def read(self, partition: Partition, offset: int, count: int, size: int) -> None:
        self.same(lambda which: list(self.twins[which].read(partition, offset, messages_max=count, bytes_max=size)))

    @rule(partition=partition, name=st.sampled_from([SOURCE_HEADER, "h"]), prefix=st.binary(max_size=1))
    def look_for_a_header(self, partition: Partition, name: str, prefix: bytes) -> None:
        self.same(lambda which: self.twins[which].newest_with_header(partition, name, prefix))

    @rule(group=group, topics=st.lists(topic, max_size=2))
    def claim(self, group: str, topics: list[str]) -> None:
        opened: list[Producer] = []
        self.same(lambda which: opened.append(self.twins[which].producer(group, topics)))
        if opened:
            self.producers[group] = (opened[0], opened[1])

    @rule(group=group, epoch=epoch)
    def fence(self, group: str, epoch: int) -> None:
        if group in self.producers:
            self.same(lambda which: self.producers[group][which].fence(epoch))

    @rule(group=group, epoch=epoch, commit=commit)
    def publish(self, group: str, epoch: int, commit: Commit) -> None:
        if group in self.producers:
            self.same(lambda which: self.producers[group][which].publish(epoch, commit))

    @rule(group=group)
    def forget(self, group: str) -> None:
        self.same(lambda which: self.twins[which].reset_group(group))

    @invariant()
    def hold_the_same(self) -> None:
        self.same(lambda which: dict(self.twins[which].topics()))
        for group in ("g", "h"):
            self.same(partial(self._progress, group))
        for name, partitions in self.durable.topics().items():
            for number in range(partitions):
                self.same(partial(self._ends, Partition(name, number)))

    def _progress(self, group: str, which: int) -> dict[str, Progress]:
        return dict(self.twins[which].progress(group))

    def _ends(self, partition: Partition, which: int) -> tuple[int, int]:
        return self.twins[which].begin_offset(partition), self.twins[which].end_offset(partition)


TestTwins = Twins.TestCase
TestTwins.settings = settings(examples(0.4), stateful_step_count=25)
