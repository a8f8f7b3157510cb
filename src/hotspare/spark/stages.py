"""How far Spark's running stages are, for who waits for a job: a session of ours has no terminal for Spark's own bar."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

OnStages = Callable[[int, int, str], None]
"""Told how many tasks of the running stages are done, of how many, and what these stages are called."""

LOOKS_CONF = {"spark.ui.liveUpdate.period": "100ms"}
"""Without it Spark knows of tasks when their stage ends."""
_LOOK_S = 0.25


@contextmanager
def told_of_stages(spark: SparkSession, told: OnStages) -> Iterator[None]:
    """While the block runs, and once behind it."""
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
        with contextlib.suppress(Exception):  # a session that ends meanwhile answers with anything, and says so to who waits
            stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
            if stages:
                names = ", ".join(f"stage {stage.stageId}" for stage in stages)
                told(sum(s.numCompletedTasks for s in stages), sum(s.numTasks for s in stages), names)
