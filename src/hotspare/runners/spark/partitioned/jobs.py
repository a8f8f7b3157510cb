"""Runs long-lived tasks as Spark jobs of one task each, so that a task can be abandoned and started again without the others.

A job's thread waits for its end. The thread reports the task's result, or the reason for a missing result: the job was cancelled,
Spark gave it up, or the session ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark import InheritableThread, TaskContext

from hotspare.base.errors import RunnerError
from hotspare.runners.spark import private
from hotspare.runners.spark.partitioned.cluster import SparkCluster
from hotspare.runners.spark.partitioned.place import RunningAttempt, TaskPlace

_DETAIL_LENGTH_MAX = 500
_REPORT_WAIT_S = 2.0
_LOOK_S = 0.05
_RUNNING = "RUNNING"
_FAILED = ("FAILED", "KILLED")
"""The states, in Spark's status store, of a failed attempt, after which Spark starts another attempt."""


TaskFunction = Callable[[TaskPlace], Any]
"""The function that a task runs. The function and its result are pickled."""
OnJobEnd = Callable[[object, RunnerError | None], None]
"""Callback for the end of a job: called with (result of the task, None) or (None, error)."""


class TaskJobs:
    """The jobs of one application. Callable from any thread."""

    def __init__(self, cluster: SparkCluster) -> None:
        self._context = cluster.session.spark.sparkContext

    def start(self, name: str, description: str, work: TaskFunction, on_end: OnJobEnd) -> None:
        """Starts a job that runs `work` in a task. `description` is shown in Spark's user interface. `on_end` is called from the
        job's thread."""
        InheritableThread(target=self._run, args=(name, description, work, on_end), name=name, daemon=True).start()

    def _run(self, name: str, description: str, work: TaskFunction, on_end: OnJobEnd) -> None:
        try:
            self._context.setJobGroup(name, description, interruptOnCancel=True)
            (returned,) = self._context.parallelize([0], 1).mapPartitions(partial(_worked, work)).collect()
        except Exception as error:
            on_end(None, RunnerError(f"the job of {name} was aborted", detail=str(error)[:_DETAIL_LENGTH_MAX]))
            return
        on_end(returned, None)

    def cancel(self, name: str) -> None:
        """Cancels the job `name`, best effort. Spark kills the process of its task."""
        with suppress(Exception):
            self._context.cancelJobGroup(name)

    def end_executor(self, executor: str) -> None:
        """Makes Spark kill an executor and start another in its place, best effort."""
        with suppress(Exception):
            private.replace_executor(self._context, executor)

    def running(self, name: str) -> RunningAttempt | None:
        """Returns the running attempt of the job `name`; None if no attempt runs, or Spark does not answer."""
        with suppress(Exception):
            tracker = self._context.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(name)]
            for stage in (stage for job in jobs if job is not None for stage in job.stageIds):
                for task in private.attempts(self._context, stage):
                    if task.status() == _RUNNING:
                        return RunningAttempt(str(task.executorId()), int(time.time() * 1_000) - int(task.launchTime().getTime()))
        return None

    def is_over(self, place: TaskPlace) -> bool:
        """Whether Spark has recorded that this attempt failed, so that it starts the next attempt by itself. False if Spark does
        not answer."""
        with suppress(Exception):
            task = self._task(place)
            return task is not None and task.status() in _FAILED
        return False

    def executor_of(self, place: TaskPlace) -> str:
        """Returns the id of the executor that runs an attempt; "" if Spark has not recorded it within `_REPORT_WAIT_S`."""
        deadline_s = time.monotonic() + _REPORT_WAIT_S
        while not (found := self._executor_of(place)) and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
        return found

    def _executor_of(self, place: TaskPlace) -> str:
        with suppress(Exception):
            task = self._task(place)
            return "" if task is None else str(task.executorId())
        return ""

    def _task(self, place: TaskPlace) -> Any:
        """Returns the record of an attempt in Spark's status store; None if it is missing."""
        return next((task for task in private.attempts(self._context, place.stage) if task.taskId() == place.id), None)


def _worked(work: TaskFunction, _: Iterable[object]) -> Iterator[Any]:
    """Runs in the task: calls `work` with the task's place, and yields the result."""
    context = TaskContext.get()
    if context is None:
        raise RunnerError("this process is not a task of Spark")
    yield work(TaskPlace(context.attemptNumber(), context.stageId(), context.taskAttemptId()))
