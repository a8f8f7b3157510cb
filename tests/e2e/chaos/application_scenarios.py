"""The failures of the applications of a project in shards, each as a scenario: strikes at a running demo of two of them.

A scenario gets the demo, whose applications are complete, and a random generator, and leaves them complete. It asserts its own
subject; the demo checks exact output per shard for all of them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from random import Random

import psutil

from hotspare.base.processes import has_process_ended
from hotspare.bus.contract import Partition
from hotspare.bus.kafka.client import parse_kafka_url
from hotspare.bus.kafka.offsets import Isolation, KafkaOffsets
from hotspare.bus.naming import outbound_topic
from hotspare.coordination.contract import Member
from hotspare.demo.applications import APPLICATIONS, RESULT, ApplicationsDemo
from hotspare.demo.scenario import PREFIX
from hotspare.testing.applications import (
    Strike,
    StrikeRecord,
    application_of,
    driver_processes,
    executor_of,
    executor_process,
    process_tree,
    signal_all,
)
from hotspare.testing.cluster import wait_until
from tests.e2e.chaos.scenarios import Needs, pass_time

TIMEOUT_S = 240.0
_LOOK_S = 0.1
_STAND_STILL_S = 0.1
_FLAPS = 4


@dataclass(frozen=True, slots=True)
class ApplicationScenario:
    """A scenario; `rebalance_after_ms` as `hotspare run` takes it."""

    row: str
    run: Callable[[ApplicationsDemo, Random], None]
    needs: Needs = Needs.NOTHING
    is_short: bool = False
    rebalance_after_ms: int = 5_000

    @property
    def name(self) -> str:
        return f"{self.row}: {self.run.__name__.replace('_', ' ')}"


def an_executor_is_killed(demo: ApplicationsDemo, random: Random) -> None:
    pass_time(random.uniform(0, 2))
    demo.strike(Strike.EXECUTOR)


def a_python_worker_is_killed(demo: ApplicationsDemo, random: Random) -> None:
    pass_time(random.uniform(0, 2))
    demo.strike(Strike.WORKER)


def a_driver_is_killed(demo: ApplicationsDemo, random: Random) -> None:
    pass_time(random.uniform(0, 2))
    demo.strike(Strike.DRIVER)


def a_whole_application_is_killed(demo: ApplicationsDemo, random: Random) -> None:
    pass_time(random.uniform(0, 2))
    demo.strike(Strike.APPLICATION)


def a_driver_freezes_and_thaws(demo: ApplicationsDemo, random: Random) -> None:
    """Its tasks end themselves, and the other application goes on; after the thaw it restarts them."""
    pass_time(random.uniform(0, 2))
    target = demo.applications.busiest_place(application_of)
    tasks = _members_of(demo, target.application.name)
    epochs = {shard: leader.epoch for shard, leader in target.leaders.items()}
    with _frozen(driver_processes(target.application)):
        wait_until(lambda: all(_is_discarded(task) for task in tasks), "its tasks end themselves", TIMEOUT_S, _LOOK_S)
        demo.wait_for_newer_epochs(epochs, "output of the other application")
    demo.wait_both_hosted()
    assert not {task.engine for task in tasks} & {task.engine for task in _members_of(demo, target.application.name)}


def an_executor_freezes_inside_a_transaction_and_thaws(demo: ApplicationsDemo, random: Random) -> None:
    """The other application fences its open transaction, and goes on; the executor thaws as a zombie."""
    with closing(_Transactions(demo)) as transactions:
        struck, processes = _frozen_inside(demo, transactions, random)
        try:
            demo.record_takeovers("SIGSTOP, inside a transaction, of an executor of", struck)
        finally:
            signal_all(processes, signal.SIGCONT)
    demo.wait_for_output()
    demo.wait_both_hosted()


def different_shards_are_missing_in_each_application(demo: ApplicationsDemo, random: Random) -> None:
    """Kills an executor of each, with the fewest shards in common. By the distribution of shards, every shard keeps one engine
    somewhere, or one shard has none and is restored from its snapshot."""
    pass_time(random.uniform(0, 2))
    hosted = {name: _hosted_by_executor(demo, name) for name in APPLICATIONS}
    first, second = APPLICATIONS
    shared = {(here, there): len(hosted[first][here] & hosted[second][there]) for here in hosted[first] for there in hosted[second]}
    here, there = random.choice([pair for pair, count in shared.items() if count == min(shared.values())])
    lost = {
        shard
        for shard, member in demo.applications.active_by_shard().items()
        if executor_of(member) in ((first, here), (second, there))
    }
    epochs = {shard: epoch for shard, epoch in demo.epochs().items() if shard in lost}
    processes = [executor_process(demo.cluster.engines[first], here), executor_process(demo.cluster.engines[second], there)]
    signal_all(processes, signal.SIGKILL)
    demo.wait_for_newer_epochs(epochs, f"output of shards {list(epochs)} after the loss of an executor of each application")
    demo.wait_for_output()
    demo.wait_both_hosted()


def a_spare_that_comes_and_goes_moves_no_role(demo: ApplicationsDemo, random: Random) -> None:
    """It gets its share back only after it has stayed up for a while."""
    demo.strike(Strike.DRIVER)
    demo.wait_both_hosted()
    (holder,) = {application_of(member) for member in demo.applications.active_by_shard().values()}
    flapping = next(name for name in APPLICATIONS if name != holder)
    epochs = demo.epochs()
    for _ in range(_FLAPS):
        spare = random.choice(_members_of(demo, flapping))
        psutil.Process(spare.process_id).kill()
        wait_until(lambda spare=spare: _is_discarded(spare), "the spare is gone", TIMEOUT_S)  # type: ignore[misc]
        demo.wait_for_output()
        demo.wait_both_hosted()
        assert demo.epochs() == epochs, "no epoch moves"
    share = len(demo.groups) // 2

    def has_its_share() -> bool:
        return sum(application_of(member) == flapping for member in demo.applications.active_by_shard().values()) == share

    wait_until(has_its_share, f"{flapping} has its share again", TIMEOUT_S, _LOOK_S)


def many_parts_of_one_application_are_killed(demo: ApplicationsDemo, random: Random) -> None:
    """Each strike of the options hits one application; its driver survives all. It regains a role between the strikes."""
    name = random.choice(APPLICATIONS)
    for strike in demo.options.strikes:
        demo.wait_both_hosted()
        wait_until(lambda: name in _active_applications(demo), f"{name} has a role", TIMEOUT_S, _LOOK_S)
        demo.record_takeovers(strike.value, demo.applications.strike_at(strike, demo.applications.busiest_place(executor_of, name)))
        assert name in demo.cluster.engines


def _active_applications(demo: ApplicationsDemo) -> set[str]:
    return {application_of(member) for member in demo.applications.active_by_shard().values()}


def _members_of(demo: ApplicationsDemo, application: str) -> list[Member]:
    """Returns the application's engines, of all shards."""
    live = [member for shard in range(len(demo.groups)) for member in demo.applications.live_engines(shard)]
    return [member for member in live if application_of(member) == application]


