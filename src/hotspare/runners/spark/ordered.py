"""The `ordered` runner: Spark reads and may run the head, and the driver receives every batch in the order of the input.

    source --rows--> foreachBatch --toArrow--> relay --> [head, if it runs in the driver] --> on_batch
       `--- batches of a long-lived micro-batch ---------^

The bus decides the source, and whether it has long-lived micro-batches (span.py); see `SparkReading`. Two threads, one waiting for
the query and one for the JVM, report an end at once.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from hotspare.base.errors import HotspareError, RunnerError
from hotspare.bus.contract import Bus
from hotspare.bus.open import open_bus
from hotspare.runners.contract import EndCause, HeadPlace, KafkaReaderKind, OnBatch, OnEnd, Positions, RunnerEnd, RunnerInput
from hotspare.runners.reading import by_shard, complete_positions, decoding_size, is_near_limits, steps
from hotspare.runners.spark.archive import existing_archive
from hotspare.runners.spark.failure import unpack
from hotspare.runners.spark.jars import BARE_FILE_SYSTEM, HINT, available, cache_folder, cached_kafka_source, ensure_kafka_source
from hotspare.runners.spark.session import Session, SessionOptions
from hotspare.runners.spark.source import BusReading
from hotspare.runners.spark.span import OnSpanBatch

CORES_MAX = 4
GREETING_TIMEOUT_S = 60.0
BATCH_END_WAIT_S = 5.0
DEATH_WAIT_S = 0.5
"""How long the runner waits for the JVM's death after a query failed: a JVM that is being killed breaks its connections first."""


class SparkReading(Protocol):
    """The interface for reading one kind of bus. Implemented by `source.BusReading` and
    `runners.spark.kafka.source.KafkaReading`."""

    greetings: int

    def warm(self, session: Session, start: Positions) -> None: ...

    def close(self, timeout_s: float) -> None: ...

    def frames(self, session: Session, start: Positions) -> DataFrame: ...

    def batches(self, collected: pa.Table) -> list[pa.RecordBatch]: ...

    def prepare(self, bus: Bus, positions: Positions) -> None: ...

    def adjust_pace(self, batches: list[pa.RecordBatch], before: Positions, size_bytes: int) -> bool: ...

    def error_or_restart(self, failure: str, positions: Positions, waits: Callable[[float], bool]) -> HotspareError | None: ...


def _reading(source: RunnerInput, tasks_max: int, on_span_batch: OnSpanBatch) -> SparkReading:
    if _is_sparks_own(source):
        from hotspare.runners.spark.kafka.source import KafkaReading

        return KafkaReading(source, tasks_max)
    return BusReading(source, on_span_batch)


def _is_sparks_own(source: RunnerInput) -> bool:
    """Whether the runner reads the bus through Spark's own Kafka source."""
    return source.bus_url.startswith("kafka://") and source.kafka_reader is KafkaReaderKind.SOURCE


class _QueryOverError(Exception):
    """Raised in foreachBatch to end the query; the runner may continue with another query."""


