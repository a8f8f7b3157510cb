"""The display of commands: progress on standard error if that is a terminal, tables on standard output."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

WIDTH_WITHOUT_TERMINAL = 160
WIDTH_OF_BAR = 120


@contextlib.contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, float, str], None]]:
    """Context manager: shows a progress bar if standard error is a terminal. Yields a function that updates it: (done, total,
    note); total 0 is unknown. A narrow terminal shows no bar, only the note, which has the numbers, and `what`."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    narrow = (SpinnerColumn(), TextColumn("{task.fields[note]}  {task.description}"))
    wide = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    columns = narrow if console.width < WIDTH_OF_BAR else wide
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None, note="")

        def update(done: float, total: float, note: str) -> None:
            progress.update(task, completed=done, total=total or None, note=note)

        yield update


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints a table on standard output; columns of numbers are aligned to the right. Output to a file is not truncated."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=WIDTH_WITHOUT_TERMINAL)
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) or row[index] == "" for row in rows)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row))
    console.print(table)