def _hosted_by_executor(demo: ApplicationsDemo, application: str) -> dict[str, set[int]]:
    """Returns the hosted shards by executor number."""
    hosted: dict[str, set[int]] = {}
    for shard in range(len(demo.groups)):
        for member in demo.applications.live_engines(shard):
            if application_of(member) == application:
                hosted.setdefault(member.detail["executor"], set()).add(shard)
    return hosted


def _is_discarded(member: Member) -> bool:
    return has_process_ended(member.process_id, member.process_start)


@contextmanager
def _frozen(processes: list[psutil.Process]) -> Iterator[None]:
    signal_all(processes, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(processes, signal.SIGCONT)


def _frozen_inside(
    demo: ApplicationsDemo, transactions: _Transactions, random: Random
) -> tuple[StrikeRecord, list[psutil.Process]]:
    """Freezes an executor of which an engine has an open transaction; executors frozen without one are thawed at once."""
    frozen: list[tuple[StrikeRecord, list[psutil.Process]]] = []

    def stopped_inside() -> bool:
        demo.wait_both_hosted()
        target = demo.applications.busiest_place(executor_of)
        processes = process_tree(executor_process(target.application, target.member.detail["executor"]))
        pass_time(random.uniform(0, 0.5))
        struck = target.record_strike()
        signal_all(processes, signal.SIGSTOP)
        if transactions.is_one_open(list(target.leaders)):
            frozen.append((struck, processes))
            return True
        signal_all(processes, signal.SIGCONT)
        return False

    wait_until(stopped_inside, "an executor that has a transaction open", TIMEOUT_S)
    return frozen[0]


class _Transactions:
    """The transactions of the shards, as the brokers report them."""

    def __init__(self, demo: ApplicationsDemo) -> None:
        settings = parse_kafka_url(demo.options.site.bus_url)
        self._committed = KafkaOffsets(settings, Isolation.COMMITTED)
        self._written = KafkaOffsets(settings, Isolation.UNCOMMITTED)
        self._topic = outbound_topic(PREFIX, demo.plan.resolved.project.name, *RESULT)

    def is_one_open(self, shards: list[int]) -> bool:
        """Whether a shard has uncommitted outputs on the brokers that no engine is about to commit."""
        before = self._open(shards)
        pass_time(_STAND_STILL_S)
        return bool(before & self._open(shards))

    def _open(self, shards: list[int]) -> set[tuple[int, int]]:
        """Returns the shards with an open transaction, and the offset where it starts."""
        places = {shard: Partition(self._topic, shard) for shard in shards}
        ends = {shard: self._committed.first_and_end(place)[1] for shard, place in places.items()}
        return {(shard, end) for shard, end in ends.items() if self._written.first_and_end(places[shard])[1] > end}

    def close(self) -> None:
        self._committed.close()
        self._written.close()


APPLICATION_SCENARIOS = (
    ApplicationScenario("A1", an_executor_is_killed),
    ApplicationScenario("A2", a_python_worker_is_killed),
    ApplicationScenario("A3", a_driver_is_killed, is_short=True),
    ApplicationScenario("A4", a_whole_application_is_killed),
    ApplicationScenario("A5", a_driver_freezes_and_thaws),
    ApplicationScenario("A6", an_executor_freezes_inside_a_transaction_and_thaws, needs=Needs.BROKERS, is_short=True),
    ApplicationScenario("A7", different_shards_are_missing_in_each_application),
    ApplicationScenario("A8", a_spare_that_comes_and_goes_moves_no_role, rebalance_after_ms=15_000),
    ApplicationScenario("A9", many_parts_of_one_application_are_killed, rebalance_after_ms=1_000),
)
