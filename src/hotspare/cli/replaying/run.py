"""Runs a project over recorded messages to their end and writes the outputs of its windows, with either runner.

Both process the same messages (adapters/recording.py), so their outputs are the same bytes. The local runner reads the messages
directly, the ordered runner from a bus in a temporary folder, whose clock shows their times.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from hotspare.adapters.changelog_reading import RowChoice, ends_in_update
from hotspare.adapters.file_places import FilePlaces
from hotspare.adapters.files.output_rows import BadRowFormat, OutputRows
from hotspare.adapters.files.source_bytes import is_compressed
from hotspare.adapters.recording import RecordingProgress, ReplayFile, is_end, record_files
from hotspare.base.call_board import CallSlot
from hotspare.base.choices import RunUntil
from hotspare.base.errors import FileUnwritable, Mistake, RunnerError, UsageError
from hotspare.base.scratch import make_scratch
from hotspare.bus.contract import FORMAT_HEADER, TICK, Outgoing, Partition
from hotspare.bus.memory import MemoryBus
from hotspare.bus.sqlite import SqliteBus
from hotspare.coordination.memory import MemoryCoordination
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import OnTrace, Pipeline
from hotspare.flow.plan import Plan
from hotspare.flow.poison import Poison
from hotspare.ha.rules.settings import GroupTopics, InboundTopic
from hotspare.host.recovering_core import RecoveringCore, RecoveringCoreFactory, Recovery
from hotspare.host.watchdog.attach import WatchedCalls
from hotspare.host.watchdog.replay_calls import NOTHING_KNOWN
from hotspare.model.events import UpdateBlocks
from hotspare.rows.batch import BAD_STREAM, MessageFormat, NextInput, without_beats, without_causes
from hotspare.runners.contract import BatchLimits, EndCause, HeadPlace, Positions, RunnerEnd, RunnerInput, SourceTopic
from hotspare.runners.local import decode_iterable
from hotspare.stores.memory import MemoryStore
from hotspare.table.memory import NO_BUDGET, PageCache
from hotspare.table.page_cache.budget import Budget

_ROW_CHARACTERS_MAX = 200
MICRO_BATCH_MESSAGES_MIN = 1_000
"""The minimum size of a micro-batch of Spark, in messages; the core still processes batches of the requested size."""
_GATHERED_ROWS_MAX = 8_192
_MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_MEMORY_BYTES_MAX = 256 << 20
RecordedBatches = Callable[[], Iterator[pa.RecordBatch]]
"""A function that returns an iterator over all raw batches of a replay (`adapters.recording.record_files`)."""


@dataclass(frozen=True)
class Replay:
    """The arguments of a run: a plan, its input files, and the files for `outputs` by window and for `bad` events.

    `rows`: the form of each window's rows; `updates`: the form of updates in them. `messages_max`: limit on the messages of a
    batch. `warnings`: those of the project. `untimed`: sources with fields of time, but none named, so that their rows precede all
    others. `on_trouble` is called with sentences about problems during the run.
    """

    plan: Plan
    files: Sequence[ReplayFile]
    outputs: Mapping[str, Path]
    rows: Mapping[str, OutputRows]
    updates: UpdateBlocks = UpdateBlocks.PAIRS
    bad: Path | None = None
    messages_max: int = 5_000
    stop: threading.Event = field(default_factory=threading.Event)
    report: Callable[[RecordingProgress], None] = lambda progress: None
    on_trace: OnTrace | None = None
    warnings: tuple[Mistake, ...] = ()
    untimed: Sequence[str] = ()
    on_trouble: Callable[[str], None] = lambda sentence: None
    page_budget: Budget | None = None
    until: RunUntil = RunUntil.END
    calls: WatchedCalls = field(default_factory=WatchedCalls)


@dataclass(slots=True)
class ReplayCounts:
    """The number of events read, and of `rows` written per stream (including `rows.batch.BAD_STREAM`, written or not)."""

    events: int = 0
    rows: dict[str, int] = field(default_factory=dict)


class _Writers:
    """The open output files. Collects small outputs, so that many rows are formatted at once. Bad events are written with their
    places in the input files, which the reader of these records in `places`."""

    def __init__(self, replay: Replay, stack: contextlib.ExitStack) -> None:
        paths = dict(replay.outputs) | ({} if replay.bad is None else {BAD_STREAM: replay.bad})
        self._files: dict[str, BinaryIO] = {name: _opened(path, stack) for name, path in paths.items()}
        for file in self._files.values():
            if not _emptied(file) and replay.calls.known != NOTHING_KNOWN:
                what = "the replay begins again because a call of user code did not end, and this output cannot be emptied"
                raise UsageError(f"{file.name}: {what}", hint="write to a file")
        self._titled: set[str] = set()
        self._rows = replay.rows
        self._choice = RowChoice(replay.updates)
        self._has_open_update = dict.fromkeys(replay.outputs, False)
        """Whether the newest output of a window is an update block, whose delete follows."""
        self.places = FilePlaces([file.path for file in replay.files])
        self._bad_rows = BadRowFormat(lambda topic, _partition, offset, _index: self.places.location_of(topic, offset))
        self._gathered: dict[str, list[pa.RecordBatch]] = {}
        self._gathered_rows = 0
        self.counts = ReplayCounts()

    def write(self, outputs: Mapping[str, pa.RecordBatch]) -> None:
        for name, made in outputs.items():
            batch = self._chosen(name, without_beats(without_causes(made)))
            self.counts.rows[name] = self.counts.rows.get(name, 0) + len(batch)
            if name in self._files:
                self._gathered.setdefault(name, []).append(batch)
                self._gathered_rows += len(batch)
        if self._gathered_rows >= _GATHERED_ROWS_MAX:
            self.flush()

    def _chosen(self, name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._choice.updates is UpdateBlocks.PAIRS or name not in self._has_open_update or not len(batch):
            return batch
        is_open, self._has_open_update[name] = self._has_open_update[name], ends_in_update(batch)
        return self._choice.select_rows(batch, update_open=int(is_open))

    def flush(self) -> None:
        """Writes the collected rows to their files. Raises FileUnwritable if that fails."""
        for name, batches in self._gathered.items():
            self._write(name, pa.concat_batches(batches))
        self._gathered, self._gathered_rows = {}, 0

    def finish(self) -> None:
        """Writes the collected rows, and title lines to files without rows. Raises FileUnwritable if that fails."""
        self.flush()
        for name, form in self._rows.items():
            if name not in self._titled:
                self._write(name, form.empty_batch())

    def _write(self, name: str, rows: pa.RecordBatch) -> None:
        file, form = self._files[name], self._bad_rows if name == BAD_STREAM else self._rows[name]
        try:
            file.write((b"" if name in self._titled else form.title(rows)) + form.format_rows(rows))
            file.flush()
        except OSError as error:
            raise FileUnwritable.from_os_error(file.name, error) from error
        self._titled.add(name)


def _core(replay: Replay) -> RecoveringCore:
    recorded = partial(replay_batches, replay, RecordingProgress())
    core = replay_core(replay.plan, recorded, replay.on_trace, replay.on_trouble, replay.page_budget, replay.calls.slot)
    core.set_decisions(replay.calls.known.decisions)
    core.row_by_row(replay.calls.known.divided)
    return core


def run_local(replay: Replay) -> ReplayCounts:
    """Runs without Spark, in this thread, and returns the counts. Returns early if `replay.stop` is set."""
    head, core = Head.from_plan(replay.plan), _core(replay)
    with contextlib.ExitStack() as stack:
        writers = _Writers(replay, stack)
        progress = RecordingProgress()
        for raw in replay_batches(replay, progress, writers.places):
            for decoded in decode_iterable([raw], head, replay.messages_max):
                for outputs in core.compute_parts(decoded):
                    writers.write(outputs)
            replay.report(progress)
        writers.finish()
        writers.counts.events = progress.events
        return writers.counts


def run_ordered(replay: Replay, head_place: HeadPlace) -> ReplayCounts:
    """Runs with Spark, decoding at `head_place`, and returns the counts. Call it from the main thread. Raises RunnerError if Spark
    fails."""
    from hotspare.runners.spark.ordered import OrderedRunner

    with contextlib.ExitStack() as stack:
        writers = _Writers(replay, stack)
        folder = make_scratch("replay", _folder_for(replay.files))  # one that was ended is removed when the replay begins again
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        progress = RecordingProgress()
        topics, ends, end = _fill(replay, folder / "bus.db", progress, writers.places)
        writers.counts.events = progress.events
        if replay.stop.is_set():
            return writers.counts
        collector = _Collector(replay, writers, ends)
        source = RunnerInput(
            bus_url=f"sqlite:///{folder / 'bus.db'}",
            topics=topics,
            head=Head.from_plan(replay.plan),
            head_place=head_place,
            limits=BatchLimits(messages_max=max(replay.messages_max, MICRO_BATCH_MESSAGES_MIN) * len(topics)),
        )
        runner = OrderedRunner(source, collector.process_batch, collector.record_runner_end)
        runner.start({})
        try:
            collector.wait()
        finally:
            runner.stop()
        if end is not None and not replay.stop.is_set():
            collector.process_batch(pa.Table.from_batches(source.head(end)), NextInput.AWAITED)
        writers.finish()
        return writers.counts


class _Collector:
    """Processes the runner's batches until every topic has been read to its end offset in `ends`."""

    def __init__(self, replay: Replay, writers: _Writers, ends: Mapping[int, int]) -> None:
        self._replay = replay
        self._writers = writers
        self._last_offsets = {topic: end - 1 for topic, end in ends.items()}
        self._core = _core(replay)
        self._done = threading.Event()
        self._end: RunnerEnd | None = None

    def process_batch(self, decoded: pa.Table, _: NextInput) -> None:
        for piece in _pieces(decoded, self._replay.messages_max):
            for outputs in self._core.compute_parts(piece):
                self._writers.write(outputs)
        for topic, offset in zip(decoded.column("topic").to_pylist(), decoded.column("offset").to_pylist(), strict=True):
            if self._last_offsets.get(topic) == offset:
                del self._last_offsets[topic]
        if not self._last_offsets:
            self._done.set()

    def record_runner_end(self, end: RunnerEnd) -> None:
        self._end = end
        self._done.set()

    def wait(self) -> None:
        """Waits for the last batch or a stop. Raises the runner's error, else RunnerError, if the runner ends before."""
        while not self._done.wait(0.1) and not self._replay.stop.is_set():
            pass
        if self._last_offsets and self._end is not None and self._end.cause is not EndCause.STOPPED:
            error = self._end.error
            raise error if isinstance(error, Exception) else RunnerError(f"the runner ended: {self._end.cause.value}")