class OrderedRunner:
    """Implements `contract.Runner`; a process may have one such runner at a time. Signal handlers that the caller set before
    `start` remain in place."""

    def __init__(
        self,
        source: RunnerInput,
        on_batch: OnBatch,
        on_end: OnEnd,
        options: SessionOptions | None = None,
        begin: Callable[[SessionOptions], Session] = Session,
    ) -> None:
        """`begin`: creates the Spark session, which `stop` ends. `options`: those of the session; None chooses them for this
        machine."""
        self._source = source
        self._begin = begin
        self._on_batch = on_batch
        self._on_end = on_end
        self.notice = ""
        """Advice for the log: the missing file that would make this runner faster; "" if none is missing."""
        self._options = options or self._default_options()
        self._reading = _reading(source, self._options.cores, self._on_span_batch)
        self._positions: dict[tuple[int, int], int] = {}
        self._queries = 0
        self._session: Session | None = None
        self._query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._end: RunnerEnd | None = None
        self._ended = threading.Event()
        self._greeted = threading.Event()
        self._in_batch = threading.Lock()
        self._relay = Relay()
        self._decoding = decoding_size()
        self._stopping = threading.Event()

    def _default_options(self) -> SessionOptions:
        cores = min(CORES_MAX, os.cpu_count() or 1)
        jar, self.notice = available(BARE_FILE_SYSTEM)
        kafka = ensure_kafka_source() if _is_sparks_own(self._source) else cached_kafka_source()
        archive = existing_archive(cache_folder(), jar, kafka)
        if archive is None and not self.notice:
            self.notice = f"no archive of spark's classes in {cache_folder()}; {HINT}"
        return SessionOptions(cores, jar, kafka, archive)

    def start(self, start_offsets: Positions) -> None:
        self._positions = self._checked_positions(start_offsets)
        session = self._begin(self._options)
        self._session = session
        _watch(self._watch_jvm, "watch-jvm")
        try:
            self._reading.warm(session, self._positions)
            self._query = self._start_query(session)
        except Exception as error:
            reason = error if isinstance(error, HotspareError) else unpack(str(error))
            self._stopping.set()
            self._reading.close(BATCH_END_WAIT_S)
            session.stop()
            self._relay.close()
            raise reason from error
        _watch(self._watch_query, "watch-query")
        self._await_greeting()

    @property
    def session(self) -> Session:
        """The running session. Raises RunnerError before `start`."""
        if self._session is None:
            raise RunnerError("the runner was not started")
        return self._session

    def _await_greeting(self) -> None:
        """Waits for the query's first batches, which are empty and slow: they load and compile the code that every batch needs.
        Then ends the processes that planned the query. Raises RunnerError, or the runner's error, if the batches do not arrive in
        GREETING_TIMEOUT_S."""
        if not self._reading.greetings:
            return
        if self._greeted.wait(GREETING_TIMEOUT_S) and self._end is None:
            self.session.end_planners()
            return
        end = self._end
        self.stop()
        if end is not None and end.error is not None:
            raise end.error
        raise RunnerError(f"spark delivered no batch within {GREETING_TIMEOUT_S:.0f} s of its start")

    def _checked_positions(self, start_offsets: Positions) -> dict[tuple[int, int], int]:
        bus = open_bus(self._source.bus_url)
        try:
            positions = complete_positions(bus, self._source.topics, start_offsets)
            self._reading.prepare(bus, positions)
            return positions
        finally:
            bus.close()

    def _start_query(self, session: Session) -> StreamingQuery:
        self._queries += 1
        return (
            self._reading.frames(session, self._positions)
            .writeStream.foreachBatch(self._foreach_batch)
            .option("checkpointLocation", str(session.scratch / f"checkpoint-{self._queries}"))
            .start()
        )

    def _foreach_batch(self, rows: DataFrame, batch_id: int) -> None:
        with self._in_batch:
            if self._ended.is_set():
                raise _QueryOverError
            if self._stopping.is_set():
                return
            collected = rows.toArrow()  # when this returns, the batches of a long-lived micro-batch have been handed over
            batches = [batch for batch in self._reading.batches(collected) if batch.num_rows]
            if batch_id + 1 >= self._reading.greetings:
                self._greeted.set()
            if not batches:
                return
            read_s = time.monotonic()
            self._relay.submit_task(lambda: self._process_batches(batches))
            is_over = self._reading.adjust_pace(batches, self._positions, collected.nbytes)
            self._advance(batches)
            if is_over:
                raise _QueryOverError
            if not is_near_limits(batches, self._source.limits):
                self._source.pace.wait(read_s, self._is_over)

    def _process_batches(self, batches: list[pa.RecordBatch]) -> None:
        """Delivers the batches to `on_batch`; runs in the relay's thread, while Spark continues to read. Failures are reported as
        the runner's end."""
        if not self._is_over():
            with self._failures_reported():
                self._hand_over(batches)

    def _on_span_batch(self, batches: list[pa.RecordBatch]) -> bool:
        """Delivers the batches of a long-lived micro-batch to `on_batch`; returns False to end the micro-batch. The SpanServer
        stores the position."""
        self._process_batches(batches)
        return not self._is_over()

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self._ended.is_set()

    @contextmanager
    def _failures_reported(self) -> Iterator[None]:
        """Reports any exception of the block as the runner's end; does not raise it."""
        try:
            yield
        except BaseException as error:
            self._report(RunnerEnd(EndCause.FAILED, error))

    def _hand_over(self, batches: list[pa.RecordBatch]) -> None:
        """Runs the head if it runs in the driver, and calls `on_batch` with the decoded rows, step by step."""
        head = self._source.head if self._source.head_place is HeadPlace.DRIVER else None
        for of_shard in by_shard(batches, self._source.shards):
            for step, next_input in steps(of_shard, head, self._source.limits, self._decoding):
                if self._is_over():
                    return
                self._on_batch(step, next_input)

    def _advance(self, batches: list[pa.RecordBatch]) -> None:
        """Advances the positions past the batches submitted to the relay, so that a restarted query does not read them again."""
        for batch in batches:  # each of one partition, in order
            key = batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py()
            self._positions[key] = batch.column("offset")[-1].as_py() + 1

    def _watch_jvm(self) -> None:
        if self._session is not None:
            self._report(RunnerEnd(EndCause.PROCESS_DIED, self._session.wait_for_death()))

    def _watch_query(self) -> None:
        while (query := self._query) is not None and (session := self._session) is not None:
            failure = _end_of(query)
            self._await_foreach()  # Spark does not wait for foreachBatch, which moves the positions
            if session.dies_within(DEATH_WAIT_S if failure else 0.0):
                return  # the other watcher reports a dead JVM
            if self._ended.is_set() or self._stopping.is_set():
                self._report(RunnerEnd(EndCause.STOPPED))
                return
            try:
                error = self._reading.error_or_restart(
                    failure, dict(self._positions), lambda seconds: not self._stopping.wait(seconds)
                )
                if error is None:
                    with self._lock:
                        if not self._stopping.is_set():
                            self._query = self._start_query(session)
                            continue
            except Exception as broken:
                error = broken if isinstance(broken, HotspareError) else unpack(_text(broken))
            self._report(RunnerEnd(EndCause.FAILED, error))
            return

    def _await_foreach(self) -> None:
        if self._in_batch.acquire(timeout=BATCH_END_WAIT_S):
            self._in_batch.release()

    def _report(self, end: RunnerEnd) -> None:
        with self._lock:
            if self._end is not None:
                return
            self._end = RunnerEnd(EndCause.STOPPED) if self._stopping.is_set() else end
            end = self._end
        self._ended.set()
        self._source.pace.wake()
        self._greeted.set()
        self._on_end(end)

    def wait(self, timeout_s: float | None = None) -> RunnerEnd | None:
        self._ended.wait(timeout_s)
        return self._end

    def stop(self) -> None:
        self._stopping.set()
        self._source.pace.wake()
        with self._lock:
            session, query = self._session, self._query
        if session is None:
            return
        self._reading.close(BATCH_END_WAIT_S)
        if query is not None and session.jvm_is_alive():
            # Spark would interrupt a batch in the middle of its answer to Python; the next batch sees that it has to stop.
            self._await_foreach()
            self._relay.wait_until_idle(BATCH_END_WAIT_S)
            with suppress(Exception):  # the JVM ends below, whatever Spark raises
                query.stop()
        session.stop()
        self._relay.close()
        self._report(RunnerEnd(EndCause.STOPPED))


