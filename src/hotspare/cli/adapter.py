"""`hotspare adapter`: a file adapter configured by the option text of the systems that hotspare replaces (SPEC I7)."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import CsvForm, MissingTopic
from hotspare.base.places import absolute_path, absolute_path_or_url
from hotspare.cli import publish, subscribe
from hotspare.cli.shared.inbound import MISSING_TOPIC_POLICY, CreateOption
from hotspare.cli.shared.places import BusOption, CoordinationOption
from hotspare.cli.shared.project_file import named_project
from hotspare.cli.shared.stream import Stream
from hotspare.cli.shared.turns import GroupOption, LeaseOption, Transport, TurnOptions, resolve_transport
from hotspare.cli.shared.values import SchemaFileOption, ShardsOption, refuse_ineffective, topic_prefix, window_path
from hotspare.operate.inbound import Target
from hotspare.operate.window_rows import resolve_source_rows

if TYPE_CHECKING:
    from hotspare.adapters.esp.adapter_line import AdapterLine


def command(
    settings: Annotated[
        str, typer.Option("-C", metavar="NAME=VALUE,...", help="Set options in the form of the file adapters of SAS ESP.")
    ],
    *,
    bus: BusOption = "",
    project: SchemaFileOption = None,
    shards: ShardsOption = 1,
    create: CreateOption = False,
    group: GroupOption = "",
    coordination: CoordinationOption = "",
    lease_ms: LeaseOption = 1000,
) -> None:
    """Publish or subscribe by an option text: type, url, fsname, transportconfigfile and the options of a file.

    --bus overrides the bus that the file of transportconfigfile names.
    """
    from hotspare.adapters.esp.adapter_line import read_adapter_line
    from hotspare.model.project import ConnectorDirection

    line = read_adapter_line(settings)
    for note in line.notes:
        typer.echo(f"hotspare: {note}", err=True)
    line = dataclasses.replace(line, file=absolute_path_or_url(line.file))
    config = absolute_path(line.transport_config) if line.transport_config else None
    chosen = resolve_transport(config, bus, TurnOptions(group, coordination, lease_ms))
    if chosen.date_format and not line.connector.get("dateformat"):
        properties = (*line.connector.properties, ("dateformat", chosen.date_format))
        line = dataclasses.replace(line, connector=dataclasses.replace(line.connector, properties=properties))
    if line.connector.direction is ConnectorDirection.PUBLISH:
        _publish(line, chosen, project, shards, MISSING_TOPIC_POLICY[create])
    else:
        refuse_ineffective(
            {"--create": create, "--shards": shards != 1}, "of a subscriber", "leave it out: an engine creates its topics"
        )
        _subscribe(line, chosen, project)


def _publish(line: AdapterLine, chosen: Transport, project: Path | None, shards: int, missing: MissingTopic) -> None:
    from hotspare.adapters.esp.connector_options import publish_options
    from hotspare.bus.open import open_bus

    place = (chosen.bus_url, topic_prefix(line.url, ""), window_path(line.url), chosen.partition or None)
    where = Target(*place, shards=shards, missing=missing, coordination_url=chosen.turns.coordination_url)
    with contextlib.closing(open_bus(where.bus_url)) as bus:
        target, known = resolve_source_rows(bus, where, named_project(project, None))
        options = publish_options(line.connector, known.schema, rows=known.defaults)
        publish.publish_rows(bus, target, line.file, options, chosen.turns)


def _subscribe(line: AdapterLine, chosen: Transport, project: Path | None) -> None:
    from hotspare.adapters.esp.connector_options import file_style, is_plain, subscribe_options

    stream = Stream(topic_prefix(line.url, ""), line.url, project=project)
    style, form = file_style(line.connector), CsvForm.PLAIN if is_plain(line.connector) else CsvForm.EVENTS
    subscribe.subscribe_rows(chosen, stream, line.file, style, subscribe_options(line.connector), form)
