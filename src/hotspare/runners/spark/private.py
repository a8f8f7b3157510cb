"""The private interface of Spark, as far as hotspare uses it. A new version of Spark may change it without notice: each name has a
test in `tests/integration/spark/test_private.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import _create_udf
from pyspark.util import PythonEvalType

from hotspare.runners.spark.settings import PYTHON_SETTING

OnBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function that a task applies to the batches of its partition."""
_ATTEMPTS_MAX = 10_000
"""Limit on the attempts requested from Spark's status store: more than the store retains."""
_NOT_TRANSITIVE = (False, "")


def conf_of_gateway(gateway: Any) -> SparkConf:
    """Returns an empty configuration for a context in the JVM of `gateway`."""
    return SparkConf(loadDefaults=False, _jvm=gateway.jvm)


def silence_accumulators(context: SparkContext) -> None:
    """Prevents the server of accumulators from printing that the JVM closed its connection."""
    context._accumulatorServer.handle_error = lambda *_: None


def reset_globals() -> None:
    """Resets PySpark's global variables, so that a later session of this process can use another JVM."""
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def slots(context: SparkContext) -> int:
    """Returns the number of tasks that can currently run at a time."""
    scala = context._jsc.sc()
    return int(scala.maxNumConcurrentTasks(scala.resourceProfileManager().defaultResourceProfile()))


def replace_executor(context: SparkContext, executor: str) -> bool:
    """Makes Spark kill an executor and start another in its place; returns whether the master can."""
    return bool(context._jsc.sc().killAndReplaceExecutor(executor))


def attempts(context: SparkContext, stage: int) -> Iterator[Any]:
    """Yields the records of a stage's task attempts in Spark's status store, the newest first."""
    tasks = context._jsc.sc().statusStore().taskList(stage, 0, _ATTEMPTS_MAX)
    return (tasks.apply(index) for index in reversed(range(tasks.size())))


def fetch_jars(context: SparkContext, coordinates: Sequence[str], ivy: Path) -> None:
    """Fetches jars, without what they depend on, into the subfolder `jars` of `ivy`, in one call of Spark's resolver."""
    jvm = context._jvm
    resolve = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies
    resolve(*_NOT_TRANSITIVE, ",".join(coordinates), None, str(ivy), jvm.scala.Option.empty())


def run_this_python(spark: SparkSession) -> None:
    """Makes Python workers on this machine run the driver's interpreter, unless a setting names another interpreter. The `python3`
    on PATH, Spark's default, may lack hotspare."""
    context = spark.sparkContext
    is_named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains(PYTHON_SETTING)
    if not is_named and (context.master == "local" or context.master.startswith("local[")):
        context.pythonExec = sys.executable


def map_in_arrow(rows: DataFrame, function: OnBatches, schema: Any) -> DataFrame:
    """Returns the rows that `function` makes of the Arrow batches of `rows`. Replaces `DataFrame.mapInArrow`, which requires pandas
    without using it. `schema`: the schema of the result, as text or as Spark's type."""
    made = _create_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = made(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)  # noqa: FBT003 - Spark's own signature
