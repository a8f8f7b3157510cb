"""Runs a function over Arrow batches as a step of Spark's plan, and chooses the Python that runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import _create_udf
from pyspark.util import PythonEvalType

from hotspare.runners.spark.settings import PYTHON_SETTING

OnBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""The function that a task applies to the batches of its partition."""


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
