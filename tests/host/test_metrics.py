"""Publications of the groups of a process: when they are made, and from which facts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from hotspare.base.errors import BusUnavailable
from hotspare.bus.contract import Partition
from hotspare.flow.window_meter import WindowMeter, WindowWork
from hotspare.ha.events import HaDuration
from hotspare.ha.rules.settings import GroupTopics, InboundTopic
from hotspare.host.metrics import COLLECT_MS, ENDS_VALID_MS, GroupDurations, GroupInput, ProcessMetrics, WindowSamples
from hotspare.host.watchdog.published_facts import FactsMemory, FactsPublisher
from hotspare.telemetry.metrics import Metric, Samples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can watch")


@dataclass
class Clock:
    now_ms: int = 10_000

    def ns(self) -> int:
        return self.now_ms * 1_000_000

    def ms(self) -> int:
        return self.now_ms


@pytest.fixture
def memory() -> Iterator[FactsMemory]:
    made = FactsMemory()
    yield made
    os.close(made.descriptor)


def samples(group: str, epoch: int) -> Samples:
    made = Samples({"group": group})
    made.add(Metric.EPOCH, epoch)
    return made


def test_the_groups_of_a_process_are_published_together_about_once_a_second(memory: FactsMemory) -> None:
    clock = Clock()
    metrics = ProcessMetrics(FactsPublisher(os.dup(memory.descriptor), 0), "one", clock.ns)

    def epochs() -> list[str]:
        found = memory.read()
        return [] if found is None else [line for line in found.text.decode().splitlines() if line.startswith(Metric.EPOCH.label)]

    metrics.record("b", {"group": "b"}, samples("b", 1))
    assert epochs() == []
    metrics.publish()
    metrics.record("a", {"group": "a"}, samples("a", 2))
    clock.now_ms += COLLECT_MS - 1
    metrics.publish_if_due()
    assert epochs() == ['hotspare_engine_epoch{group="b"} 1']
    clock.now_ms += 1
    metrics.publish_if_due()
    assert epochs() == ['hotspare_engine_epoch{group="a"} 2', 'hotspare_engine_epoch{group="b"} 1']
    found = memory.read()
    assert found is not None
    assert (found.facts["engine"], found.facts["published_ns"]) == ("one", clock.ns())
    assert [each["looked_ns"] for each in found.facts["groups"]] == [10_000 * 1_000_000] * 2


def test_too_many_groups_omit_metrics_and_then_age() -> None:
    small = FactsMemory(1 << 10)
    metrics = ProcessMetrics(FactsPublisher(os.dup(small.descriptor), 0), "one", Clock().ns)
    metrics.record("a", {"group": "a"}, samples("a" * 900, 1))
    metrics.publish()
    found = small.read()
    assert found is not None and b'hotspare_metrics_omitted{engine="one"} 1' in found.text
    for number in range(100):
        metrics.record(f"g{number}", {"group": f"g{number}"}, samples("g", 1))
    metrics.publish()
    assert small.read() == found
    os.close(small.descriptor)


def test_a_lag_is_as_old_as_the_answer_of_the_bus() -> None:
    clock, ends, calls = Clock(), [7, 7], list[Callable[[], None]]()

    def end_offset(partition: Partition) -> int:
        if not ends:
            raise BusUnavailable("the bus does not answer")
        return ends[partition.number]

    own = GroupInput(GroupTopics((InboundTopic("t", 2),), ()), end_offset, calls.append, clock.ms)
    own.request_ends()
    own.request_ends()  # while the first one runs
    assert (len(calls), own.lags({})) == (1, None)
    calls.pop()()
    assert own.lags({(0, 0): 3, (0, 1): 9}) == {(0, 0): 4, (0, 1): 0}
    clock.now_ms += ENDS_VALID_MS + 1
    assert own.lags({}) is None
    ends[:] = 8, 8
    own.request_ends()
    calls.pop()()
    assert own.lags({(0, 0): 8}) == {(0, 0): 0, (0, 1): 8}
    ends.clear()
    own.request_ends()
    calls.pop()()
    assert own.lags({}) is None
    assert own.labels_of((0, 1)) == ("t", "1")


class _Meter(WindowMeter):
    """A meter with counts that a test sets."""

    def __init__(self, work: dict[str, WindowWork]) -> None:
        self._work = work

    def by_window(self) -> dict[str, WindowWork]:
        return self._work


def test_the_busiest_windows_are_named_and_stay_so() -> None:
    work = {f"q/{n}": WindowWork(n, 2 * n, n * 1_000_000) for n in range(5)}
    own = WindowSamples(_Meter(work), 2)

    def busy() -> dict[str, str]:
        made = Samples({})
        own.add(made, {"q/0": {"rows": 1}, "q/4": {"rows": 1}, "texts": {"rows": 1}})
        shown = {line.split('"')[1] for line in made.lines.get(Metric.WINDOW_STATE, [])}
        assert shown <= {"q/4", "texts"}
        return {line.split('"')[1]: line.split()[-1] for line in made.lines[Metric.WINDOW_BUSY]}

    assert busy() == {"other": "0.01"}  # too early to choose
    work["q/4"].busy_ns = 1_000_000_000
    assert busy() == {"q/3": "0.003", "q/4": "1.0", "other": "0.003"}
    work["q/0"].busy_ns = 9_000_000_000
    assert busy() == {"q/3": "0.003", "q/4": "1.0", "other": "9.003"}
    all_named = WindowSamples(_Meter(work), 5)
    made = Samples({})
    all_named.add(made, {})
    assert len(made.lines[Metric.WINDOW_BUSY]) == 5
    assert 'hotspare_window_events_total{window="q/3",direction="out"} 6\n' in made.lines[Metric.WINDOW_EVENTS]


def test_durations_are_counted_in_seconds() -> None:
    own, made = GroupDurations(), Samples({})
    own.observe_ms(HaDuration.PART, 40)
    own.observe_ms(HaDuration.COMMIT, 70_000)
    own.add_promotion({"election_ms": 10, "fencing_ms": 20, "reading_ms": 30, "first_output_ms": 40, "total_ms": 100})
    own.add_to(made)
    lines = {line.rpartition(" ")[0]: line.split()[-1] for each in made.lines.values() for line in each}
    assert (lines['hotspare_step_seconds_bucket{le="0.025"}'], lines['hotspare_step_seconds_bucket{le="0.05"}']) == ("0", "1")
    assert (lines['hotspare_commit_seconds_bucket{le="60.0"}'], lines["hotspare_commit_seconds_sum"]) == ("0", "70.0")
    parts = {
        part: lines[f'hotspare_failover_seconds_sum{{part="{part}"}}'] for part in ("election", "fence", "read", "first_output")
    }
    assert parts == {"election": "0.01", "fence": "0.02", "read": "0.03", "first_output": "0.04"}
