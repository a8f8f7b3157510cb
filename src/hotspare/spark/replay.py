"""Implements `hotspare replay --runner partitioned`: runs `apply` over Parquet files in a Spark session of its own, and writes the
outputs to folders.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from hotspare.base.choices import RunUntil
from hotspare.base.errors import RunnerError, UsageError
from hotspare.host.project import checked_project
from hotspare.model.partitioning import obstacles, partition_fields
from hotspare.model.resolved import Resolved
from hotspare.model.time_fields import time_fields
from hotspare.rows.batch import BAD_STREAM
from hotspare.runners.spark.session import Session, SessionOptions
from hotspare.spark.in_task import OnBadEvents
from hotspare.spark.tables import apply

OnStages = Callable[[int, int, str], None]
"""A callback for progress. Arguments: the number of finished tasks of the running stages, the number of all their tasks, the names
of the stages.
"""
_DETAIL_LENGTH_MAX = 2_000
_LOOK_S = 0.25

_CONF = {
    # Rows are shuffled and sorted here; the session's settings are for micro-batches of few rows.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "200",
    # Without it Spark knows of tasks when their stage ends.
    "spark.ui.liveUpdate.period": "100ms",
}


@dataclass(frozen=True, slots=True)
class TablesRequest:
    """A request to replay tables. `inputs`: Parquet files or folders, by source window. `outputs`: the folder to write, by window.
    `bad`: the folder for bad events, "" to fail on the first one.

    `times`: the field that orders the rows, by source window. `master` and `conf`: as in Spark. `properties`, `home`, `name`: as
    for `loaded_project`.
    """

    project: Path
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    times: Mapping[str, str]
    bad: str = ""
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)
    home: Path | None = None
    name: str = ""
    until: RunUntil = RunUntil.END


@dataclass(frozen=True, slots=True)
class TablesReplayed:
    """The result of a replay. `rows`: the number of written rows, by window. `undivided`: why one task ran over all rows, "" if
    several did.
    """

    rows: Mapping[str, int]
    undivided: str = ""


def _ignore_progress(_done: int, _total: int, _stages: str) -> None:
    """Ignores the progress; the default callback."""


def replay_tables(request: TablesRequest, told: OnStages = _ignore_progress) -> TablesReplayed:
    """Runs the project over the inputs and writes all outputs. `told` is called with Spark's progress.

    Raises UsageError or ProjectError if the request or the project is invalid. Raises RunnerError, with window and row, if a window
    refuses an event and bad events are not written.
    """
    loaded = checked_project(request.project, request.properties, request.home, request.name)
    request = replace(request, times={str(s): f for s, f in time_fields(loaded.resolved).fields.items()} | dict(request.times))
    _check(request, loaded.resolved)
    fields, undivided = _division(loaded.resolved, request.inputs)
    session = Session(SessionOptions(os.cpu_count() or 1, conf=_CONF | {"spark.master": request.master}, given=request.conf))
    try:
        tables = {window: _read(session.spark, window, place) for window, place in request.inputs.items()}
        keeps = OnBadEvents.KEEP if request.bad else OnBadEvents.FAIL
        found = apply(
            loaded,
            tables,
            order_by=request.times,
            partition_by=fields,
            outputs=list(request.outputs),
            bad_events=keeps,
            until=request.until,
        )
        places = {**request.outputs, **({BAD_STREAM: request.bad} if request.bad else {})}
        with _reporting_stages(session.spark, told):
            rows = {name: _written(session.spark, found[name], place) for name, place in places.items()}
        return TablesReplayed(rows, undivided)
    except PySparkException as error:
        raise RunnerError("the project could not be run over the tables", detail=str(error)[:_DETAIL_LENGTH_MAX]) from error
    finally:
        session.stop()


def _check(request: TablesRequest, resolved: Resolved) -> None:
    if not request.inputs or not (request.outputs or request.bad):
        what = "replay --runner partitioned needs input tables and output folders"
        raise UsageError(what, hint="write --in CQ/WINDOW=FILES.parquet --out CQ/WINDOW=FOLDER")
    for window in request.inputs:
        if window not in request.times:
            raise UsageError(f"no field orders the rows of {window}", hint=f"name one: --time {window}=FIELD")
    for window in request.times:
        if window not in map(str, resolved.sources):
            raise UsageError(f"--time: the project has no source window {window}")
    for place in filter(None, (*request.outputs.values(), request.bad)):
        if Path(place).exists():
            raise UsageError(f"{place} exists already", hint="name folders that do not exist yet")


def _division(resolved: Resolved, inputs: Mapping[str, str]) -> tuple[dict[str, str] | None, str]:
    """Returns the field by which each source window's rows are divided, and "". If the project cannot be divided, returns None and
    the reason.
    """
    fields = partition_fields(resolved)
    found = obstacles(resolved, fields)
    if found:
        return None, f"{found[0].window}: {found[0].sentence}"
    return {window: fields[source] for source in resolved.sources if (window := str(source)) in inputs}, ""


@contextmanager
def _reporting_stages(spark: SparkSession, told: OnStages) -> Iterator[None]:
    """Calls `told` with the progress of Spark's running stages while the block runs. Spark's own progress bar needs a terminal,
    which this session does not have.
    """
    done = threading.Event()
    looking = threading.Thread(target=_look, args=(spark, told, done), name="stages", daemon=True)
    looking.start()
    try:
        yield
    finally:
        done.set()
        looking.join()


def _look(spark: SparkSession, told: OnStages, done: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not done.wait(_LOOK_S):
        with contextlib.suppress(Exception):  # a session that ends meanwhile may raise any error, and reports its end elsewhere
            stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
            if stages:
                names = ", ".join(f"stage {stage.stageId}" for stage in stages)
                told(sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages), names)


def _read(spark: SparkSession, window: str, place: str) -> DataFrame:
    try:
        return spark.read.parquet(_literal(place))
    except AnalysisException as error:
        why = str(error)[:_DETAIL_LENGTH_MAX]
        raise UsageError(f"{place} cannot be read as the table of {window}", detail=why, hint="name Parquet files") from error


def _written(spark: SparkSession, table: DataFrame, place: str) -> int:
    """Writes a table as Parquet to `place`. Returns its number of rows."""
    table.write.parquet(place)
    return int(spark.read.parquet(_literal(place)).count())


def _literal(place: str) -> str:
    """Returns the path of an existing file, escaped because Spark reads paths as patterns. Any other text is returned unchanged."""
    return re.sub(r"[\\\[\]{}*?]", r"\\\g<0>", place) if Path(place).exists() else place
