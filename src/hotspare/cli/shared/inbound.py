"""Shared code of the commands that publish: the target that their options name, and the report at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import MissingTopic
from hotspare.operate.inbound import refuse_missing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hotspare.adapters.files.publisher import PublishProgress
    from hotspare.adapters.files.row_file import Growth
    from hotspare.bus.contract import Bus
    from hotspare.cli.shared.project_file import SourceRows
    from hotspare.operate.inbound import Target


CreateOption = Annotated[
    bool,
    typer.Option(
        "--create", help="Create the topic, with --shards partitions, if no engine did; by default a missing topic is an error."
    ),
]
MISSING_TOPIC_POLICY = {True: MissingTopic.CREATE, False: MissingTopic.REFUSE}
"""The policy for missing topics, by the value of --create."""


def resolve_target(bus: Bus, target: Target, known: SourceRows) -> Target:
    """Returns the target with the field that determines a row's partition. Raises UsageError if the window's schema is unknown, and
    its topic is missing and may not be created."""
    if known.schema is None:
        refuse_missing(bus, target)
    return replace(target, partition_by=known.partition_by)


def resolve_source_rows(bus: Bus, target: Target, project: Path | None, texts: Sequence[str] | None) -> tuple[Target, SourceRows]:
    """Returns the target of `resolve_target`, and the facts about the window's rows from the project file, else from the bus.
    Raises UsageError also for an unknown source window."""
    from hotspare.cli.shared.project_file import source_rows

    known = source_rows(bus, target.prefix, project, texts, str(target.window))
    return resolve_target(bus, target, known), known


def print_notice(sentence: str) -> None:
    """Prints a notice for the user on standard error."""
    typer.echo(sentence, err=True)


def print_published(done: PublishProgress | None, file: str, topic: str, growth: Growth) -> None:
    """Prints the number of published events of a file; `done` is None if this instance never had a turn. Exits with status 1 if
    publishing stopped before the end of a fixed file."""
    from hotspare.adapters.files.row_file import Growth

    typer.echo(f"published {0 if done is None else done.events} events to {topic}{_nothing_new(done, file)}", err=True)
    if growth is Growth.FIXED:
        _end_early(done, file)


def print_imported(done: PublishProgress, file: Path, window: str) -> None:
    """Prints the number of rows of a file that were published to a window. Exits with status 1 if publishing stopped before the
    end."""
    typer.echo(f"{done.events} rows of {file} are published to {window}{_nothing_new(done, str(file))}")
    _end_early(done, str(file))


def _nothing_new(done: PublishProgress | None, file: str) -> str:
    is_old = done is not None and done.is_done and not done.events and done.bytes_published > 0
    return f": all of {file} was published before" if is_old else ""


def _end_early(done: PublishProgress | None, file: str) -> None:
    """Exits with status 1 if publishing was stopped before the end."""
    if done is not None and not done.is_done:
        typer.echo(f"stopped before the end of {file}: the same command goes on there", err=True)
        raise typer.Exit(1)