class Relay:
    """Processes one batch while Spark reads the next: a thread runs the tasks of foreachBatch, one at a time, in order.

    At most one task runs, and no further task is queued. `submit_task` and `wait_until_idle` may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._task: Callable[[], None] | None = None
        self._closed = False
        threading.Thread(target=self._work, name="relay", daemon=True).start()

    def submit_task(self, task: Callable[[], None]) -> None:
        """Waits until the task before is done, then hands `task` to the thread and returns. `task` must not raise. After `close`,
        `task` is dropped."""
        with self._changed:
            self._changed.wait_for(lambda: self._task is None or self._closed)
            if not self._closed:
                self._task = task
                self._changed.notify_all()

    def wait_until_idle(self, timeout_s: float | None = None) -> bool:
        """Waits until no task runs, at most `timeout_s`; returns whether no task runs."""
        with self._changed:
            return self._changed.wait_for(lambda: self._task is None, timeout_s)

    def close(self) -> None:
        """Unblocks waiting callers of `submit_task`, and ends the thread after its current task."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._task is not None or self._closed)
                task = self._task
            if task is None:
                return
            task()
            with self._changed:
                self._task = None
                self._changed.notify_all()


def _end_of(query: StreamingQuery) -> str:
    """Waits for the query's end; returns Spark's error text, or "" if the query ended without an error."""
    try:
        query.awaitTermination()
    except Exception as error:
        return _text(error)
    return ""


def _text(error: Exception) -> str:
    """Returns the text of an error of Spark; the error's class name if the JVM, from which Spark requests the text, is dying."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _watch(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()
