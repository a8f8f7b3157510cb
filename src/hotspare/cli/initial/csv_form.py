"""The connection of a CSV file to the project that `hotspare init` wrote: its form in the project, and the next commands to run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from hotspare.adapters.guess.columns import GuessedTable

_NO_FIELDS = frozenset({"opcode", "flags"})
"""Titles, in lower case, of columns in a plain file that are not fields."""


@dataclass(frozen=True)
class InitialNames:
    """The project file, and the names in it: project, query, source window and result window."""

    file: Path
    project: str
    query: str
    source: str
    result: str


def connector_properties(table: GuessedTable, project_folder: Path) -> dict[str, str]:
    """Returns the properties of a file connector for the source window, which reads the CSV file unchanged; empty if `--plain`
    reads it."""
    if _is_plain(table):
        return {}
    sample = table.sample
    properties = {"fsname": _relative(sample.path, project_folder), "fstype": "csv", "header": str(sample.header_rows)}
    properties |= {"addcsvopcode": "true", "addcsvflags": "normal"}
    if table.generated_key:
        properties["noautogenfield"] = "true"
    if sample.delimiter != ",":
        properties["csvfielddelimiter"] = sample.delimiter
    return properties


def _is_plain(table: GuessedTable) -> bool:
    """Whether `--plain` can read the file: the titles are the field names, separated by commas, and no title is `opcode` or
    `flags`."""
    sample, names = table.sample, tuple(column.name for column in table.columns)
    return sample.titles == names and sample.delimiter == "," and not {name.lower() for name in names} & _NO_FIELDS


def next_commands(names: InitialNames, table: GuessedTable) -> list[tuple[str, str]]:
    """Returns the command lines that the user may run next, each with its purpose."""
    file, project = (shlex.quote(_relative(each, Path.cwd())) for each in (table.sample.path, names.file))
    bus, window = f"--bus sqlite:///{names.project}.db", f"{names.project}/{names.query}"
    source, result = f"{names.query}/{names.source}", f"{names.query}/{names.result}={names.result}.csv"
    subscribe = f"hotspare subscribe {bus} --plain --window {window}/{names.result} live.csv"
    run = f"hotspare run {project} --runner local {bus}"
    if not _is_plain(table):
        return [
            (f"hotspare replay {project} --out {result}", "over the file, without a server"),
            (run, "as a service, which reads the file; a second one is a hot spare"),
            (subscribe, "what it finds, as it comes"),
        ]
    return [
        (f"hotspare replay {project} --plain --in {source}={file} --out {result}", "over the file, without a server"),
        (run, "as a service, ready when its log says that it is active; the same once more is a hot spare"),
        (f"hotspare publish {bus} --plain --window {window}/{names.source} {file}", "rows into the service"),
        (subscribe, "what it finds, as it comes"),
    ]


def _relative(path: Path, folder: Path) -> str:
    """Returns the path relative to `folder` if it is in that folder or below, else unchanged."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