def _pieces(decoded: pa.Table, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yields parts of about `rows_max` messages; all rows of a message are in one part."""
    for batch in decoded.to_batches():
        starts = [i for i, index in enumerate(batch.column("index").to_pylist()) if index == 0]
        cuts = [0, *starts[rows_max::rows_max], len(batch)] if len(starts) > rows_max else [0, len(batch)]
        for begin, end in pairwise(cuts):
            if end > begin:
                yield batch.slice(begin, end - begin)


def replay_batches(replay: Replay, progress: RecordingProgress, places: FilePlaces | None = None) -> Iterator[pa.RecordBatch]:
    resolved = replay.plan.resolved
    heartbeat_us = resolved.project.heartbeat_interval_us
    pulses_us = [us for w in resolved.windows if (us := w.window.emission.pulse_interval_us(heartbeat_us))]
    warn = replay.on_trouble if places is not None else lambda sentence: None  # the second reading need not warn again
    found = record_files(
        replay.files, len(resolved.sources), heartbeat_us, progress, places, pulses_us, warn=warn, until=replay.until
    )
    for raw in found:
        if replay.stop.is_set():
            return
        yield raw


def _fill(
    replay: Replay, path: Path, progress: RecordingProgress, places: FilePlaces
) -> tuple[tuple[SourceTopic, ...], dict[int, int], pa.RecordBatch | None]:
    """Appends the recorded messages, with their times, to a bus in the file `path`. Returns the topics, the end offset of each by
    its index, and the raw batch that marks the end of the input, which is in no topic; None without one."""
    now_us, end = 0, None
    bus = SqliteBus(path, clock=lambda: now_us)
    sources = replay.plan.resolved.sources
    topics = tuple(SourceTopic(f"replay.{source.query}.{source.window}.I") for source in sources)
    ends = dict.fromkeys(range(len(topics)), 0)
    try:
        for topic in topics:
            bus.create_topic(topic.name)
        for raw in replay_batches(replay, progress, places):
            if is_end(raw):
                end = raw
                continue
            names = ("topic", "time_us", "tick", "format", "value")
            rows = zip(*(raw.column(name).to_pylist() for name in names), strict=True)
            for (index, time_us), same in groupby(rows, key=lambda row: (row[0], row[1])):
                now_us = time_us
                messages = [TICK if tick else Outgoing(value, _headers(format_)) for _, _, tick, format_, value in same]
                bus.append(Partition(topics[index].name), messages)
                ends[index] += len(messages)
            replay.report(progress)
    finally:
        bus.close()
    return topics, ends, end


def _headers(format_: int) -> tuple[tuple[str, bytes], ...]:
    return ((FORMAT_HEADER, MessageFormat(format_).header),)


def _folder_for(files: Sequence[ReplayFile]) -> Path | None:
    """Returns a folder in memory if the files are small, else None (the default). Each new time needs a transaction, and none has
    to be durable."""
    if any(is_compressed(file.path) for file in files):
        return None
    total = sum(file.path.stat().st_size * (file.options.repeats + 1) for file in files)
    return _MEMORY_FOLDER if total < _MEMORY_BYTES_MAX and _MEMORY_FOLDER.is_dir() else None


def _opened(path: Path, stack: contextlib.ExitStack) -> BinaryIO:
    """Opens a file for writing without truncating it, which the caller does after all files are open. Raises UsageError if it
    cannot be written."""
    try:
        file = path.open("ab")
    except OSError as error:
        raise UsageError(f"file {path} cannot be written", detail=error.strerror or str(error)) from error
    stack.callback(_closed, file)
    return file


def _emptied(file: BinaryIO) -> bool:
    """Truncates a file. Returns whether nothing is in it then: a pipe keeps what was written to it."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return Path(file.name).samefile(os.devnull)
    file.truncate(0)
    return True


def _closed(file: BinaryIO) -> None:
    """Closes a file and ignores errors: all data was flushed before, or the error was already raised."""
    with contextlib.suppress(OSError):
        file.close()


def replay_core(
    plan: Plan,
    recorded: RecordedBatches,
    on_trace: OnTrace | None,
    told: Callable[[str], None],
    residence: PageCache | None = None,
    slot: CallSlot | None = None,
) -> RecoveringCore:
    """Returns a core before the first event, which shows its calls of user code in `slot`. An event on which the engine itself
    fails becomes a bad event, as in a group, and `told` is called with a sentence about it. The state before the failed step is
    rebuilt by processing the recorded input again."""
    sources = plan.resolved.sources
    topics = GroupTopics(tuple(InboundTopic(str(source)) for source in sources), ())
    recovery = _FileRecovery(
        group="replay",
        topics=topics,
        bus=MemoryBus().client("replay"),
        store=MemoryStore(),
        coordination=MemoryCoordination().client("replay"),
        source=RunnerInput(bus_url="", topics=(), head=Head.from_plan(plan)),
        log_sentence=told,
        plan=plan,
        recorded_batches=recorded,
    )
    return RecoveringCoreFactory(_Cores(plan, on_trace, residence or NO_BUDGET), recovery, slot).fresh()


@dataclass(slots=True)
class _FileRecovery(Recovery):
    """Rebuilds state from the input files. The fields `plan` and `recorded_batches` must always be set."""

    plan: Plan | None = None
    recorded_batches: RecordedBatches = lambda: iter(())

    def replayed_batches(self, core_offsets: Positions, ends: Positions) -> Iterator[pa.Table]:
        assert self.plan is not None
        limits = np.array([ends.get((topic, 0), 0) for topic in range(len(self.topics.inbound))])
        for decoded in decode_iterable(self.recorded_batches(), Head.from_plan(self.plan), self.source.limits.messages_max):
            was_fed = decoded.column("offset").to_numpy() < limits[decoded.column("topic").to_numpy()]
            if not was_fed.any():
                return
            yield decoded.filter(pa.array(was_fed))

    def report_poison(self, poison: Poison) -> None:
        window, row = self.topics.inbound[poison.topic].name, self._row(poison)
        self._decide(f"an event of {window}, {row!r}", f"{type(poison.error).__name__}: {poison.error}")

    def _row(self, poison: Poison) -> str:
        """Returns the text of the event's message, cut to `_ROW_CHARACTERS_MAX` characters; "" if it is not found."""
        for raw in self.recorded_batches():
            for row in np.flatnonzero(raw.column("offset").to_numpy() == poison.offset).tolist():
                if raw.column("topic")[row].as_py() == poison.topic:
                    return str(raw.column("value")[row].as_py().decode(errors="replace"))[:_ROW_CHARACTERS_MAX]
        return ""


class _Cores:
    """Creates pipelines that together trace every event only once, even if it is processed again after a failure."""

    def __init__(self, plan: Plan, on_trace: OnTrace | None, residence: PageCache) -> None:
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
