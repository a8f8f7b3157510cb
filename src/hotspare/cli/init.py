"""`hotspare init`: a project for the rows of a CSV file, with types guessed from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PATH

if TYPE_CHECKING:
    from hotspare.adapters.guess.columns import GuessedTable
    from hotspare.cli.initial.csv_form import InitialNames

_ROWS_MAX = 1_000_000


def command(
    file: Annotated[
        Path, typer.Argument(help="Read this CSV file in UTF-8, which may be compressed as .gz or .zst.", parser=absolute_path)
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the project to this file; by default to NAME.yaml in the current folder.", **PATH
        ),
    ] = None,
    delimiter: Annotated[str, typer.Option(help="Separate columns at this character; by default it is guessed.")] = "",
    header: Annotated[
        int | None, typer.Option(min=0, max=1, help="Expect this many title lines, 0 or 1; by default the number is guessed.")
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, max=_ROWS_MAX, help="Read at most this many rows, and guess the types from them.")
    ] = 100_000,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the project file if it exists; by default that is an error.")
    ] = False,
) -> None:
    """Write a project for a CSV file: types from its rows, a first window to edit, and the commands to run next.

    At most --rows rows are read. A later row that does not fit a type becomes a bad event, which `hotspare replay` counts.
    """
    from hotspare.adapters.guess.columns import guess_table
    from hotspare.adapters.guess.sample import read_sample
    from hotspare.cli.initial.csv_form import InitialNames, connector_properties, next_commands
    from hotspare.cli.initial.project_text import QUERY, RESULT, initial_project, project_name_from_stem

    table = guess_table(read_sample(file, delimiter, header, rows))
    stem = project_name_from_stem(file.name.partition(".")[0])
    target = output or absolute_path(f"{stem}.yaml")
    source = stem if stem != RESULT else "rows"
    names = InitialNames(target, stem, QUERY, source, RESULT)
    text = initial_project(table, names, connector_properties(table, target.parent))
    _write(target, text, "w" if force else "x")
    _show(table, names)
    for line, what in next_commands(names, table):
        typer.echo(f"\n# {what}\n{line}")


def _write(target: Path, text: str, mode: str) -> None:
    """Writes the project. Raises UsageError if the file exists and `mode` is "x", or if it cannot be written."""
    try:
        with target.open(mode, encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"file {target} exists", hint="name another one with -o, or replace it with --force") from None
    except OSError as error:
        raise UsageError(f"file {target} cannot be written", detail=error.strerror or str(error)) from error


def _show(table: GuessedTable, names: InitialNames) -> None:
    """Prints the guessed type of each column with the reason, renamed columns, and a warning about uneven rows."""
    from hotspare.adapters.guess.sample import Extent
    from hotspare.cli.shared.display import print_table

    sample = table.sample
    why = {table.key: f"; key: {table.key_reason}", table.event_time: "; event time"}
    rows = [(c.name, c.type.value, str(c.nulls or ""), c.example, f"{c.type_reason}{why.get(c.name, '')}") for c in table.columns]
    if table.generated_key:
        rows.insert(0, (table.generated_key, "int64", "", "", f"generated key: {table.key_reason}"))
    extent = "all" if sample.extent is Extent.WHOLE else "the first"
    title = f"Columns of {sample.path.name}, by {extent} {sample.rows} rows"
    print_table(title, ("field", "type", "nulls", "example", "why"), rows)
    renamed = [f"{column.title!r} is {column.name}" for column in table.columns if column.title.strip() != column.name]
    if renamed:
        typer.echo(f"fields are letters, digits and '_': {', '.join(renamed)}")
    if sample.uneven_rows:
        what = "row has" if sample.uneven_rows == 1 else "rows have"
        where = f"the first on line {sample.uneven_line}"
        typer.echo(f"warning: {sample.uneven_rows} {what} another number of columns, {where}: bad events", err=True)
    typer.echo(f"wrote {names.file}: windows {names.query}/{names.source} and {names.query}/{names.result}")
