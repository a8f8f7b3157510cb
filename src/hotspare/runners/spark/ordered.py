"""The `ordered` runner: tasks of Spark read the bus and run the head, and the driver receives every batch in order of the input.

    bus --> a task for each reader: read, head --link--> [head, if it runs in the driver] --> on_batch
                 `--- a row for each event ---> Spark's scan, which counts it

Spark's query is a sequence of long-lived micro-batches (span.py). Two threads, one waiting for the query and one for the JVM,
report an end at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.streaming import StreamingQuery

from hotspare.base.addresses import LOOPBACK
from hotspare.base.errors import HotspareError, RunnerError
from hotspare.bus.open import open_bus
from hotspare.runners.contract import EndCause, HeadPlace, OnBatch, OnEnd, Positions, RunnerEnd, RunnerInput, SparkOptions
from hotspare.runners.reading import by_shard, check_positions, complete_positions, decoding_size, steps
from hotspare.runners.spark.archive import existing_archive
from hotspare.runners.spark.failure import query_error
from hotspare.runners.spark.jars import BARE_FILE_SYSTEM, HINT, available, cache_folder
from hotspare.runners.spark.partitioned.cluster import OnSlots, SparkCluster, SparkClusterOptions, check_reachable, parse_master
from hotspare.runners.spark.session import Session, SessionOptions
from hotspare.runners.spark.settings import ui_conf
from hotspare.runners.spark.source import SOURCE_NAME, bus_source
from hotspare.runners.spark.span import SpanInput, SpanServer, readers_max

CORES_MAX = 4
START_TIMEOUT_S = 60.0
BATCH_END_WAIT_S = 5.0
DEATH_WAIT_S = 0.5
"""How long the runner waits for the JVM's death after a query failed: a JVM that is being killed breaks its connections first."""


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
        spark: SparkOptions | None = None,
        on_slots: OnSlots = lambda slots, wanted: None,
    ) -> None:
        """`begin`: creates the Spark session, which `stop` ends; not used with a master. `options`: those of the session; None
        chooses them for this machine. `on_slots`: called while slots of a master are awaited. Raises UsageError if the master's
        tasks cannot reach the bus."""
        self._source = source
        self._spark, self._on_slots = spark or SparkOptions(), on_slots
        self._begin = begin
        self._on_batch = on_batch
        self._on_end = on_end
        self.notice = ""
        """Advice for the log: the missing file that would make this runner faster; "" if none is missing."""
        self._options = options or self._default_options()
        self._master = parse_master(self._spark.master) if self._spark.master else None
        if self._master is not None:
            check_reachable("bus", source.bus_url, self._master)
        self._session: Session | None = None
        self._cluster: SparkCluster | None = None
        self._spans: SpanServer | None = None
        self._query: StreamingQuery | None = None
        self._lock = threading.Lock()
        self._end: RunnerEnd | None = None
        self._ended = threading.Event()
        self._decoding = decoding_size()
        self._stopping = threading.Event()

    def _default_options(self) -> SessionOptions:
        cores = min(CORES_MAX, os.cpu_count() or 1)
        jar, self.notice = available(BARE_FILE_SYSTEM)
        archive = existing_archive(cache_folder(), jar)
        if archive is None and not self.notice:
            self.notice = f"no archive of spark's classes in {cache_folder()}; {HINT}"
        conf, given = ui_conf(self._spark.ui_port), self._spark.conf
        return SessionOptions(cores, jar, archive=archive, conf=conf, given=given)

    def start(self, start_offsets: Positions) -> None:
        positions = self._checked_positions(start_offsets)
        session = self._session = self._new_session()
        _watch(self._watch_jvm, "watch-jvm")
        try:
            spans = self._spans = self._span_server(positions)
            self._query = self._start_query(session, spans)
        except Exception as error:
            reason = error if isinstance(error, HotspareError) else query_error(str(error))
            self._stopping.set()
            self._end_session()
            raise reason from error
        _watch(self._watch_query, "watch-query")
        self._await_reader(session, spans)

    def _new_session(self) -> Session:
        if self._master is None:
            return self._begin(self._options)
        source, spark = self._source, self._spark
        wanted = readers_max(source.topics, source.shards)
        conf = {**ui_conf(spark.ui_port), **spark.conf}
        self._cluster = SparkCluster(SparkClusterOptions(self._master, "hotspare", wanted, conf))
        try:
            self._cluster.await_slots(self._on_slots)
        except BaseException:
            self._cluster.stop()
            raise
        return self._cluster.session

    def _span_server(self, positions: Positions) -> SpanServer:
        cluster, cores = self._cluster, self._options.cores
        host, slots = (LOOPBACK, lambda: cores) if cluster is None else (cluster.host, cluster.slots)
        return SpanServer(self._source, positions, host, slots, self._on_span_batch, self._on_reader_error)

    @property
    def session(self) -> Session:
        """The running session. Raises RunnerError before `start`."""
        if self._session is None:
            raise RunnerError("the runner was not started")
        return self._session

    @property
    def ui_url(self) -> str:
        """The URL of Spark's user interface; "" without one."""
        return str(self.session.spark.sparkContext.uiWebUrl or "")

    def _await_reader(self, session: Session, spans: SpanServer) -> None:
        """Waits until a task reads. The query's first batches are empty and slow: they load and compile the code that every batch
        needs. Then ends the processes that planned the query. Raises RunnerError, or the runner's error, if no task reads within
        START_TIMEOUT_S."""
        if spans.has_reader.wait(START_TIMEOUT_S) and self._end is None:
            session.end_planners()
            return
        end = self._end
        self.stop()
        if end is not None and end.error is not None:
            raise end.error
        raise RunnerError(f"spark started no reader within {START_TIMEOUT_S:.0f} s")

    def _checked_positions(self, start_offsets: Positions) -> dict[tuple[int, int], int]:
        """Returns the complete positions. Raises PositionLost unless the topics hold them."""
        bus = open_bus(self._source.bus_url)
        try:
            positions = complete_positions(bus, self._source.topics, start_offsets)
            check_positions(bus, self._source.topics, positions)
            return positions
        finally:
            bus.close()

    def _start_query(self, session: Session, spans: SpanServer) -> StreamingQuery:
        source = self._source
        head = cloudpickle.dumps(source.head) if source.head_place is HeadPlace.WORKERS else None
        given = SpanInput(source.bus_url, source.topics, source.limits, source.shards, head, spans.address)
        session.spark.dataSource.register(bus_source(given))
        rows = session.spark.readStream.format(SOURCE_NAME).load()
        checkpoint = session.scratch / "checkpoint"
        return rows.writeStream.format("noop").queryName("input").option("checkpointLocation", str(checkpoint)).start()

    def _on_span_batch(self, batches: list[pa.RecordBatch]) -> bool:
        """Delivers the batches of one read to `on_batch`; returns False to end reading. Failures are reported as the runner's
        end."""
        if not self._is_over():
            with self._failures_reported():
                self._hand_over(batches)
        return not self._is_over()

    def _on_reader_error(self, error: HotspareError) -> None:
        self._report(RunnerEnd(EndCause.FAILED, error))

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

    def _watch_jvm(self) -> None:
        if self._session is not None:
            self._report(RunnerEnd(EndCause.PROCESS_DIED, self._session.wait_for_death()))

    def _watch_query(self) -> None:
        if (query := self._query) is None or (session := self._session) is None:
            return
        failure = _end_of(query)
        if session.dies_within(DEATH_WAIT_S if failure else 0.0):
            return  # the other watcher reports a dead JVM
        self._report(RunnerEnd(EndCause.FAILED, query_error(failure)))

    def _report(self, end: RunnerEnd) -> None:
        with self._lock:
            if self._end is not None:
                return
            self._end = RunnerEnd(EndCause.STOPPED) if self._stopping.is_set() else end
            end = self._end
        self._ended.set()
        self._source.pace.wake()
        if self._spans is not None:
            self._spans.has_reader.set()
        self._on_end(end)

    def wait(self, timeout_s: float | None = None) -> RunnerEnd | None:
        self._ended.wait(timeout_s)
        return self._end

    def stop(self) -> None:
        self._stopping.set()
        self._source.pace.wake()
        if self._session is None:
            return
        self._end_session()
        self._report(RunnerEnd(EndCause.STOPPED))

    def _end_session(self) -> None:
        """Ends the readers, the query and the session, in this order."""
        is_running = self._query is not None and self.session.jvm_is_alive() and _is_active(self._query)
        if self._spans is not None:
            self._spans.close(BATCH_END_WAIT_S if is_running else 0.0)
        if self._query is not None and self.session.jvm_is_alive():
            with suppress(Exception):  # the JVM ends below, whatever Spark raises
                self._query.stop()
        if self._cluster is not None:
            self._cluster.stop()
        else:
            self.session.stop()


def _is_active(query: StreamingQuery) -> bool:
    """Whether the query runs; False if the JVM is dying."""
    try:
        return bool(query.isActive)
    except Exception:
        return False


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
