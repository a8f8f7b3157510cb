"""Returns the rows of a window in a snapshot as a table of Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from hotspare.base.places import absolute_path, absolute_url
from hotspare.flow.plan import compile_plan
from hotspare.flow.snapshot_content import ROWS
from hotspare.host.project import checked_project
from hotspare.operate.snapshots import RowSelection, load_snapshot, plan_of, select_rows
from hotspare.stores.open import open_existing_store


def state(
    spark: SparkSession,
    group: str,
    window: str,
    *,
    store: str,
    snapshot: str = "newest",
    project: str | Path | None = None,
    part: str = ROWS,
    where: str = "",
) -> DataFrame:
    """Returns the rows of `window` (QUERY/WINDOW) in a snapshot, with a column per field; or of the `part` of its state. `hotspare
    state show` lists the parts.

    `store`: a URL. `snapshot`: as for `hotspare state`. `project`: the project's file, not needed for a persisted snapshot, which
    contains it. `where`: a condition in Spark SQL, evaluated on the driver. All rows pass through the driver's memory. Raises
    UsageError if the group, snapshot, window or part does not exist.
    """
    opened = open_existing_store(absolute_url(store))
    try:
        looked = load_snapshot(opened, group, snapshot)
    finally:
        opened.close()
    plan = plan_of(looked, None) if project is None else compile_plan(checked_project(absolute_path(project), {}).resolved)
    _, table = select_rows(plan, looked, RowSelection(window, part, where))
    return spark.createDataFrame(table)
