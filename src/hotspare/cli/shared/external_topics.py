"""`hotspare publish --topic`: copies an external topic into an inbound topic, each message exactly once (SPEC I2)."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hotspare.base.errors import UsageError
from hotspare.cli.shared.inbound import print_notice
from hotspare.cli.shared.turns import LineFormat, TurnOptions, print_trouble, print_warning, run_in_turns
from hotspare.cli.shared.values import refuse_ineffective
from hotspare.operate.inbound import Target, row_destination

if TYPE_CHECKING:
    from hotspare.adapters.files.publisher import PublishOptions
    from hotspare.adapters.topics.position import StartAt
    from hotspare.adapters.topics.publisher import TopicPublishProgress
    from hotspare.bus.contract import Bus


START_DEFAULT = "smallest"


@dataclass(frozen=True, slots=True)
class ExternalTopic:
    """The source that is published. If `topic` is not "", `url` is the URL of the topic's bus, and may contain secrets; else `url`
    is a file or the address of a socket.

    `start`: the unparsed start position; `format`: that of the file, of lines or of messages. `avro_schema`: a file; `schemas`: a
    registry or a folder; `value`: a field. `skips_lost`: whether publishing continues after lost messages.
    """

    url: str
    topic: str
    partition: int | None
    start: str
    avro_schema: Path | None
    format: LineFormat = LineFormat.csv
    schemas: str = ""
    value: str = ""
    skips_lost: bool = False


def publish_external(bus: Bus, target: Target, others: ExternalTopic, options: PublishOptions, turns: TurnOptions) -> None:
    """Publishes the external topic, alone or in turns, until `options.events_max` events or Ctrl-C. Raises UsageError for options
    that apply only to files."""
    from hotspare.adapters.files.canonical import FileFormat
    from hotspare.adapters.topics.form import TopicForm
    from hotspare.adapters.topics.position import OnLost
    from hotspare.adapters.topics.publisher import TopicPublishOptions, publish_topic
    from hotspare.adapters.topics.schemas import open_schemas
    from hotspare.bus.open import open_topic_reader
    from hotspare.cli.shared.display import progress_bar
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.rows.batch import MessageFormat

    _refuse_options_of_files(options)
    format_ = MessageFormat[others.format.value.upper()]
    rows = replace(options.form, format=FileFormat.JSON) if format_ is MessageFormat.JSON else options.form
    asked = TopicPublishOptions(
        source_name=options.source_name or f"topic:{others.topic}",
        form=TopicForm(
            format_, rows, _text(others.avro_schema), open_schemas(others.schemas) if others.schemas else None, others.value
        ),
        partition=others.partition,
        start=_start(others.start),
        events_max=options.events_max,
        block_rows=options.block_rows,
        on_lost=OnLost.SKIP if others.skips_lost else OnLost.END,
    )
    where, routing, count = row_destination(bus, target, options.form.schema, print_notice)
    with stop_on_signal() as stop, progress_bar(f"topic {others.topic} to {where.topic}") as show:

        def report(now: TopicPublishProgress) -> None:
            show(0, 0, f"{now.events} events")

        def work(turn: threading.Event) -> TopicPublishProgress:
            with contextlib.closing(open_topic_reader(others.url, others.topic)) as reader:
                return publish_topic(
                    bus, where, reader, asked, turn, report, print_trouble, routing, print_warning, _print_lost, count
                )

        done = run_in_turns(turns, bus, target.bus_url, work, stop)
    typer.echo(f"{0 if done is None else done.events} events of {others.topic} are in {where.topic}", err=True)


def _print_lost(sentence: str) -> None:
    typer.echo(f"lost: {sentence}", err=True)


def _refuse_options_of_files(options: PublishOptions) -> None:
    from hotspare.adapters.files.row_file import Growth

    asked = {
        "--plain": options.form.plain is not None,
        "--header": options.header_rows,
        "--growing": options.growth is Growth.GROWING,
        "--rate": options.rate,
        "--repeatcount": options.repeats,
    }
    refuse_ineffective(asked, "with --topic", "leave it out: a topic has neither end nor titles")


def _text(file: Path | None) -> str:
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"file {file} cannot be read", detail=str(error)) from error


def _start(text: str) -> StartAt | int:
    from hotspare.adapters.topics.position import parse_start

    found = parse_start(text)
    if found is None:
        raise UsageError(f"--initial-offset is {text!r}", hint="use smallest, largest or an offset")
    return found
