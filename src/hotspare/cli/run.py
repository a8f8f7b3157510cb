"""`hotspare run`: runs one engine of a group until a stop is requested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import (
    CreateTime,
    EventPolicy,
    HeadPlace,
    JoinFrom,
    LogFormat,
    LogLevel,
    OnDivergence,
    OtherStore,
    Restart,
    RunnerKind,
    SpareKind,
    StartWhen,
)
from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PREFIX, BusOption, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.run_settings import SettingsOption, SnapshotsOption, settings_file_option, snapshot_settings
from hotspare.cli.shared.values import (
    CODE_DEADLINE_MS,
    PROJECT_PANEL,
    STATE_PANEL,
    HomeOption,
    MemoryOption,
    PageFolderOption,
    ProjectNameOption,
    SetOption,
    ShardsOption,
    parse_bindings,
    parse_code_memory,
    parse_memory_option,
    parse_properties,
    parse_spark_settings,
    refuse_ineffective,
)

if TYPE_CHECKING:
    from hotspare.host.options import EngineOptions
    from hotspare.telemetry.log import Level

_FAILOVER, _SPARK, _LOG = "Failover", "Spark", "Log"
"""The headings of options in the help. Options that every engine needs have no heading."""

EngineOption = Annotated[str, typer.Option(help="Name this engine in its group; by default by host and process id.")]
RunnerOption = Annotated[
    RunnerKind,
    typer.Option(
        help="Read input by Spark (ordered), by this process (local), or by Spark tasks that run shards' engines (partitioned)."
    ),
]
BindOption = Annotated[
    list[str] | None,
    typer.Option(
        "--bind",
        metavar="CONNECTOR:NAME=VALUE",
        help="Override a connector's property; may be repeated.",
        rich_help_panel=PROJECT_PANEL,
    ),
]
AddressOption = Annotated[
    str,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Announce this address, at which other engines reach this one; by default that of --listen, else this machine's "
        "address towards coordination or bus.",
        rich_help_panel=_FAILOVER,
    ),
]
ListenOption = Annotated[
    str,
    typer.Option(
        metavar="HOST[:PORT]", help="Listen for other engines at this address; by default at --address.", rich_help_panel=_FAILOVER
    ),
]
LeaseOption = Annotated[
    int,
    typer.Option(help="Let a spare take over after this many ms without progress of the active engine.", rich_help_panel=_FAILOVER),
]
StartOption = Annotated[
    StartWhen, typer.Option(help="Join the group at once, or when asked by `hotspare start`.", rich_help_panel=_FAILOVER)
]
SpareOption = Annotated[
    SpareKind,
    typer.Option(
        help="Keep a current state while another engine publishes (hot); or keep none, and join when no engine is active and no "
        "spare takes over (cold).",
        rich_help_panel=_FAILOVER,
    ),
]
JoinOption = Annotated[
    JoinFrom,
    typer.Option(
        help="Build the engine's state from a snapshot, or from recent input alone if all state is bounded by time.",
        rich_help_panel=_FAILOVER,
    ),
]
RestartOption = Annotated[
    Restart,
    typer.Option(
        help="Start the engine again after a crash, or after a call of user code that exceeds its limits; a small parent process "
        "does that. Or never: then no parent exists.",
        rich_help_panel=_FAILOVER,
    ),
]
HttpOption = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="Answer requests for health and metrics (docs/metrics.md) at this address, also while user code computes for ever; by "
        "default nowhere.",
        rich_help_panel=_FAILOVER,
    ),
]
CodeDeadlineOption = Annotated[
    int,
    typer.Option(
        metavar="MS",
        min=0,
        help="End the engine if one call of user code uses this many ms of processor time; 0: never.",
        rich_help_panel=_FAILOVER,
    ),
]
RestoreOption = Annotated[
    str,
    typer.Option(
        metavar="PATH-OR-URL[#SNAPSHOT]",
        help="Start from a snapshot that was persisted there; by default from the project's setting, if any.",
        rich_help_panel=STATE_PANEL,
    ),
]
OtherStoreOption = Annotated[
    OtherStore,
    typer.Option(
        help="Refuse to start, or accept it, if the group already uses a different snapshot store.", rich_help_panel=STATE_PANEL
    ),
]
MasterOption = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="Run tasks on the master local[N], local-cluster[N,CORES,MB], spark://host:port, yarn or k8s://...; by default here.",
        rich_help_panel=_SPARK,
    ),
]
TasksOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="With --runner partitioned: run at most this many tasks; 0: one per slot, but not more than shards.",
        rich_help_panel=_SPARK,
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="NAME=VALUE",
        help="Set this Spark option; may be repeated.",
        rich_help_panel=_SPARK,
    ),
]
UiOption = Annotated[
    int,
    typer.Option(
        "--spark-ui",
        metavar="PORT",
        min=0,
        max=65_535,
        help="With --runner ordered: serve Spark's user interface at this port of the driver's address; 0: none.",
        rich_help_panel=_SPARK,
    ),
]
HeadOption = Annotated[
    HeadPlace,
    typer.Option(help="Decode events in Spark's tasks (workers), or in the engine's process.", rich_help_panel=_SPARK),
]
LogFormatOption = Annotated[LogFormat, typer.Option(help="Write the log on standard error in this form.", rich_help_panel=_LOG)]
LogLevelOption = Annotated[LogLevel, typer.Option(help="Log lines of this level and above (docs/log.md).", rich_help_panel=_LOG)]

CreateTimeSetting = Annotated[
    CreateTime, settings_file_option("Refuse, or accept, inbound topics whose publishers set the times (Kafka's CreateTime).")
]
SkewSetting = Annotated[
    int,
    settings_file_option(
        "Accept a time this many ms after the newest of its partition without proof (docs/time.md); equal for all engines."
    ),
]
StallSetting = Annotated[
    int, settings_file_option("Exit if Spark delivers no input for this many ms although input is pending; 0: never.")
]
RetentionSetting = Annotated[
    int, settings_file_option("Keep messages that no reader needs any more for this many ms on an embedded bus; 0: for ever.")
]
HeldSetting = Annotated[int, settings_file_option("Hold at most this many bytes of outputs in memory, and write more to disk.")]
CodeMemorySetting = Annotated[
    str, settings_file_option("End the engine if it grows by this size, such as 2GiB, during one call of user code; 0: never.")
]
MessagesSetting = Annotated[int, settings_file_option("Process at most this many messages in one batch.", min=1)]
DivergenceSetting = Annotated[
    OnDivergence, settings_file_option("Stop, or continue as a spare of last resort, if only this engine's outputs differ.")
]
PoisonSetting = Annotated[
    EventPolicy | None,
    settings_file_option(
        "If the engine repeatedly fails on an event: make it a bad event, or stop; by default as the group does already."
    ),
]
HangSetting = Annotated[
    EventPolicy | None,
    settings_file_option(
        "If calls of user code for an event do not end: make it a bad event, or stop; by default as the group does already."
    ),
]
TaskLeaseSetting = Annotated[
    int, settings_file_option("With --runner partitioned: allow a task and its driver this many ms without contact.", min=2_000)
]
RebalanceSetting = Annotated[
    int,
    settings_file_option(
        "With --runner partitioned: move active roles to an application that is complete for this many ms; 0: never.", min=0
    ),
]


def command(
    project: Annotated[Path, typer.Argument(help="Read the project from this file, YAML or ESP XML.", parser=absolute_path)],
    bus: BusOption,
    prefix: PrefixOption = PREFIX,
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    engine: EngineOption = "",
    runner: RunnerOption = RunnerKind.ORDERED,
    shards: ShardsOption = 1,
    settings: SettingsOption = None,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    bind: BindOption = None,
    home: HomeOption = None,
    address: AddressOption = "",
    listen: ListenOption = "",
    lease_ms: LeaseOption = 1000,
    start: StartOption = StartWhen.AT_ONCE,
    spare: SpareOption = SpareKind.HOT,
    join: JoinOption = JoinFrom.SNAPSHOT,
    restart: RestartOption = Restart.ALWAYS,
    http: HttpOption = "",
    code_deadline_ms: CodeDeadlineOption = CODE_DEADLINE_MS,
    snapshots: SnapshotsOption = None,
    restore: RestoreOption = "",
    other_store: OtherStoreOption = OtherStore.REFUSE,
    memory: MemoryOption = "",
    page_folder: PageFolderOption = None,
    master: MasterOption = "",
    tasks: TasksOption = 0,
    conf: ConfOption = None,
    spark_ui: UiOption = 0,
    head: HeadOption = HeadPlace.WORKERS,
    log_format: LogFormatOption = LogFormat.HUMAN,
    log_level: LogLevelOption = LogLevel.INFO,
    create_time: CreateTimeSetting = CreateTime.REFUSE,
    skew_max_ms: SkewSetting = 5000,
    pipeline_stall_ms: StallSetting = 300_000,
    bus_retention_ms: RetentionSetting = 0,
    held_bytes_max: HeldSetting = 256 << 20,
    code_memory: CodeMemorySetting = "0",
    messages_max: MessagesSetting = 20_000,
    on_divergence: DivergenceSetting = OnDivergence.STOP,
    on_poison: PoisonSetting = None,
    on_hang: HangSetting = None,
    task_lease_ms: TaskLeaseSetting = 10_000,
    rebalance_after_ms: RebalanceSetting = 60_000,
) -> None:
    """Run one engine. Start the same command again for a hot spare; the first one becomes active."""
    from hotspare.host.options import BatchLimits, EngineOptions, GroupSettings, default_engine_name

    group = GroupSettings(skew_max_ms=skew_max_ms, on_divergence=on_divergence, on_poison=on_poison, other_store=other_store)
    group = replace(group, held_bytes_max=held_bytes_max, bus_retention_ms=bus_retention_ms, lease_ms=lease_ms, on_hang=on_hang)
    group = replace(group, pipeline_stall_ms=pipeline_stall_ms, **snapshot_settings(snapshots or ()))
    options = EngineOptions(project, bus, prefix, coordination, store, engine or default_engine_name(), address, listen, runner)
    options = replace(options, head_place=head, create_time=create_time, settings=group, join=join, start=start, spare=spare)
    options = replace(options, project_name=project_name, shards=shards, home=home, limits=BatchLimits(messages_max=messages_max))
    options = replace(options, properties=parse_properties(set_ or ()), bindings=parse_bindings(bind or ()))
    options = _with_state(_with_watch(options, code_deadline_ms, code_memory, http, restart), restore, memory, page_folder)
    _start(options, (log_format, log_level), _Spark(master, tasks, conf or (), spark_ui, task_lease_ms, rebalance_after_ms))


def _with_watch(options: EngineOptions, code_deadline_ms: int, code_memory: str, http: str, restart: Restart) -> EngineOptions:
    """Returns the options with the limits of calls. Raises UsageError if nothing could answer at `http`, which the parent does."""
    from hotspare.base.addresses import checked_host_port

    if http:
        refuse_ineffective({"--http": restart is Restart.NEVER}, "with --restart never", "leave one of them out")
        checked_host_port(http, "--http")
    return replace(options, code_deadline_ms=code_deadline_ms, code_memory_bytes=parse_code_memory(code_memory))


def _with_state(options: EngineOptions, restore: str, memory: str, page_folder: Path | None) -> EngineOptions:
    from hotspare.host.restoring import snapshot_url

    size = parse_memory_option(memory, page_folder)
    return replace(options, restore=snapshot_url(restore), memory_bytes=size, page_folder=page_folder)


@dataclass(frozen=True)
class _Spark:
    """The options of Spark."""

    master: str
    tasks: int
    conf: Sequence[str]
    ui_port: int
    task_lease_ms: int
    rebalance_after_ms: int


def _start(options: EngineOptions, log: tuple[LogFormat, LogLevel], spark: _Spark) -> None:
    from hotspare.host.options import SparkOptions
    from hotspare.host.process import run_engine
    from hotspare.telemetry.log import Level, configure_logging

    log_format, level = log[0], Level[log[1].name]
    configure_logging(log_format, level)
    if options.runner is RunnerKind.PARTITIONED:
        raise typer.Exit(_run_application(options, log_format, level, spark))
    refuse_ineffective({"--tasks": spark.tasks}, "without --runner partitioned", "add --runner partitioned, or leave it out")
    if options.runner is RunnerKind.LOCAL:
        of_spark = {"--master": spark.master, "--conf": spark.conf, "--spark-ui": spark.ui_port}
        of_spark |= {"--head": options.head_place is HeadPlace.DRIVER}
        refuse_ineffective(of_spark, "with --runner local", "leave it out, or write --runner ordered")
    chosen = SparkOptions(spark.master, parse_spark_settings(spark.conf), spark.ui_port)
    raise typer.Exit(run_engine(replace(options, spark=chosen)))


def _run_application(options: EngineOptions, log_format: LogFormat, level: Level, spark: _Spark) -> int:
    from hotspare.base.errors import UsageError
    from hotspare.host.partitioned.application import ApplicationOptions, run_application

    refuse_ineffective({"--spark-ui": spark.ui_port}, "with --runner partitioned", "write --conf spark.ui.enabled=true")
    if not spark.master:
        raise UsageError("--runner partitioned needs a master of Spark", hint="give --master local[2], or spark://host:7077")
    if options.join is JoinFrom.RECENT:
        raise UsageError("--runner partitioned does not go with --join recent", hint="use --runner ordered or local")
    conf, times = parse_spark_settings(spark.conf), (spark.task_lease_ms, spark.rebalance_after_ms)
    return run_application(options, ApplicationOptions(spark.master, spark.tasks, conf, *times, log_format, level))
