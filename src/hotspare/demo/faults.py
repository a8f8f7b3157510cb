"""The faults by which the demo and the kill loop end or stop the active engine, and the measurement of the pause in the output
after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import cycle, islice

from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until

_RECOVERY_TIMEOUT_S = 60.0
_LOOK_S = 0.1
"""The interval in seconds of polling the topics for output. Gaps are measured by append time, so polling more often would only load
the brokers.
"""


class Fault(Enum):
    KILL = "kill -9 of the active engine"
    KILL_JVM = "kill -9 of the active engine's JVM"
    FREEZE = "SIGSTOP of the active engine"
    HOST_GONE = "loss, without a sign, of the host of the active engine"


DEMO_ORDER = (Fault.KILL, Fault.KILL, Fault.KILL_JVM, Fault.FREEZE)


def plan_faults(count: int) -> list[Fault]:
    """Returns `count` faults, by repeating DEMO_ORDER."""
    return list(islice(cycle(DEMO_ORDER), count))


@dataclass(frozen=True, slots=True)
class Gap:
    """A fault and the pause in the output: from just before the signal to the first output committed under a newer epoch.

    Times are microseconds since 1970 UTC. `first_output_time_us` is the bus's append time.
    """

    fault: Fault
    victim: str
    successor: str
    epoch: int
    fault_time_us: int
    first_output_time_us: int
    victim_recovery: str = ""

    @property
    def gap_ms(self) -> float:
        return (self.first_output_time_us - self.fault_time_us) / 1000


def _strike(fault: Fault, victim: SpawnedEngine) -> None:
    if fault is Fault.KILL:
        victim.kill()
    elif fault is Fault.KILL_JVM:
        victim.kill_jvm()
    else:
        victim.freeze()


def gap_after(
    cluster: Cluster, fault: Fault, strike: Callable[[SpawnedEngine], None], first_output_after: Callable[[int], int | None]
) -> tuple[SpawnedEngine, Gap]:
    """Strikes the active engine by calling `strike` and waits for the first output under a newer epoch. Returns (the victim, the
    pause in the output).

    `first_output_after(epoch)` returns the append time of the first output message of an epoch newer than `epoch`, or None.
    """
    victim = cluster.wait_active(_RECOVERY_TIMEOUT_S)
    epoch = cluster.leader().epoch
    struck_us = time.time_ns() // 1000
    strike(victim)
    what = f"output after {fault.value}"
    wait_until(lambda: first_output_after(epoch) is not None, what, _RECOVERY_TIMEOUT_S, _LOOK_S)
    first_us = first_output_after(epoch)
    assert first_us is not None
    leader = cluster.leader()
    return victim, Gap(fault, victim.name, leader.holder, leader.epoch, struck_us, first_us)


def inject(cluster: Cluster, fault: Fault, first_output_after: Callable[[int], int | None]) -> Gap:
    """Strikes the active engine, waits for the first output under a newer epoch, then restarts or thaws the victim. Returns the
    pause.

    The victim restarts only after that output, so that its start does not affect the gap. A frozen engine that kept the bus locked
    was ended by its successor, and is restarted like a killed one. The function returns when the victim's process runs again;
    `cluster.wait_ready` waits until it is a spare.
    """
    victim, gap = gap_after(cluster, fault, partial(_strike, fault), first_output_after)
    if fault is Fault.FREEZE and victim.is_running:
        victim.thaw()
        return replace(gap, victim_recovery="thawed")
    victim.wait_stopped()
    cluster.start_engine(victim.name)
    return replace(gap, victim_recovery="had the bus locked, was ended and restarted" if fault is Fault.FREEZE else "restarted")


def quantile(values: list[float], share: float) -> float:
    """Returns the value at the quantile `share`, from 0 to 1, by nearest rank; 0 if `values` is empty."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
