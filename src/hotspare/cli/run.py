"""`hotspare run`: one engine of a group, until it is asked to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import (
    CreateTime,
    HeadPlace,
    JoinFrom,
    KafkaReaderKind,
    LogFormat,
    LogLevel,
    OnDivergence,
    OnPoison,
    OtherStore,
    RunnerKind,
    SpareKind,
    StartWhen,
)
from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PREFIX, BusOption, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.snapshots import SnapshotsOption, snapshot_settings
from hotspare.cli.shared.values import (
    HomeOption,
    MemoryOption,
    PageFolderOption,
    ProjectNameOption,
    SetOption,
    ShardsOption,
    bindings,
    memory_bytes,
    properties,
    refuse_idle,
    settings_of_spark,
)

if TYPE_CHECKING:
    from hotspare.host.options import EngineOptions
    from hotspare.telemetry.log import Level

AddressOption = Annotated[
    str,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Where the group's other engines reach this one; by default this machine's address towards coordination and bus.",
    ),
]
ListenOption = Annotated[str, typer.Option(metavar="HOST[:PORT]", help="What to listen on for them, where it is not --address.")]

HeadOption = Annotated[HeadPlace, typer.Option(help="Where events are decoded: the engine's process, or Spark's Python workers.")]
KafkaReaderOption = Annotated[
    KafkaReaderKind,
    typer.Option(help="How Spark reads Kafka: by a task that follows the topics, or by its own source, in micro-batches."),
]
CreateTimeOption = Annotated[
    CreateTime, typer.Option(help="What to do with inbound topics whose publishers set the times (Kafka's CreateTime).")
]
SkewOption = Annotated[
    int, typer.Option(help="How far a message's time is believed without proof (docs/failover.md); all engines say the same.")
]
StallOption = Annotated[
    int, typer.Option(help="How long Spark may not bring input that is known to be there, before the engine ends; 0: for ever.")
]
BusRetentionOption = Annotated[
    int, typer.Option(help="How long an embedded bus keeps messages that nobody needs any more, in ms; 0 keeps them for ever.")
]
OtherStoreOption = Annotated[OtherStore, typer.Option(help="When the group's snapshots are in another store than this one.")]
PoisonOption = Annotated[
    OnPoison | None,
    typer.Option(help="When the engine fails on an event, again and from the same state; of the whole group. [default: bad-event]"),
]
RunnerOption = Annotated[
    RunnerKind,
    typer.Option(help="What moves the batches; local does without Spark, partitioned runs the engines of shards as Spark's tasks."),
]
MasterOption = Annotated[
    str,
    typer.Option(
        metavar="URL", help="For --runner partitioned: local[N], local-cluster[N,CORES,MB], spark://host:port, yarn, k8s://..."
    ),
]
TasksOption = Annotated[
    int, typer.Option(min=0, help="For --runner partitioned: tasks at most; 0: one for each slot, but not more than shards.")
]
ConfOption = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="For --runner partitioned: a setting of Spark.")
]
TaskLeaseOption = Annotated[
    int, typer.Option(min=2_000, help="For --runner partitioned: how long a task and its driver may not hear of each other.")
]
RebalanceOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="For --runner partitioned: how long an application is complete before it takes its share of active roles; 0: never.",
    ),
]
RestoreOption = Annotated[
    str,
    typer.Option(metavar="PATH-OR-URL[#SNAPSHOT]", help="Start from a snapshot persisted there; by default as the project says."),
]
SpareOption = Annotated[
    SpareKind, typer.Option(help="What it is while another one publishes: a cold one has no state, and joins when nobody does.")
]
JoinOption = Annotated[
    JoinFrom,
    typer.Option(help="What it makes its state from: a snapshot, or recent input alone, where all state is bounded by time."),
]
SnapshotIntervalOption = Annotated[
    int, typer.Option(help="Time between snapshots, where --snapshots does not say when; 0 takes none.")
]
BindOption = Annotated[
    list[str] | None, typer.Option("--bind", metavar="CONNECTOR:NAME=VALUE", help="Override a connector's property.")
]


def command(
    project: Annotated[Path, typer.Argument(help="Project file, YAML or ESP XML.", parser=absolute_path)],
    bus: BusOption,
    prefix: PrefixOption = PREFIX,
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    engine: Annotated[str, typer.Option(help="Name of this engine in its group; by default host and process id.")] = "",
    address: AddressOption = "",
    listen: ListenOption = "",
    runner: RunnerOption = RunnerKind.ORDERED,
    master: MasterOption = "",
    tasks: TasksOption = 0,
    conf: ConfOption = None,
    task_lease_ms: TaskLeaseOption = 10_000,
    rebalance_after_ms: RebalanceOption = 60_000,
    head: HeadOption = HeadPlace.DRIVER,
    kafka_reader: KafkaReaderOption = KafkaReaderKind.SPAN,
    create_time: CreateTimeOption = CreateTime.REFUSE,
    lease_ms: Annotated[int, typer.Option(help="How long the active engine may show no progress.")] = 1000,
    snapshot_interval_ms: SnapshotIntervalOption = 5000,
    snapshots: SnapshotsOption = None,
    restore: RestoreOption = "",
    start: Annotated[
        StartWhen, typer.Option(help="When it joins its group: asked waits for `hotspare start`.")
    ] = StartWhen.AT_ONCE,
    spare: SpareOption = SpareKind.HOT,
    join: JoinOption = JoinFrom.SNAPSHOT,
    pipeline_stall_ms: StallOption = 300_000,
    held_bytes_max: Annotated[int, typer.Option(help="Memory for held outputs; beyond it they go to disk.")] = 256 << 20,
    skew_max_ms: SkewOption = 5000,
    bus_retention_ms: BusRetentionOption = 0,
    messages_max: Annotated[int, typer.Option(min=1, help="Most messages in one batch.")] = 20_000,
    on_divergence: Annotated[OnDivergence, typer.Option(help="When this engine's outputs alone differ.")] = OnDivergence.STOP,
    other_store: OtherStoreOption = OtherStore.REFUSE,
    on_poison: PoisonOption = None,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    shards: ShardsOption = 1,
    memory: MemoryOption = "",
    page_folder: PageFolderOption = None,
    bind: BindOption = None,
    home: HomeOption = None,
    log_format: Annotated[LogFormat, typer.Option(help="Form of the log on standard error.")] = LogFormat.HUMAN,
    log_level: Annotated[LogLevel, typer.Option(help="Least level of the lines of the log (docs/log.md).")] = LogLevel.INFO,
) -> None:
    """Run one engine. Start the same command again for a hot spare; the first one becomes active."""
    from hotspare.host.options import BatchLimits, EngineOptions, GroupSettings, default_engine_name
    from hotspare.host.restoring import snapshot_url

    settings = GroupSettings(skew_max_ms=skew_max_ms, on_divergence=on_divergence, on_poison=on_poison, other_store=other_store)
    settings = replace(settings, held_bytes_max=held_bytes_max, bus_retention_ms=bus_retention_ms, lease_ms=lease_ms)
    settings = replace(settings, snapshot_interval_ms=snapshot_interval_ms, pipeline_stall_ms=pipeline_stall_ms)
    settings = replace(settings, **snapshot_settings(snapshots or ()))
    options = EngineOptions(project, bus, prefix, coordination, store, engine or default_engine_name(), address, listen, runner)
    options = replace(options, head_place=head, kafka_reader=kafka_reader, create_time=create_time, settings=settings, join=join)
    options = replace(options, project_name=project_name, shards=shards, home=home, limits=BatchLimits(messages_max=messages_max))
    options = replace(options, properties=properties(set_ or ()), bindings=bindings(bind or ()), restore=snapshot_url(restore))
    options = replace(options, memory_bytes=memory_bytes(memory, page_folder), page_folder=page_folder, start=start, spare=spare)
    _start(options, (log_format, log_level), _Spark(master, tasks, conf or (), task_lease_ms, rebalance_after_ms))


@dataclass(frozen=True)
class _Spark:
    """What was said of the application that `--runner partitioned` starts."""

    master: str
    tasks: int
    conf: Sequence[str]
    task_lease_ms: int
    rebalance_after_ms: int


def _start(options: EngineOptions, log: tuple[LogFormat, LogLevel], spark: _Spark) -> None:
    from hotspare.host.process import run_engine
    from hotspare.telemetry.log import Level, configure_logging

    log_format, level = log[0], Level[log[1].name]
    configure_logging(log_format, level)
    if options.runner is RunnerKind.PARTITIONED:
        raise typer.Exit(_run_application(options, log_format, level, spark))
    idle = {"--master": spark.master, "--tasks": spark.tasks, "--conf": spark.conf}
    refuse_idle(idle, "without --runner partitioned", "add --runner partitioned, or leave them out")
    if options.runner is RunnerKind.LOCAL:
        of_spark = {
            "--head": options.head_place is HeadPlace.WORKERS,
            "--kafka-reader": options.kafka_reader is KafkaReaderKind.SOURCE,
        }
        refuse_idle(of_spark, "with --runner local", "leave it out, or say --runner ordered")
    raise typer.Exit(run_engine(options))


def _run_application(options: EngineOptions, log_format: LogFormat, level: Level, spark: _Spark) -> int:
    from hotspare.base.errors import UsageError
    from hotspare.host.partitioned.application import ApplicationOptions, run_application

    if not spark.master:
        raise UsageError("--runner partitioned needs a master of Spark", hint="give --master local[2], or spark://host:7077")
    if options.join is JoinFrom.RECENT:
        raise UsageError("--runner partitioned does not go with --join recent", hint="use --runner ordered or local")
    conf, times = settings_of_spark(spark.conf), (spark.task_lease_ms, spark.rebalance_after_ms)
    return run_application(options, ApplicationOptions(spark.master, spark.tasks, conf, *times, log_format, level))
