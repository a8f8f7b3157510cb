"""The core of a replay: an event on which the engine itself fails is told, and becomes a bad event, as it does in a group.

The state before the failed step is made anew from the files, which are read again up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hotspare.bus.memory import MemoryBus
from hotspare.coordination.memory import MemoryCoordination
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import OnTrace, Pipeline
from hotspare.flow.plan import Plan
from hotspare.flow.poison import Poison
from hotspare.ha.rules.settings import GroupTopics, InboundTopic
from hotspare.host.careful_core import CarefulCore, CarefulCores, Recovery
from hotspare.runners.contract import Positions, RunnerInput
from hotspare.runners.local import decode_iterable
from hotspare.stores.memory import MemoryStore
from hotspare.table.memory import NO_BUDGET, Residence

Recorded = Callable[[], Iterator[pa.RecordBatch]]
"""The raw batches of a replay from the first on (`adapters.recording.record`)."""
_ROW_CHARACTERS_MAX = 200


def replay_core(
    plan: Plan,
    recorded: Recorded,
    on_trace: OnTrace | None,
    told: Callable[[str], None],
    residence: Residence | None = None,
) -> CarefulCore:
    """A core before the first event. `told` gets a sentence about each event on which the engine fails."""
    sources = plan.resolved.sources
    topics = GroupTopics(tuple(InboundTopic(str(source)) for source in sources), ())
    recovery = _FromFiles(
        group="replay",
        topics=topics,
        bus=MemoryBus().client("replay"),
        store=MemoryStore(),
        coordination=MemoryCoordination().client("replay"),
        source=RunnerInput(bus_url="", topics=(), head=Head.of(plan)),
        told=told,
        plan=plan,
        recorded=recorded,
    )
    return CarefulCores(_Cores(plan, on_trace, residence or NO_BUDGET), recovery).fresh()


@dataclass(slots=True)
class _FromFiles(Recovery):
    """Reads what was fed so far out of the files again. `plan` and `recorded` are always given."""

    plan: Plan | None = None
    recorded: Recorded = lambda: iter(())

    def batches(self, core_offsets: Positions, ends: Positions) -> Iterator[pa.Table]:
        assert self.plan is not None
        limits = np.array([ends.get((topic, 0), 0) for topic in range(len(self.topics.inbound))])
        for decoded in decode_iterable(self.recorded(), Head.of(self.plan), self.source.limits.messages_max):
            was_fed = decoded.column("offset").to_numpy() < limits[decoded.column("topic").to_numpy()]
            if not was_fed.any():
                return
            yield decoded.filter(pa.array(was_fed))

    def found(self, poison: Poison) -> None:
        window, row = self.topics.inbound[poison.topic].name, self._row(poison)
        self._decide(f"an event of {window}, {row!r}", f"{type(poison.error).__name__}: {poison.error}")

    def _row(self, poison: Poison) -> str:
        """The event as it stands in the file."""
        for raw in self.recorded():
            for row in np.flatnonzero(raw.column("offset").to_numpy() == poison.offset).tolist():
                if raw.column("topic")[row].as_py() == poison.topic:
                    return str(raw.column("value")[row].as_py().decode(errors="replace"))[:_ROW_CHARACTERS_MAX]
        return ""


class _Cores:
    """Makes pipelines that trace every event once, however often it is worked on."""

    def __init__(self, plan: Plan, on_trace: OnTrace | None, residence: Residence) -> None:
        self._plan = plan
        self._residence = residence
        self._on_trace = on_trace
        self._traced: dict[str, int] = {}

    def fresh(self) -> Pipeline:
        passed = dict.fromkeys(self._traced, 0)

        def trace(window: str, events: pa.RecordBatch) -> None:
            begin, known = passed.get(window, 0), self._traced.get(window, 0)
            passed[window] = begin + len(events)
            self._traced[window] = max(known, passed[window])
            if self._on_trace is not None and passed[window] > known:
                self._on_trace(window, events.slice(max(0, known - begin)))

        return Pipeline.fresh(self._plan, trace, residence=self._residence)

    def restore(self, header: bytes, pages: object) -> Pipeline:
        raise AssertionError("a replay takes no snapshots")
