"""The settings of Spark sessions and their JVM, each with its reason.

Figures are from docs/spark.md: milliseconds of one micro-batch at 1,000 events/s with the setting, and without it. Settings that
depend on the master or on this machine are in partitioned/cluster.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PYTHON_SETTING = "spark.pyspark.python"
IVY = "ivy"
"""The subfolder of the scratch folder in which Spark's resolver stores fetched files."""

TASK_FAILURES_MAX = 1_000_000
"""Limit on the failures of one job: enough for one failure every half minute for a year."""

MODULE_OPTIONS = (
    # The options of Spark's own launcher (org.apache.spark.launcher.JavaModuleOptions, 4.2.0).
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


def jvm_options(heap_mib: int, archive: Path | None, archive_to_write: Path | None) -> list[str]:
    options = [
        *MODULE_OPTIONS,
        f"-Xmx{heap_mib}m",
        # A long error text overflows the stack of the JVM's regular expressions.
        "-Xss8m",
        # One small heap: parallel collectors only add threads that fight for the same cores.
        "-XX:+UseSerialGC",
        # Only the quick compiler. The other one spends 5 s of CPU in the first minute, while batches wait for the core; its
        # gain is per row, and the JVM never sees a row: frames pass through it unread.
        "-XX:TieredStopAtLevel=1",
        "-Djava.awt.headless=true",
    ]
    if archive is not None:
        # Classes are loaded parsed and verified from a file that all JVMs of the machine share.
        options.append(f"-XX:SharedArchiveFile={archive}")
    if archive_to_write is not None:
        options.append(f"-XX:ArchiveClassesAtExit={archive_to_write}")
    return options


def session_conf(scratch: Path, cores: int, bare_file_system: Path | None) -> dict[str, str]:
    """Returns the settings of a session. `cores`: the number of task slots. `scratch`: a folder that is deleted when the session
    ends. `bare_file_system`: the path of that jar; None without it."""
    conf = {
        # Without the second number the first lost Python process would end the query.
        "spark.master": f"local[{cores},{TASK_FAILURES_MAX}]",
        "spark.app.name": "hotspare",
        "spark.submit.deployMode": "client",
        # Nothing listens beyond this machine.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Nothing is left in the working folder.
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.jars.ivy": str(scratch / IVY),
        "spark.sql.catalogImplementation": "in-memory",
        # Python processes are forked from a daemon and used again for later tasks.
        "spark.python.use.daemon": "true",
        # JVM and Python talk over a file, not over TCP, whose delayed acknowledgement costs 40 ms if a batch is small.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(scratch / "sockets"),
        # Every batch is planned again and runs for milliseconds: planning in steps, generated code for one scan, and batches
        # without data cost more than they save.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # The reader itself waits for data, so Spark asks it again at once.
        "spark.sql.streaming.pollingDelay": "1ms",
        # Spark's checkpoint is scratch: no checksums, no sidecar files, no second process for each file.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        # An engine runs for months: Spark's records and logs about past batches stay small.
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.ui.liveUpdate.period": "-1ms",
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.retainedJobs": "50",
        "spark.ui.retainedStages": "50",
        "spark.ui.retainedTasks": "200",
        "spark.sql.ui.retainedExecutions": "50",
        "spark.log.level": "ERROR",
    }
    if bare_file_system is not None:
        # Without it every checkpoint file starts a `chmod` process, 15 ms each. Only for the default checkpoint manager below.
        conf |= {
            "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
    return conf


def ui_conf(port: int) -> dict[str, str]:
    """Returns the settings of Spark's user interface at `port` of the driver's address; none for port 0."""
    return {"spark.ui.enabled": "true", "spark.ui.port": str(port), "spark.ui.liveUpdate.period": "1s"} if port else {}


@dataclass(frozen=True, slots=True)
class SparkLimit:
    """A setting of Spark for long-lived tasks. `reason`: the harm that the default would do to an application that never ends."""

    setting: str
    value: str
    reason: str


LIMITS: tuple[SparkLimit, ...] = (
    SparkLimit(
        "spark.task.maxFailures",
        str(TASK_FAILURES_MAX),
        "counts over the whole life of a job: by default, the fourth executor that a task loses ends it, even a year later",
    ),
    SparkLimit(
        "spark.stage.maxConsecutiveAttempts",
        "1000000",
        "the same for a stage; ours fetch nothing from each other, so it should never apply, but 4 would end the job",
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
        "a killed task would be kept from its executor, and wait without end if that has the only free slot",
    ),
    SparkLimit(
        "spark.speculation",
        "false",
        "a long-lived task is not a slow task: a second copy of it would be a surplus engine",
    ),
    SparkLimit(
        "spark.dynamicAllocation.enabled",
        "false",
        "the number of tasks follows from the slots that exist at the start, and every slot stays busy",
    ),
    SparkLimit(
        "spark.decommission.enabled",
        "false",
        "an executor that is taken away would wait for its tasks, which do not end, and Spark would start no others meanwhile",
    ),
    SparkLimit(
        "spark.python.worker.reuse",
        "false",
        "every attempt is an engine: it needs a new process, without remains of the attempt before",
    ),
    SparkLimit(
        "spark.python.task.killTimeout",
        "1s",
        "an abandoned task does not react: its process is killed after this time",
    ),
    SparkLimit(
        "spark.task.reaper.enabled",
        "true",
        "an abandoned task that does not end is ended together with its executor, so that the slot is free again",
    ),
    SparkLimit("spark.task.reaper.killTimeout", "20s", "how long Spark waits for such a task; the default is forever"),
    SparkLimit("spark.task.reaper.pollingInterval", "1s", "how often Spark checks such a task; the default of 10 s is too long"),
    SparkLimit(
        "spark.executor.heartbeatInterval",
        "2s",
        "an executor that is frozen or cut off is noticed by missing heartbeats, which have to be more frequent than the time-outs",
    ),
    SparkLimit(
        "spark.executor.heartbeat.maxFailures",
        "30",
        "an executor whose driver has ended ends itself after this many failed heartbeats: a minute, long after its tasks ended",
    ),
    SparkLimit(
        "spark.network.timeout",
        "20s",
        "the tasks of a silent executor start elsewhere only when it counts as lost; the default is 120 s",
    ),
    SparkLimit(
        "spark.storage.blockManagerHeartbeatTimeoutMs",
        "20s",
        "the same time-out for the executor's blocks, which has a default of its own",
    ),
    SparkLimit("spark.network.timeoutInterval", "2s", "how often the driver looks for lost executors; the default is 60 s"),
    SparkLimit(
        "spark.locality.wait",
        "0s",
        "no data is nearer to one executor than to another: a task does not wait for a better place",
    ),
    SparkLimit("spark.task.cpus", "1", "a slot is a core; the number of tasks is computed from the slots"),
    SparkLimit(
        "spark.scheduler.mode",
        "FIFO",
        "every task is a job of its own, so that one can be abandoned alone; no job may wait for the share of another",
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
        "the driver reads in its status store which executor runs a task, even if the user interface is off",
    ),
)
"""The settings for tasks that run until the application is stopped. By default Spark would end them: it counts failures, avoids
executors, starts slow tasks twice and gives up."""


def limits_conf() -> dict[str, str]:
    """Returns LIMITS as a mapping from setting to value."""
    return {limit.setting: limit.value for limit in LIMITS}
