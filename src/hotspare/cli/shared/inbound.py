"""Shared code of the commands that publish: the option for a missing topic, and the report at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import MissingTopic

if TYPE_CHECKING:
    from pathlib import Path

    from hotspare.adapters.files.publisher import PublishProgress
    from hotspare.adapters.files.row_file import Growth


CreateOption = Annotated[
    bool,
    typer.Option(
        "--create", help="Create the topic, with --shards partitions, if no engine did; by default a missing topic is an error."
    ),
]
MISSING_TOPIC_POLICY = {True: MissingTopic.CREATE, False: MissingTopic.REFUSE}
"""The policy for missing topics, by the value of --create."""


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
