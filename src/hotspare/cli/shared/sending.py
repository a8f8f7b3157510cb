"""`hotspare subscribe --topic`: sends an output stream to an external topic, each output exactly once (SPEC I3)."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from hotspare.base.errors import UsageError
from hotspare.cli.shared.stream import Stream
from hotspare.cli.shared.turns import Transport, print_trouble, run_in_turns
from hotspare.cli.shared.values import refuse_ineffective, window_path

if TYPE_CHECKING:
    from hotspare.adapters.files.output_rows import FileStyle
    from hotspare.adapters.files.subscriber import SubscribeOptions, SubscribeProgress


@dataclass(frozen=True, slots=True)
class TargetTopic:
    """The destination of outputs. If `topic` is not "", `url` is the URL of the topic's bus, and may contain secrets; else `url` is
    a file or the address of a socket.

    `source`: the name of the stored position, "" for the name of the window's topic. `value`: the field that a message consists of,
    "" for complete events. `schema_line`: a value of `SchemaLine`.
    """

    url: str
    topic: str
    partition: int | None
    source: str
    value: str
    schema_line: str


def check_target(target: TargetTopic, stream: Stream, style: FileStyle, options: SubscribeOptions) -> None:
    """Raises UsageError for options without effect: options of files if `target` has a topic, options of topics if it has none."""
    from hotspare.adapters.files.output_rows import HeaderLine
    from hotspare.adapters.files.subscriber import Opening
    from hotspare.adapters.topics.send_form import SchemaLine

    of_files = {
        "--bad": bool(stream.bad),
        "--header": style.header is not HeaderLine.NONE,
        "--snapshot": options.opening is Opening.SNAPSHOT,
        "--maxfilesize, --periodicity": options.rotation.is_wanted,
    }
    topic_qualities = {
        "--topic-partition": target.partition is not None,
        "--source": bool(target.source),
        "--value": bool(target.value),
        "--schema-line": SchemaLine(target.schema_line) is not SchemaLine.NEVER,
    }
    asked, why = (of_files, "with --topic") if target.topic else (topic_qualities, "without --topic")
    refuse_ineffective(asked, why, "leave it out")


def send_external(chosen: Transport, stream: Stream, target: TargetTopic, style: FileStyle, options: SubscribeOptions) -> None:
    """Sends the outputs to the external topic, alone or in turns, until Ctrl-C, or with Until.END up to the current end of the
    stream. Raises UsageError if the fields of the window are not known. Exits with status 1 if the sequence of outputs is
    broken."""
    from hotspare.adapters.failover.source_position import source_prefix
    from hotspare.adapters.files.subscriber import SubscribeReport
    from hotspare.adapters.topics.send_form import SchemaLine, SendForm
    from hotspare.adapters.topics.subscriber import SendOptions, send_topic
    from hotspare.bus.naming import checked_prefix, outbound_topic
    from hotspare.bus.open import open_topic_writer
    from hotspare.cli.shared.display import progress_bar
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.cli.shared.project_file import named_project
    from hotspare.operate.groups import existing_bus
    from hotspare.operate.window_rows import Side, window_schema
    from hotspare.rows.batch import MessageFormat

    prefix, path = checked_prefix(stream.prefix), window_path(stream.window)
    topic = outbound_topic(prefix, path.project, path.query, path.window)
    name = target.source or (topic if stream.partition is None else f"{topic}/{stream.partition}")
    with contextlib.ExitStack() as stack:
        bus = existing_bus(stack, chosen.bus_url)
        schema = window_schema(bus, prefix, named_project(stream.project, stream.properties), path, Side.STREAM)
        if schema is None:
            raise UsageError(f"the fields of window {stream.window} are not known", hint="name the project's file with --project")
        form = SendForm(
            schema,
            MessageFormat[stream.format.value.upper()],
            options.choice,
            date_format=style.date_format,
            value_field=target.value,
            schema_line=SchemaLine(target.schema_line),
        )
        asked = SendOptions(name, form, target.partition, options.until)
        stop, show = stack.enter_context(stop_on_signal()), stack.enter_context(progress_bar(f"{topic} to {target.topic}"))

        def progress(now: SubscribeProgress) -> None:
            show(0, 0, f"{now.rows} rows, sequence {now.sequence}")

        def work(turn: threading.Event) -> SubscribeProgress:
            with contextlib.closing(open_topic_writer(target.url, target.topic, source_prefix(name))) as writer:
                return send_topic(
                    bus, topic, writer, asked, turn, SubscribeReport(progress, on_trouble=print_trouble), stream.partition
                )

        done = run_in_turns(chosen.turns, bus, chosen.bus_url, work, stop)
    _print_sent(done, topic, target.topic)


def _print_sent(done: SubscribeProgress | None, topic: str, others: str) -> None:
    rows, sequences = (0, ()) if done is None else (done.rows, done.sequences)
    typer.echo(f"sent {rows} rows of {topic} to {others}, up to sequence {', '.join(map(str, sequences)) or '0'}", err=True)
    if done is not None and done.breaks:
        typer.echo(f"hotspare: the sequence of {topic} is broken in {done.breaks} places", err=True)
        raise typer.Exit(1)
