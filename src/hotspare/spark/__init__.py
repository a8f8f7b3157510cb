"""Runs projects over DataFrames: tables and topics.

    from hotspare.spark import apply

    alerts = apply("payments.yaml", {"cards/payments": payments}, order_by="at", partition_by="card")["cards/alerts"]

The caller supplies a Spark session. The machines that run its tasks need hotspare installed.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from hotspare.base.choices import RunUntil
from hotspare.runners.spark.private import run_this_python
from hotspare.spark.in_task import OnBadEvents
from hotspare.spark.output_stream import OutputTable
from hotspare.spark.publishing import publish
from hotspare.spark.snapshot_rows import state
from hotspare.spark.tables import apply

__all__ = ["OnBadEvents", "RunUntil", "apply", "publish", "register", "replay", "state"]


def register(spark: SparkSession) -> None:
    """Registers the format "hotspare" with a session, for its `read` and `readStream`."""
    run_this_python(spark)
    spark.dataSource.register(OutputTable)
