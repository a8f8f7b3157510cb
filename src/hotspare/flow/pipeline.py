"""The core as a runner uses it: processes decoded batches, yields outputs by stream, and freezes snapshots between batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

import pyarrow as pa

from hotspare.base.call_board import CallSlot
from hotspare.base.call_place import CallPlace, Decision
from hotspare.base.errors import StateError
from hotspare.base.step_size import STEP_ROWS_MAX
from hotspare.flow.decided import CodeCalls
from hotspare.flow.merge import Merge
from hotspare.flow.outputs import joined_parts
from hotspare.flow.plan import Plan
from hotspare.flow.poison import Poison, retry_and_bisect, with_refused
from hotspare.flow.project_state import OutputId, PartitionKey, State
from hotspare.flow.snapshot import FrozenProjectState, freeze, restore
from hotspare.flow.step import fresh_state, step
from hotspare.flow.window_meter import WindowMeter
from hotspare.rows.batch import TRACE_PREFIX, decoded_schema
from hotspare.rows.chunk import EXTRA_ROWS_MAX
from hotspare.rows.merged import MergedRows
from hotspare.rows.ordering import first_row_from, row_at
from hotspare.rows.partition_clock import Belief
from hotspare.table.memory import NO_BUDGET, PageCache

TakeRows: TypeAlias = Callable[[int], int]
"""Called before each step with the number of available rows, at least 1. Returns how many of these rows the step processes."""

OnTrace: TypeAlias = Callable[[str, pa.RecordBatch], None]
"""Called with the outputs of a traced window: its name `query/window`, and a batch of `rows.batch.output_schema`. Sequences and
digests in that batch are not meaningful."""


def default_step_rows(rows: int) -> int:
    """Returns the number of rows for the next step: all available `rows`, but at most STEP_ROWS_MAX."""
    return min(rows, STEP_ROWS_MAX)


class _StoppingCore(Protocol):
    @property
    def stopped_at(self) -> CallPlace | None: ...

    def compute_parts(self, decoded: pa.RecordBatch | pa.Table) -> Iterator[dict[str, pa.RecordBatch]]: ...


def unstopped_parts(core: _StoppingCore, decoded: pa.RecordBatch | pa.Table) -> Iterator[dict[str, pa.RecordBatch]]:
    """Yields the parts that `core` computes from `decoded`. Raises StateError if the core stops before a place."""
    for part in core.compute_parts(decoded):
        if (place := core.stopped_at) is not None:
            raise StateError(f"the core stops before {place}", hint="take the parts one by one, and wait for a decision")
        yield part


class Pipeline:
    """Merges and steps batches over one state. Used by one thread at a time. `on_trace` is called while parts are computed (SPEC
    A40).

    Until `set_partitions`, every inbound topic has only partition 0. `extra_rows_max`: limits the size of parts, see `step`.
    `residence`: the page cache that decides what is evicted between steps.
    """

    def __init__(
        self,
        plan: Plan,
        state: State,
        on_trace: OnTrace | None = None,
        extra_rows_max: int = EXTRA_ROWS_MAX,
        residence: PageCache = NO_BUDGET,
    ) -> None:
        self.plan = plan
        self._residence = residence
        self._memory = residence.counts()
        self._extra_rows_max = self._extra_rows = extra_rows_max
        self._is_whole = True
        self._on_trace = on_trace
        self._state = state
        self._schema = decoded_schema(plan.entry_schemas)
        self._calls = CodeCalls(topics={str(source): topic for topic, source in enumerate(plan.resolved.sources)})
        self._stops: frozenset[CallPlace] = frozenset()
        self._unlimited: frozenset[CallPlace] = frozenset()
        """The places that are computed without limits, because another engine is known to have passed them."""
        self._stopped_at: CallPlace | None = None
        self._skew_max_us: int | None = None
        self._meter: WindowMeter | None = None
        self._merge = self._new_merge([(topic, 0) for topic in range(len(plan.entries))])

    @classmethod
    def fresh(
        cls,
        plan: Plan,
        on_trace: OnTrace | None = None,
        extra_rows_max: int = EXTRA_ROWS_MAX,
        shard: int = 0,
        residence: PageCache = NO_BUDGET,
    ) -> Pipeline:
        """Returns a pipeline at the state of this shard before its first event."""
        return cls(plan, fresh_state(plan, shard, residence), on_trace, extra_rows_max, residence)

    @classmethod
    def restore(
        cls,
        plan: Plan,
        header: bytes,
        pages: Mapping[str, bytes],
        on_trace: OnTrace | None = None,
        extra_rows_max: int = EXTRA_ROWS_MAX,
        residence: PageCache = NO_BUDGET,
    ) -> Pipeline:
        """Returns a pipeline at the state of a snapshot. Raises ProjectChanged, SnapshotFormat, SnapshotDamaged."""
        return cls(plan, restore(plan, header, pages, residence), on_trace, extra_rows_max, residence)

    def set_partitions(self, partitions: Iterable[PartitionKey], skew_max_us: int | None = None) -> None:
        """Declares which partitions to merge, as (topic index, partition). `skew_max_us`: how far an append time may advance and
        still be believed at once (partition_clock.py); None: every append time is believed. Raises StateError if `skew_max_us`
        changes while rows wait, or if a removed partition has waiting rows."""
        partitions = [key for key in partitions if key[0] < len(self.plan.entries)]  # the topic of ticks alone is not merged
        if skew_max_us == self._skew_max_us:
            self._merge.set_partitions(partitions)
            return
        if self._merge.waiting_rows:
            raise StateError("skew_max_us cannot change while rows wait")
        self._skew_max_us = skew_max_us
        self._merge = self._new_merge(partitions)

    def _new_merge(self, partitions: Iterable[PartitionKey]) -> Merge:
        state = self._state
        beliefs = {key: Belief(each.time_us, state.clocks.get(key, each.time_us)) for key, each in state.passed.items()}
        trusted = frozenset(i for i, source in enumerate(self.plan.resolved.sources) if self.plan.resolved.reads(source))
        ticks_alone = len(self.plan.entries)  # the topic of `InboundRole.TICKS`
        return Merge(partitions, beliefs, self._skew_max_us, trusted=trusted, unmerged=ticks_alone)

    def compute_parts(
        self, decoded: pa.RecordBatch | pa.Table, take: TakeRows = default_step_rows, known: Sequence[Poison] = ()
    ) -> Iterator[dict[str, pa.RecordBatch]]:
        """Processes decoded rows (`rows.batch.decoded_schema(plan.entry_schemas)`): complete messages, in order within each
        partition. Yields the outputs by stream, part by part, at least one part. A part takes some hundredths of a second to
        compute, even if one event or tick causes many rows.

        The caller must consume all parts (`is_between_batches`). `take` is called before each step with the count of available
        rows, and returns how many of them to step. `known`: rows already found to be poison; they are refused.
        While the core stops (`stopped_at`), every part is empty.

        Raises StateError if the rows have another form, or a partition was not declared; PositionOrder if they do not continue the
        state's positions. After an error the pipeline must not be used again.
        """
        ready = deque(self._ready(decoded, known))
        if not ready:
            yield {}
        while ready:
            rows = yield from self._next_rows(ready, take)
            for made in self._step(self._state, rows):
                self._is_whole = self._state.is_whole and not ready
                if self._is_whole:
                    self._state.clocks.update(self._merge.clocks)
                if self._state.is_whole:
                    self._after_step()
                yield self._untraced(made)

    def compute_parts_bisecting(
        self, decoded: pa.RecordBatch | pa.Table, found: Callable[[Poison], None], known: Sequence[Poison] = ()
    ) -> Iterator[dict[str, pa.RecordBatch]]:
        """Yields parts as `compute_parts` does, for rows on which a step has failed (`flow.poison`). An event or tick on which a
        step fails alone is passed to `found`, which may raise, and is refused. The pipeline must be restored first: a failed
        step leaves its state invalid."""
        ready = deque(self._ready(decoded, known))
        if not ready:
            yield {}
        while ready:
            rows = yield from self._next_rows(ready, default_step_rows)
            self._is_whole = False
            self._state, outputs = retry_and_bisect(self._step, self.plan, self._state, rows, found)
            self._after_step()
            if not ready:
                self._state.clocks.update(self._merge.clocks)
                self._is_whole = True
            yield from (self._untraced(made) for made in outputs or [{}])

    def _next_rows(self, ready: deque[MergedRows], take: TakeRows) -> Generator[dict[str, pa.RecordBatch], None, MergedRows]:
        """Removes the rows of the next step from `ready`, which is not empty, and returns them. Yields empty parts while the core
        stops before them."""
        batch = ready.popleft()
        count = yield from self._until_free(batch)
        rows = batch.slice(0, take(count))
        if rows.num_rows < batch.num_rows:
            ready.appendleft(batch.slice(rows.num_rows))
        return rows

    def _until_free(self, batch: MergedRows) -> Generator[dict[str, pa.RecordBatch], None, int]:
        """Yields empty parts as long as the first row is at a place before which the core stops. Returns the number of rows, at
        least 1, that the next step may process; a row at a place without limits is a step of its own."""
        while self._stops and (place := self._stop_at(batch.slice(0, 1))) is not None:
            self._stopped_at, self._is_whole = place, False
            yield {}
        self._stopped_at = None
        if not self._stops and not self._unlimited:
            return batch.num_rows
        alone = self._first_row(batch, self._unlimited)
        if alone == 0:
            self._calls.slot.lift_limits()
            return 1
        self._calls.slot.restore_limits()
        stops = (self._stop_row(batch, place) for place in self._open_stops)
        return min((row for row in (alone, *stops) if row >= 0), default=batch.num_rows)

    @property
    def _open_stops(self) -> frozenset[CallPlace]:
        """The places before which the core stops now: ahead of the state, undecided, and not to be passed."""
        decided = {each.place for each in self._calls.decisions}
        open_stops = self._stops - decided - self._unlimited
        return frozenset(each for each in open_stops if not self._calls.is_passed(each, self._state))

    def _stop_at(self, row: MergedRows) -> CallPlace | None:
        """Returns the place before which the core stops if `row` is the next one; None if it does not stop."""
        return next((place for place in sorted(self._open_stops) if self._stop_row(row, place) == 0), None)

    def _stop_row(self, rows: MergedRows, place: CallPlace) -> int:
        """Returns the number of the first row at or after `place`; -1 without one."""
        key = self._calls.partition_of(place)
        return -1 if key is None else first_row_from(rows.positions, *key, place.offset, place.index)

    def _first_row(self, rows: MergedRows, places: Collection[CallPlace]) -> int:
        """Returns the number of the first row that is at one of the places; -1 if none is."""
        keys = ((place, self._calls.partition_of(place)) for place in places)
        found = (row_at(rows.positions, *key, place.offset, place.index) for place, key in keys if key is not None)
        return min((row for row in found if row >= 0), default=-1)

    def _ready(self, decoded: pa.RecordBatch | pa.Table, known: Sequence[Poison]) -> list[MergedRows]:
        """Merges the decoded rows and returns those that may be stepped now, in order; the next steps refuse known poison."""
        if not decoded.schema.equals(self._schema):
            raise StateError("decoded rows do not have the columns of the project", detail=f"{decoded.schema}")
        for batch in [decoded] if isinstance(decoded, pa.RecordBatch) else decoded.to_batches():
            self._state.passed.update(self._merge.push(batch))
        if known or self._calls.failed:
            self._calls = replace(self._calls, failed=tuple(known))
        return [with_refused(self.plan, batch, known) for batch in self._merge.pull()]

    def _step(self, state: State, rows: MergedRows, refused: Sequence[Poison] = ()) -> Iterator[dict[str, pa.RecordBatch]]:
        calls = replace(self._calls, failed=(*self._calls.failed, *refused)) if refused else self._calls
        return step(self.plan, state, rows, lambda: self._extra_rows, calls, self._meter)

    def _after_step(self) -> None:
        self._residence.evict_between_steps()
        self._memory = self._residence.counts()

    def attach_meter(self, meter: WindowMeter) -> None:
        """Counts what windows process in `meter` from the next step on."""
        self._meter = meter

    def attach_board(self, slot: CallSlot) -> None:
        """Shows calls of user code in `slot` from the next step on."""
        self._calls = replace(self._calls, slot=slot)

    def name_topics(self, names: Sequence[str]) -> None:
        """Sets the names of the inbound topics, in the order of `Resolved.sources`, by which places and decisions name them. Before
        that a topic has the name of its source window, as input from files has."""
        self._calls = replace(self._calls, topics={name: i for i, name in enumerate(names[: len(self.plan.entries)])})

    def set_decisions(self, decisions: Sequence[Decision]) -> None:
        """Sets all decisions of the group about calls, by number. They hold for steps that begin later. Those about windows that
        the project lacks or changed refuse nothing, but count as applied: a later upgrade may bring these windows back."""
        self._calls = replace(self._calls, decisions=tuple(decisions))

    @property
    def missing_decisions(self) -> tuple[Decision, ...]:
        """The known decisions about positions that the state has passed without applying them. If there are any, the state is
        void."""
        return self._calls.missing_decisions(self._state)

    def stop_before(self, places: Collection[CallPlace]) -> None:
        """Sets the places before which `compute_parts` stops unless they are decided: it processes no row at or after them."""
        self._stops = frozenset(each for each in places if self.plan.node_of(each) is not None)

    def pass_place(self, place: CallPlace) -> None:
        """Lets `compute_parts` compute the row at `place` without limits, and not stop before it."""
        self._unlimited |= {place}

    @property
    def stopped_at(self) -> CallPlace | None:
        """The place before which `compute_parts` waits now: each of its parts is empty until the place is decided, or to be
        passed."""
        place = self._stopped_at
        return place if place is not None and place in self._open_stops else None

    def row_by_row(self, places: Collection[CallPlace]) -> None:
        """Sets the windows over columns that call their code for one row at a time: those of `places`. Outputs are the same."""
        nodes = (self.plan.node_of(each) for each in places)
        self._calls = replace(self._calls, row_by_row=frozenset(node for node in nodes if node is not None))

    def limit_part_rows(self, extra_rows: int) -> None:
        """Limits parts, from the next part on, to `extra_rows`, but never above the constructor's limit. The outputs do not depend
        on the limit (law Cut)."""
        self._extra_rows = min(self._extra_rows_max, extra_rows)

    @property
    def is_between_batches(self) -> bool:
        """Whether the caller has consumed all parts of the last batch, so that the state can be frozen."""
        return self._is_whole

    def _untraced(self, made: dict[str, pa.RecordBatch]) -> dict[str, pa.RecordBatch]:
        """Returns the outputs without those of traced windows, and passes the latter to `on_trace`."""
        if not self.plan.traces:
            return made
        for name, batch in made.items():
            if name.startswith(TRACE_PREFIX) and self._on_trace is not None:
                self._on_trace(name.removeprefix(TRACE_PREFIX), batch)
        return {name: batch for name, batch in made.items() if not name.startswith(TRACE_PREFIX)}

    def feed(self, decoded: pa.RecordBatch | pa.Table) -> dict[str, pa.RecordBatch]:
        """Returns all parts of `compute_parts`, joined by stream. Raises StateError if the core stops before a place: only a caller
        that takes parts one by one can wait there."""
        return joined_parts(unstopped_parts(self, decoded))

    def freeze(self) -> FrozenProjectState:
        """Returns a snapshot of the current state, which another thread may write while feeding continues. Excludes rows that wait
        in the merge: a restored engine reads them again.

        Raises StateError unless all parts of the batch are consumed: a snapshot holds all effects of a position or none.
        """
        if not self._is_whole:
            raise StateError("the state cannot be frozen before all parts of a batch are taken")
        return freeze(self.plan, self._state)

    def adopt(self, stream: str, sequence: int, digest: int, last: tuple[int, int, int, int, int] | None) -> None:
        """Implements `ha.core.Core`: sets the sequence and digest of the stream's newest output, and its id if `last` is not None.
        Raises StateError unless all parts of the batch are consumed."""
        if not self._is_whole:
            raise StateError("output numbers cannot change before all parts of a batch are taken")
        known = self._state.streams[stream]
        known.sequence, known.digest = sequence, digest
        known.last = last or known.last

    def collect_all_strings(self) -> None:
        """Collects all strings that no window holds. Each step already collects a few; outputs do not depend on when strings are
        collected."""
        self._state.collect_all_strings()

    @property
    def waiting_rows(self) -> int:
        """The count of rows that wait: for rows of another partition, or for later rows of their own partition."""
        return self._merge.waiting_rows

    @property
    def waiting_bytes(self) -> int:
        """The bytes of memory of the waiting rows."""
        return self._merge.waiting_bytes

    @property
    def blocking_partitions(self) -> frozenset[PartitionKey]:
        """The partitions whose next row may precede an event of another partition, so that this event waits."""
        return self._merge.blocking_partitions

    @property
    def awaited_partition(self) -> PartitionKey:
        """The partition for which all waiting rows wait. A reader that holds enough waiting rows reads only this partition."""
        return self._merge.awaited_partition

    @property
    def sequences(self) -> dict[str, int]:
        """The sequence of the newest output of every stream, 0 before the first output."""
        return {name: stream.sequence for name, stream in self._state.streams.items()}

    @property
    def digests(self) -> dict[str, int]:
        """The digest of every stream up to its newest output, an unsigned 64-bit number."""
        return {name: stream.digest for name, stream in self._state.streams.items()}

    @property
    def last_ids(self) -> dict[str, OutputId | None]:
        """The id of the newest output of every stream, None before the first output."""
        return {name: stream.last_id for name, stream in self._state.streams.items()}

    @property
    def next_offsets(self) -> dict[PartitionKey, int]:
        """The offset at which a restored engine continues, by (topic index, partition). Partitions of which no row was stepped are
        missing."""
        return {key: passed.offset + 1 for key, passed in self._state.passed.items()}

    @property
    def memory_by_kind(self) -> Mapping[str, int]:
        """The bytes of the state by kind, as of the last step; empty without a budget."""
        return self._memory

    @property
    def memory_by_window(self) -> Mapping[str, Mapping[str, int]]:
        """The bytes of the state by kind, for each window whose rows may be evicted. Computed at each call, which must be between
        two steps."""
        return self._residence.counts_by_window()

    @property
    def time_us(self) -> int:
        """System time in us: the newest believed append time of the rows stepped."""
        return self._state.time_us
