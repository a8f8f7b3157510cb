"""Watches the outputs of any windows of a running group (SPEC A40) from another process, without any change to the group.

    newest snapshot, else the group's origin ──► the inbound topics from there ──► a core of this process's own ──► `show`

Outputs depend on the input alone. So a separate core, with a plan in which the windows are traced, computes the same outputs as the
group's engines at the same position. The process does not join the group and writes nothing; engines notice only reads of the bus.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from hotspare.adapters.files.subscriber import Until
from hotspare.base.choices import Since
from hotspare.base.errors import RunnerError, UsageError
from hotspare.base.shard import WHOLE, Shard
from hotspare.bus.contract import Bus
from hotspare.bus.naming import own_partition, whole_group
from hotspare.coordination.contract import Coordination
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import OnTrace, Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.ha.effects.hung_calls import refuse_void
from hotspare.ha.effects.joining import agreed_document, agreed_skew_ms, check_positions, recorded_origin, restore_or_report
from hotspare.ha.effects.shard_agreement import recorded_shard_count
from hotspare.ha.rules.hung_calls import parsed_decisions
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.settings import GroupTopics
from hotspare.host.topics import group_topics, source_topics
from hotspare.model.names import nearest_names_hint
from hotspare.model.project import Project, WindowId
from hotspare.model.resolved import Resolved
from hotspare.projects.fingerprint import from_document
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import EndCause, RunnerEnd, RunnerInput
from hotspare.runners.local import LocalRunner
from hotspare.stores.contract import Store

Key = tuple[int, int]
"""A partition as (topic index, number)."""


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """A group and its services. `bus_url` is the URL of `bus`; `store` is None if the group has no snapshots."""

    group: str
    bus_url: str
    bus: Bus
    coordination: Coordination
    store: Store | None


class Watcher:
    """Watches `windows` (QUERY/WINDOW) of one group. `told` is called with a sentence for each snapshot that cannot be restored.
    Raises UsageError if no engine of the group ever started, or a window does not exist; StateError, StoreError or PositionLost if
    the state cannot be rebuilt.
    """

    def __init__(self, place: WatchedGroup, windows: Collection[str], since: Since, told: Callable[[str], None]) -> None:
        document = agreed_document(place.coordination, place.group)
        if document is None:
            raise UsageError(f"no engine of group {place.group} ever started", hint="`hotspare status` shows the groups")
        self._place, self._told = place, told
        self._plan = _traced(from_document(document), windows)
        self._topics = _topics(place, self._plan)
        partitions = [((index, partition.number), partition) for index, partition in self._topics.partitions]
        self._ends = {key: place.bus.end_offset(partition) for key, partition in partitions}
        self._shown_from: Mapping[Key, int] = self._ends if since is Since.NOW else {}
        self._show: OnTrace = lambda window, events: None
        self.restored_from = ""
        """The name of the snapshot from which the state was restored; "" if it is rebuilt from the group's first input."""
        self._decisions = parsed_decisions(place.bus.progress(place.group))
        self._core = self._restored()
        self._core.set_partitions([key for key, _ in partitions], agreed_skew_ms(place.coordination, place.group) * 1_000)
        origin = recorded_origin(place.coordination, place.group, self._topics)
        self._begin = {key: origin.get((partition.topic, partition.number), 0) for key, partition in partitions}
        self._begin |= self._core.next_offsets
        check_positions(place.bus, self._topics, self._begin, self._core.time_us)

    def _restored(self) -> Pipeline:
        place = self._place
        for info in restorable(place.store.list(place.group)) if place.store is not None else ():
            assert place.store is not None
            core = restore_or_report(place.store, place.group, info, self._restore, self._told)
            if core is not None:
                self.restored_from = info.name
                return core
        return self._deciding(Pipeline.fresh(self._plan, self._on_trace, shard=self._topics.shard.number))

    def _restore(self, header: bytes, pages: Mapping[str, bytes]) -> Pipeline:
        return self._deciding(Pipeline.restore(self._plan, header, pages, self._on_trace))

    def _deciding(self, core: Pipeline) -> Pipeline:
        """Makes a core apply the group's decisions; returns it. Raises SnapshotFormat as `refuse_void`."""
        core.name_topics([topic.name for topic in self._topics.inbound])
        refuse_void(core, self._decisions)
        return core

    def _on_trace(self, window: str, events: pa.RecordBatch) -> None:
        if self._shown_from:
            where = zip(*(events.column(name).to_pylist() for name in ("hs:topic", "hs:partition", "hs:offset")), strict=True)
            events = events.filter(pa.array([offset >= self._shown_from.get((t, n), 0) for t, n, offset in where], pa.bool_()))
        if len(events):
            self._show(window, events)

    def run(self, show: OnTrace, until: Until, stop: threading.Event) -> None:
        """Calls `show` with a window and its outputs, in order, until `stop` is set or the end given by `until`. Call it from the
        main thread. Raises the errors of reading the bus and of processing events.
        """
        self._show = show
        left = {key: end for key, end in self._ends.items() if self._begin[key] < end}
        if until is Until.END and not left:
            return
        ended: list[RunnerEnd] = []

        def on_rows(decoded: pa.Table, _: NextInput) -> None:
            if stop.is_set():
                return
            self._core.feed(decoded)
            for key in _passed(decoded, left):
                del left[key]
            if until is Until.END and not left:
                stop.set()

        def end(how: RunnerEnd) -> None:
            ended.append(how)
            stop.set()

        runner = LocalRunner(self._input(), on_rows, end)
        runner.start(self._begin)
        try:
            stop.wait()
        finally:
            runner.stop()
        if ended and ended[0].cause is not EndCause.STOPPED:
            error = ended[0].error
            raise error if isinstance(error, Exception) else RunnerError(f"reading ended: {ended[0].cause.value}")

    def _input(self) -> RunnerInput:
        only = None if self._topics.shard.is_whole else self._topics.shard.number
        return RunnerInput(self._place.bus_url, source_topics(self._plan.resolved, self._topics, only), Head.from_plan(self._plan))


def _passed(decoded: pa.Table, ends: Mapping[Key, int]) -> list[Key]:
    """Returns the partitions of `ends` whose end offset the rows reach."""
    where: Iterable[tuple[int, int, int]] = zip(
        *(decoded.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
    )
    newest = {(topic, number): offset for topic, number, offset in where}
    return [key for key, end in ends.items() if newest.get(key, -1) >= end - 1]


def _traced(project: Project, windows: Collection[str]) -> Plan:
    """Returns the project's plan with exactly these windows traced. Raises UsageError for an unknown window."""
    known = [str(WindowId(query.name, window.name)) for query in project.queries for window in query.windows]
    for name in windows:
        if name not in known:
            raise UsageError(f"project {project.name} has no window {name}", hint=nearest_names_hint(name, known))
    queries = [
        replace(query, trace=tuple(w.name for w in query.windows if str(WindowId(query.name, w.name)) in windows))
        for query in project.queries
    ]
    resolved: Resolved = resolve(replace(project, queries=tuple(queries)))
    return compile_plan(resolved)


def _topics(place: WatchedGroup, plan: Plan) -> GroupTopics:
    project, whole = plan.resolved.project, whole_group(place.group)
    shard = WHOLE
    if whole != place.group:
        shard = Shard(own_partition(place.group), recorded_shard_count(place.coordination, place.group))
    prefix = whole.removesuffix(f".{project.name}")
    return group_topics(project, plan, prefix, shard, place.bus.topics())
