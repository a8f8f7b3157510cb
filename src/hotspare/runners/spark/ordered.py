"""The `ordered` runner: Spark reads and runs the head, the driver gets every batch in the order of the input.

    BusSource --frames--> foreachBatch --toArrow--> [head, if it is the driver's] --> on_batch

Its two watchers, of the query and of the JVM, each with a thread that waits, report an end at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from hotspare.bus.open import open_bus
from hotspare.errors import HotspareError, RunnerError
from hotspare.runners.contract import EndCause, HeadPlace, OnBatch, OnEnd, Positions, RunnerEnd, RunnerInput
from hotspare.runners.reading import complete_positions
from hotspare.runners.spark.archive import existing_archive
from hotspare.runners.spark.failure import unpack
from hotspare.runners.spark.frames import unframe
from hotspare.runners.spark.jars import BARE_FILE_SYSTEM, HINT, available, cache_folder
from hotspare.runners.spark.session import Session, SessionOptions
from hotspare.runners.spark.source import GREETINGS, SourceOptions, bus_source

CORES_MAX = 4
GREETING_TIMEOUT_S = 60.0
BATCH_END_WAIT_S = 5.0
DEATH_WAIT_S = 0.5
"""A JVM that is being killed breaks its connections first: how long a failed query waits to learn which of the two it was."""


class OrderedRunner:
    """One per process at a time (see contract.Runner). Signal handlers that the caller set before `start` stay in place."""

    def __init__(self, source: RunnerInput, on_batch: OnBatch, on_end: OnEnd, options: SessionOptions | None = None) -> None:
        self._source = source
        self._on_batch = on_batch
        self._on_end = on_end
        self.notice = ""
        """What is missing that would make this runner faster, for the log; empty when nothing is."""
        self._options = options or self._default_options()
        self._session: Session | None = None
        self._query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._end: RunnerEnd | None = None
        self._ended = threading.Event()
        self._greeted = threading.Event()
        self._in_batch = threading.Lock()
        self._stopping = False

    def _default_options(self) -> SessionOptions:
        cores = min(CORES_MAX, os.cpu_count() or 1)
        jar, self.notice = available(BARE_FILE_SYSTEM)
        archive = existing_archive(cache_folder(), jar)
        if archive is None and not self.notice:
            self.notice = f"no archive of spark's classes in {cache_folder()}; {HINT}"
        return SessionOptions(cores, jar, archive, head_place=self._source.head_place)

    def start(self, start_offsets: Positions) -> None:
        positions = self._positions(start_offsets)
        session = Session(self._options)
        self._session = session
        _watch(self._watch_jvm, "watch-jvm")
        try:
            self._query = self._start_query(session, positions)
        except Exception as error:
            reason = error if isinstance(error, HotspareError) else unpack(str(error))
            with self._lock:
                self._stopping = True
            session.stop()
            raise reason from error
        _watch(self._watch_query, "watch-query")
        self._await_greeting()

    @property
    def session(self) -> Session:
        """The running session. RunnerError before `start`."""
        if self._session is None:
            raise RunnerError("the runner was not started")
        return self._session

    def _await_greeting(self) -> None:
        """The first batches are empty and slow: they load and compile what every batch needs, so that those with rows are quick."""
        if self._greeted.wait(GREETING_TIMEOUT_S) and self._end is None:
            return
        end = self._end
        self.stop()
        if end is not None and end.error is not None:
            raise end.error
        raise RunnerError(f"spark brought no batch within {GREETING_TIMEOUT_S:.0f} s of its start")

    def _positions(self, start_offsets: Positions) -> Positions:
        bus = open_bus(self._source.bus_url)
        try:
            return complete_positions(bus, self._source.topics, start_offsets)
        finally:
            bus.close()

    def _start_query(self, session: Session, start: Positions) -> StreamingQuery:
        source = self._source
        options = SourceOptions(
            source.bus_url, source.topics, start, source.limits, source.head_place, tasks_max=self._options.cores
        )
        session.spark.dataSource.register(bus_source(source.head))
        return (
            session.spark.readStream.format("hotspare")
            .option("input", options.to_text())
            .load()
            .writeStream.foreachBatch(self._foreach_batch)
            .option("checkpointLocation", str(session.scratch / "checkpoint"))
            .start()
        )

    def _foreach_batch(self, frames: DataFrame, batch_id: int) -> None:
        with self._in_batch:
            if self._stopping or self._ended.is_set():
                return
            table = self._decoded(unframe(frames.toArrow()))
            if batch_id + 1 >= GREETINGS:
                self._greeted.set()
            if table is None:
                return
            try:
                self._on_batch(table)
            except BaseException as error:
                self._report(RunnerEnd(EndCause.FAILED, error))
                raise

    def _decoded(self, batches: list[pa.RecordBatch]) -> pa.Table | None:
        if self._source.head_place is HeadPlace.DRIVER:
            batches = [self._source.head(batch) for batch in batches]
        batches = [batch for batch in batches if batch.num_rows]
        return pa.Table.from_batches(batches) if batches else None

    def _watch_jvm(self) -> None:
        if self._session is not None:
            self._report(RunnerEnd(EndCause.PROCESS_DIED, self._session.wait_for_death()))

    def _watch_query(self) -> None:
        query = self._query
        if query is None:
            return
        try:
            query.awaitTermination()
        except Exception as error:
            text = _text(error)
            if self._session is not None and not self._session.dies_within(DEATH_WAIT_S):
                self._report(RunnerEnd(EndCause.FAILED, unpack(text)))
            return  # a dead JVM is the other watcher's to report
        self._report(RunnerEnd(EndCause.FAILED, RunnerError("spark ended the query without a reason")))

    def _report(self, end: RunnerEnd) -> None:
        with self._lock:
            if self._end is not None:
                return
            self._end = RunnerEnd(EndCause.STOPPED) if self._stopping else end
            end = self._end
        self._ended.set()
        self._greeted.set()
        self._on_end(end)

    def wait(self, timeout_s: float | None = None) -> RunnerEnd | None:
        self._ended.wait(timeout_s)
        return self._end

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
        session, query = self._session, self._query
        if session is None:
            return
        if query is not None and session.jvm_is_alive():
            # Spark would interrupt a batch in the middle of its answer to Python; the next one finds that it is to stop.
            if self._in_batch.acquire(timeout=BATCH_END_WAIT_S):
                self._in_batch.release()
            with suppress(Exception):  # whatever Spark says, the JVM ends below
                query.stop()
        session.stop()
        self._report(RunnerEnd(EndCause.STOPPED))


def _text(error: Exception) -> str:
    """What Spark says; it asks the JVM for it, which may be dying."""
    try:
        return str(error)
    except Exception:
        return type(error).__name__


def _watch(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()
