"""Spark's own limits for tasks that last, each with the reason for its value.

Spark means tasks to end: it counts what fails, shuns where it failed, starts what is slow once more, and gives up in the end. Here
every task lasts until the application is stopped, executors come and go for a year, and what is lost is only ever replaced. What
depends on the master or on this machine is in cluster.py.
"""

from __future__ import annotations

from dataclasses import dataclass

TASK_FAILURES_MAX = 1_000_000
"""Of one job: about one in half a minute, for a year."""


@dataclass(frozen=True, slots=True)
class SparkLimit:
    """A setting of Spark. `reason` says what its default would do to an application that never ends."""

    setting: str
    value: str
    reason: str


LIMITS: tuple[SparkLimit, ...] = (
    SparkLimit(
        "spark.task.maxFailures",
        str(TASK_FAILURES_MAX),
        "counts over the whole life of a job: with 4, the fourth executor that a task loses would end it, a year apart or not",
    ),
    SparkLimit(
        "spark.stage.maxConsecutiveAttempts",
        "1000000",
        "the same for a stage; ours fetch nothing from each other, so it never comes to that, but 4 would end the job",
    ),
    SparkLimit(
        "spark.executor.maxNumFailures",
        "1000000",
        "YARN and Kubernetes: twice the number of executors lost would end the application",
    ),
    SparkLimit(
        "spark.executor.failuresValidityInterval",
        "1h",
        "YARN and Kubernetes: losses of long ago do not count for the limit above",
    ),
    SparkLimit(
        "spark.deploy.maxExecutorRetries",
        "-1",
        "local-cluster: the master gives an application up after ten executors that ended while none ran; "
        "the master of a standalone cluster reads it from its own settings, so it has to be set there, too",
    ),
    SparkLimit(
        "spark.excludeOnFailure.enabled",
        "false",
        "a task that was killed would be kept from its executor, and wait without end where that has the only free slot",
    ),
    SparkLimit(
        "spark.speculation",
        "false",
        "a task that lasts is no slow task: a second copy of it would be an engine too many",
    ),
    SparkLimit(
        "spark.dynamicAllocation.enabled",
        "false",
        "the number of tasks is chosen by the slots that are there at the start, and every slot is busy for ever",
    ),
    SparkLimit(
        "spark.decommission.enabled",
        "false",
        "an executor that is taken away would wait for its tasks, which do not end, and Spark would start no others meanwhile",
    ),
    SparkLimit(
        "spark.python.worker.reuse",
        "false",
        "every attempt is an engine: it gets a process of its own, with nothing left in it of the one before",
    ),
    SparkLimit(
        "spark.python.task.killTimeout",
        "1s",
        "a task that was abandoned does not listen: its process is killed after so long",
    ),
    SparkLimit(
        "spark.task.reaper.enabled",
        "true",
        "a task that was abandoned and does not end takes its executor along, so that the slot comes back",
    ),
    SparkLimit("spark.task.reaper.killTimeout", "20s", "how long such a task is waited for; the default is for ever"),
    SparkLimit("spark.task.reaper.pollingInterval", "1s", "how often it is looked at; the default of 10 s would come too late"),
    SparkLimit(
        "spark.executor.heartbeatInterval",
        "2s",
        "an executor that is frozen or cut off is noticed by missing heartbeats, which have to be more frequent than the time-outs",
    ),
    SparkLimit(
        "spark.executor.heartbeat.maxFailures",
        "30",
        "an executor whose driver is gone ends itself after so many heartbeats in vain: a minute, long after its tasks did",
    ),
    SparkLimit(
        "spark.network.timeout",
        "20s",
        "until an executor that says nothing is lost, its tasks are not started elsewhere; the default is 120 s",
    ),
    SparkLimit(
        "spark.storage.blockManagerHeartbeatTimeoutMs",
        "20s",
        "the same clock where it is about the executor's blocks, which by default is another one",
    ),
    SparkLimit("spark.network.timeoutInterval", "2s", "how often the driver looks for lost executors; the default is 60 s"),
    SparkLimit(
        "spark.locality.wait",
        "0s",
        "no data is nearer to one executor than to another: a task does not wait for a better place",
    ),
    SparkLimit("spark.task.cpus", "1", "a slot is a core; the number of tasks is reckoned so"),
    SparkLimit(
        "spark.scheduler.mode",
        "FIFO",
        "every task is a job of its own, so that one can be abandoned alone; none is to wait for another's share",
    ),
    SparkLimit(
        "spark.executor.logs.rolling.strategy",
        "size",
        "an executor's standard error, to which engines write, would grow for a year",
    ),
    SparkLimit("spark.executor.logs.rolling.maxSize", "16777216", "bytes of one file of it; the default is 1 MiB of 1,024 files"),
    SparkLimit("spark.executor.logs.rolling.maxRetainedFiles", "4", "how many such files are kept; by default none is removed"),
    SparkLimit(
        "spark.ui.liveUpdate.period",
        "100ms",
        "from its status store the driver learns which executor runs a task, also where the user interface is off",
    ),
)


def limits_conf() -> dict[str, str]:
    """As settings of a session."""
    return {limit.setting: limit.value for limit in LIMITS}
