"""`hotspare run`: one engine of a group, until it is asked to stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.choices import CreateTime, HeadPlace, KafkaReaderKind, LogFormat, OnDivergence, OnPoison, OtherStore, RunnerKind
from hotspare.cli.shared.values import ProjectNameOption, ShardsOption, bindings, properties

if TYPE_CHECKING:
    from hotspare.host.options import EngineOptions

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
BindOption = Annotated[
    list[str] | None, typer.Option("--bind", metavar="CONNECTOR:NAME=VALUE", help="Override a connector's property.")
]


def command(
    project: Annotated[Path, typer.Argument(help="Project file, YAML or ESP XML.")],
    bus: Annotated[str, typer.Option(help="Bus, e.g. sqlite:///demo.db")],
    prefix: Annotated[str, typer.Option(help="First part of topic names; with the project's name, the group.")] = "hotspare",
    coordination: Annotated[str, typer.Option(help="Coordination; by default beside the bus.")] = "",
    store: Annotated[str, typer.Option(help="Store for snapshots; by default beside the bus.")] = "",
    engine: Annotated[str, typer.Option(help="Name of this engine in its group; by default host and process id.")] = "",
    address: AddressOption = "",
    listen: ListenOption = "",
    runner: Annotated[RunnerKind, typer.Option(help="What moves the batches; local does without Spark.")] = RunnerKind.ORDERED,
    head: HeadOption = HeadPlace.DRIVER,
    kafka_reader: KafkaReaderOption = KafkaReaderKind.SPAN,
    create_time: CreateTimeOption = CreateTime.REFUSE,
    lease_ms: Annotated[int, typer.Option(help="How long the active engine may show no progress.")] = 1000,
    snapshot_interval_ms: Annotated[int, typer.Option(help="Time between snapshots; 0 takes none.")] = 5000,
    pipeline_stall_ms: StallOption = 300_000,
    held_bytes_max: Annotated[int, typer.Option(help="Memory for held outputs; beyond it they go to disk.")] = 256 << 20,
    skew_max_ms: SkewOption = 5000,
    bus_retention_ms: BusRetentionOption = 0,
    messages_max: Annotated[int, typer.Option(min=1, help="Most messages in one batch.")] = 20_000,
    on_divergence: Annotated[OnDivergence, typer.Option(help="When this engine's outputs alone differ.")] = OnDivergence.STOP,
    other_store: OtherStoreOption = OtherStore.REFUSE,
    on_poison: PoisonOption = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Project property.")] = None,
    project_name: ProjectNameOption = "",
    shards: ShardsOption = 1,
    bind: BindOption = None,
    home: Annotated[Path | None, typer.Option(help="Folder that @ESP_PROJECT_HOME@ stands for.")] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Form of the log on standard error.")] = LogFormat.HUMAN,
) -> None:
    """Run one engine. Start the same command again for a hot spare; the first one becomes active."""
    from hotspare.host.options import BatchLimits, EngineOptions, GroupSettings, default_engine_name

    settings = GroupSettings(skew_max_ms=skew_max_ms, on_divergence=on_divergence, on_poison=on_poison, other_store=other_store)
    settings = replace(settings, held_bytes_max=held_bytes_max, bus_retention_ms=bus_retention_ms, lease_ms=lease_ms)
    settings = replace(settings, snapshot_interval_ms=snapshot_interval_ms, pipeline_stall_ms=pipeline_stall_ms)
    options = EngineOptions(
        project=project,
        project_name=project_name,
        shards=shards,
        bus_url=bus,
        prefix=prefix,
        coordination_url=coordination,
        store_url=store,
        engine=engine or default_engine_name(),
        address=address,
        listen=listen,
        runner=runner,
        head_place=head,
        kafka_reader=kafka_reader,
        create_time=create_time,
        limits=BatchLimits(messages_max=messages_max),
        settings=settings,
        properties=properties(set_ or ()),
        bindings=bindings(bind or ()),
        home=home,
    )
    _start(options, log_format)


def _start(options: EngineOptions, log_format: LogFormat) -> None:
    from hotspare.host.process import run_engine
    from hotspare.telemetry.log import configure_logging

    configure_logging(log_format)
    raise typer.Exit(run_engine(options))
