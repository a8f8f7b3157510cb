"""The core of an engine that survives an event or a tick on which a step fails: it rebuilds the state before the step
and finds the event.

    parts ──► Pipeline ──► fails ──► newest snapshot from before, else the group's origin
                                     ──► reads the inbound topics again, up to where the step began: the state before it
                                          (poison that was found before is refused again)
                                     ──► retries and bisects the rest (flow/poison.py): the event is refused, or the engine ends

Recovery costs nothing while no step fails. It needs the same as a joining engine: a snapshot, and the messages since then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.call_board import CallSlot, unwatched_slot
from hotspare.base.call_place import CallPlace, Decision
from hotspare.base.choices import EventPolicy
from hotspare.base.errors import RESET_HINT, HotspareError, PoisonousEvent, StateError
from hotspare.bus.contract import Bus
from hotspare.coordination.contract import Coordination
from hotspare.flow.outputs import joined_parts
from hotspare.flow.pipeline import Pipeline, TakeRows, default_step_rows, unstopped_parts
from hotspare.flow.poison import Poison
from hotspare.flow.project_state import OutputId
from hotspare.flow.snapshot import FrozenProjectState
from hotspare.ha.effects.joining import agree_on_origin, restore_or_report
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.settings import GroupTopics
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.batch import RowKind
from hotspare.rows.elementwise import is_row_error
from hotspare.runners.contract import Positions, RunnerInput
from hotspare.runners.local import read_recorded
from hotspare.stores.contract import Store


@dataclass(frozen=True, slots=True)
class CorePosition:
    """The position of a core: the offsets to read next, and the newest output of every stream."""

    next_offsets: Positions
    sequences: Mapping[str, int]
    digests: Mapping[str, int]


@dataclass(slots=True)
class Recovery:
    """The inputs for rebuilding a state, and the policy for poison. `log_sentence` receives a sentence for the log."""

    group: str
    topics: GroupTopics
    bus: Bus
    store: Store
    coordination: Coordination
    source: RunnerInput
    log_sentence: Callable[[str], None]
    on_poison: EventPolicy = EventPolicy.BAD_EVENT
    known_poison: list[Poison] = field(default_factory=list)
    """Poison that was refused since the snapshot of the last rebuild."""

    def replayed_batches(self, core_offsets: Positions, ends: Positions) -> Iterator[pa.Table]:
        origin = agree_on_origin(self.bus, self.coordination, self.group, self.topics)
        begin = {(index, p.number): origin[p.topic, p.number] for index, p in self.topics.partitions}
        return read_recorded(self.bus, self.source.topics, self.source.head, self.source.limits, {**begin, **core_offsets}, ends)

    def report_poison(self, poison: Poison) -> None:
        """Reports a poison and records it as known. Raises PoisonousEvent if the policy is to stop."""
        topic = self.topics.inbound[poison.topic].name
        what = f"event {poison.index} of the message" if poison.kind is RowKind.EVENT else "the tick"
        why = f"{type(poison.error).__name__}: {poison.error}"
        why = f"window {poison.window}: {why}" if poison.window else why
        self._decide(f"{what} at offset {poison.offset} of {topic}, partition {poison.partition}", why)
        self.known_poison.append(poison)

    def check_head_poison(self, decoded: pa.RecordBatch | pa.Table) -> None:
        """Reports the messages on which the head failed, in whichever process it ran. Raises PoisonousEvent if the policy is to
        stop."""
        if not (decoded.column("kind").to_numpy() == RowKind.BAD).any():
            return
        reason = pc.struct_field(decoded.column("bad"), "reason")
        poison = decoded.filter(pc.fill_null(pc.equal(reason, BadReason.POISON), fill_value=False))
        for row in poison.select(["topic", "partition", "offset", "bad"]).to_pylist():
            where = (
                f"the message at offset {row['offset']} of {self.topics.inbound[row['topic']].name}, partition {row['partition']}"
            )
            self._decide(where, row["bad"]["message"])

    def _decide(self, where: str, why: str) -> None:
        if self.on_poison is EventPolicy.STOP:
            hint = f"this is an error in hotspare: report it; or {RESET_HINT}, and start the group with on-poison: bad-event"
            raise PoisonousEvent(f"the engine fails on {where}", detail=why, hint=hint)
        self.log_sentence(f"the engine fails on {where}, which becomes a bad event: {why}")


@dataclass(slots=True)
class CodeOrders:
    """How a core calls user code, as its group set it: a rebuilt pipeline gets the same."""

    topics: Sequence[str]
    slot: CallSlot
    decisions: Sequence[Decision] = ()
    stops: Collection[CallPlace] = ()
    passed: list[CallPlace] = field(default_factory=list)
    divided: Collection[CallPlace] = ()
    """The places of calls whose windows are called row by row."""

    def apply_to(self, pipeline: Pipeline) -> None:
        pipeline.name_topics(self.topics)
        pipeline.attach_board(self.slot)
        pipeline.set_decisions(self.decisions)
        pipeline.stop_before(self.stops)
        pipeline.row_by_row(self.divided)
        for place in self.passed:
            pipeline.pass_place(place)


class PipelineFactoryLike(Protocol):
    """A factory whose cores are pipelines."""

    def fresh(self) -> Pipeline: ...

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> Pipeline: ...


class RecoveringCoreFactory:
    """Makes cores that recover (`ha.core.CoreFactory`)."""

    def __init__(self, cores: PipelineFactoryLike, recovery: Recovery, slot: CallSlot | None = None) -> None:
        """The cores show their calls of user code in `slot`."""
        self._cores = cores
        self.slot = slot or unwatched_slot()
        self.recovery = recovery

    def fresh(self) -> RecoveringCore:
        return RecoveringCore(self._cores.fresh(), self)

    def restore(self, header: bytes, pages: Mapping[str, bytes]) -> RecoveringCore:
        return RecoveringCore(self._cores.restore(header, pages), self)

    def core_before(self, place: CorePosition, code: CodeOrders) -> Pipeline:
        """Returns the core of the newest usable snapshot that is not after `place`, and not beyond a decision that it lacks, else a
        fresh one; with `code`. Raises StoreError if the store does not answer."""
        store, group = self.recovery.store, self.recovery.group
        for info in restorable(store.list(group), order_max=sum(place.next_offsets.values())):
            core = restore_or_report(store, group, info, self._cores.restore, self.recovery.log_sentence)
            if core is None or any(offset > place.next_offsets.get(key, 0) for key, offset in core.next_offsets.items()):
                continue
            code.apply_to(core)
            if not core.missing_decisions:
                return core
        core = self._cores.fresh()
        code.apply_to(core)
        return core


class RecoveringCore:
    """A core (`ha.core.Core`) over a pipeline, which it replaces after a failed step."""

    def __init__(self, pipeline: Pipeline, cores: RecoveringCoreFactory) -> None:
        self._pipeline = pipeline
        self._cores = cores
        self._partitions = [(topic, place.number) for topic, place in cores.recovery.topics.partitions]
        self._skew_max_us: int | None = None
        self._code = CodeOrders([topic.name for topic in cores.recovery.topics.inbound], cores.slot)
        self._code.apply_to(pipeline)
        self._has_failed = False
        """Whether a step of the pipeline failed and the pipeline is not replaced yet: its state is unusable."""
        self._rebuilt = pipeline
        """The pipeline that is being rebuilt after a failed step, or was last."""
        self._ends: dict[tuple[int, int], int] = {}
        self._newest: dict[str, pa.RecordBatch] = {}
        """The newest emitted outputs of this batch, by stream."""

    def compute_parts(
        self, decoded: pa.RecordBatch | pa.Table, take: TakeRows = default_step_rows
    ) -> Iterator[dict[str, pa.RecordBatch]]:
        place = CorePosition(self._pipeline.next_offsets, self._pipeline.sequences, self._pipeline.digests)
        self._ends.update(end_offsets_of(decoded))
        self._newest = {}
        self._code.slot.set_thread(threading.get_native_id())
        self._cores.recovery.check_head_poison(decoded)
        try:
            for part in self._pipeline.compute_parts(decoded, take):
                self._newest.update(part)
                yield part
        except Exception as error:
            if not is_row_error(error):
                raise
            self._has_failed = True
            yield from self._recovered(place, error)

    def _recovered(self, place: CorePosition, error: Exception) -> Iterator[dict[str, pa.RecordBatch]]:
        """Rebuilds the state and yields the outputs of the failed batch that were not emitted before."""
        recovery = self._cores.recovery
        recovery.log_sentence(f"a step failed; the engine repeats it from the state before it: {type(error).__name__}: {error}")
        try:
            self._rebuilt = pipeline = self._cores.core_before(place, self._code)
            pipeline.set_partitions(self._partitions, self._skew_max_us)
            begin = pipeline.next_offsets
            recovery.known_poison = [p for p in recovery.known_poison if p.offset >= begin.get((p.topic, p.partition), 0)]
            for decoded in recovery.replayed_batches(pipeline.next_offsets, self._ends):
                is_before = all(end <= place.next_offsets.get(key, 0) for key, end in end_offsets_of(decoded).items())
                known = tuple(recovery.known_poison)
                if is_before:
                    made = pipeline.compute_parts(decoded, known=known)
                else:
                    made = pipeline.compute_parts_bisecting(decoded, recovery.report_poison, known)
                for part in made:
                    if pipeline.stopped_at is not None:  # the group decides by the state before the place
                        self._pipeline = pipeline
                    yield self._not_yet_emitted(part, place)
        except PoisonousEvent:
            raise
        except HotspareError as failure:
            message = f"a step failed, and the state before it cannot be rebuilt: {failure.message}"
            raise StateError(message, detail=f"{type(error).__name__}: {error}") from error
        self._pipeline, self._has_failed = pipeline, False

    def _not_yet_emitted(self, part: Mapping[str, pa.RecordBatch], place: CorePosition) -> dict[str, pa.RecordBatch]:
        """Returns the outputs that were not emitted before. Raises StateError if the rebuilt state produces different outputs."""
        new: dict[str, pa.RecordBatch] = {}
        for stream, rows in part.items():
            sequences, known = rows["hs:sequence"].to_numpy(), self._newest.get(stream)
            seen = place.sequences[stream] if known is None else known["hs:sequence"][-1].as_py()
            digest = place.digests[stream] if known is None else known["hs:digest"][-1].as_py()
            count = int(np.searchsorted(sequences, seen, side="right"))
            if count and sequences[count - 1] == seen and rows["hs:digest"][count - 1].as_py() != digest:
                raise StateError(f"stream {stream} differs after its input was read again")
            if count < len(sequences):
                new[stream] = rows.slice(count)
        return new

    def feed(self, decoded: pa.RecordBatch | pa.Table) -> dict[str, pa.RecordBatch]:
        return joined_parts(unstopped_parts(self, decoded))

    def set_decisions(self, decisions: Sequence[Decision]) -> None:
        self._code.decisions = tuple(decisions)
        self._apply_orders()

    def _apply_orders(self) -> None:
        for pipeline in (self._pipeline, self._rebuilt):
            self._code.apply_to(pipeline)

    @property
    def missing_decisions(self) -> tuple[Decision, ...]:
        return self._pipeline.missing_decisions

    def stop_before(self, places: Collection[CallPlace]) -> None:
        self._code.stops = frozenset(places)
        self._apply_orders()

    def pass_place(self, place: CallPlace) -> None:
        self._code.passed.append(place)
        self._apply_orders()

    @property
    def stopped_at(self) -> CallPlace | None:
        return self._pipeline.stopped_at

    def row_by_row(self, places: Collection[CallPlace]) -> None:
        self._code.divided = frozenset(places)
        self._apply_orders()

    def set_partitions(self, partitions: Iterable[tuple[int, int]], skew_max_us: int | None = None) -> None:
        self._partitions, self._skew_max_us = list(partitions), skew_max_us
        self._pipeline.set_partitions(self._partitions, skew_max_us)

    def limit_part_rows(self, extra_rows: int) -> None:
        self._pipeline.limit_part_rows(extra_rows)

    def freeze(self) -> FrozenProjectState:
        if self._has_failed:
            raise StateError("a state in which a step failed cannot be frozen")
        return self._pipeline.freeze()

    def adopt(self, stream: str, sequence: int, digest: int, last: tuple[int, int, int, int, int] | None) -> None:
        self._pipeline.adopt(stream, sequence, digest, last)

    @property
    def is_between_batches(self) -> bool:
        return self._pipeline.is_between_batches and not self._has_failed

    @property
    def waiting_rows(self) -> int:
        return self._pipeline.waiting_rows

    @property
    def waiting_bytes(self) -> int:
        return self._pipeline.waiting_bytes

    @property
    def awaited_partition(self) -> tuple[int, int]:
        return self._pipeline.awaited_partition

    @property
    def blocking_partitions(self) -> frozenset[tuple[int, int]]:
        return self._pipeline.blocking_partitions

    @property
    def sequences(self) -> dict[str, int]:
        return self._pipeline.sequences

    @property
    def digests(self) -> dict[str, int]:
        return self._pipeline.digests

    @property
    def last_ids(self) -> dict[str, OutputId | None]:
        return self._pipeline.last_ids

    @property
    def next_offsets(self) -> dict[tuple[int, int], int]:
        return self._pipeline.next_offsets

    @property
    def time_us(self) -> int:
        return self._pipeline.time_us

    @property
    def memory_by_kind(self) -> Mapping[str, int]:
        return self._pipeline.memory_by_kind

    @property
    def memory_by_window(self) -> Mapping[str, Mapping[str, int]]:
        return self._pipeline.memory_by_window


def end_offsets_of(decoded: pa.RecordBatch | pa.Table) -> dict[tuple[int, int], int]:
    """Returns the offset after the last row of each partition, by (topic index, partition)."""
    if not decoded.num_rows:
        return {}
    topic, partition, offset = (decoded.column(name).to_numpy() for name in ("topic", "partition", "offset"))
    last = np.append(np.flatnonzero((np.diff(topic) != 0) | (np.diff(partition) != 0)), decoded.num_rows - 1)
    ends: dict[tuple[int, int], int] = {}
    for row in last.tolist():
        key = int(topic[row]), int(partition[row])
        ends[key] = max(ends.get(key, 0), int(offset[row]) + 1)
    return ends
