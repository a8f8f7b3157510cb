"""How a CSV file reaches the project that `hotspare init` wrote: what the project says of its form, and the commands that are run
next. Nothing else knows either."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from hotspare.adapters.guess.columns import GuessedTable
from hotspare.adapters.guess.sample import CsvSample


@dataclass(frozen=True)
class InitialNames:
    """Names within the written project, and the project's file."""

    file: Path
    project: str
    query: str
    source: str
    result: str


def connector(table: GuessedTable, project_folder: Path) -> dict[str, str]:
    """Returns the properties of the source window's file connector, which reads the CSV file as it is written."""
    sample = table.sample
    properties = {"fsname": _relative(sample.path, project_folder), "fstype": "csv", "header": str(sample.header_rows)}
    properties |= {"addcsvopcode": "true", "addcsvflags": "normal"}
    if table.generated:
        properties["noautogenfield"] = "true"
    if sample.delimiter != ",":
        properties["csvfielddelimiter"] = sample.delimiter
    return properties


def next_commands(names: InitialNames, table: GuessedTable) -> list[tuple[str, str]]:
    """Returns what is run next: each command, and what it does."""
    here = Path.cwd()
    project, rows = shlex.quote(_relative(names.file, here)), f"{names.result}.csv"
    bus = f"--bus sqlite:///{names.project}.db"
    window = f"{names.project}/{names.query}"
    return [
        (_line("hotspare replay", project, "--out", f"{names.query}/{names.result}={rows}"), f"over the file, into {rows}"),
        (_line("hotspare run", project, bus, "--runner local"), "as a service that reads the file; a second one is a hot spare"),
        (_line("hotspare subscribe", bus, f"--window {window}/{names.result}", f"live-{rows}"), "what it finds, as it comes"),
        (
            _line("hotspare publish", bus, f"--window {window}/{names.source}", *_form_words(table.sample, table), "more.csv"),
            "another file of the same form",
        ),
    ]


def _form_words(sample: CsvSample, table: GuessedTable) -> list[str]:
    words = [f"--header {sample.header_rows}"] if sample.header_rows else []
    words += ["--addcsvopcode --addcsvflags normal"]
    words += ["--noautogenfield"] if table.generated else []
    return words + ([f"--delimiter {shlex.quote(sample.delimiter)}"] if sample.delimiter != "," else [])


def _line(*words: str) -> str:
    return " ".join(words)


def _relative(path: Path, folder: Path) -> str:
    """The path from a folder on, if it is below it."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
