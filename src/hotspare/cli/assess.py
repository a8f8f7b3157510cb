"""`hotspare assess`: which XML projects of a SAS ESP server run here, which need changes, and which never will."""

from __future__ import annotations

import json
from collections import Counter
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hotspare.base.errors import UsageError
from hotspare.base.places import absolute_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hotspare.operate.assessing import Assessment, KindCount


class _Shown(Enum):
    """The part of an assessment that is printed: without notes (VERDICTS), or complete."""

    VERDICTS = "verdicts"
    ALL = "all"


def command(
    place: Annotated[
        Path, typer.Argument(help="Assess the XML projects in this folder, at any depth, or in this file.", parser=absolute_path)
    ],
    *,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show parts without effect, and files without a project; by default neither."),
    ] = False,
) -> None:
    """Report which projects run as they are, which need changes, and which never run here.

    Exit status 0 if all projects run as they are, 1 if one does not or a file cannot be read, 2 without an XML file.
    """
    from hotspare.cli.shared.display import progress_bar
    from hotspare.operate.assessing import Verdict, assess_file, xml_files

    if not (place.is_dir() or place.is_file()):
        raise UsageError(f"{place}: neither a folder nor a file", hint="name a folder with XML projects, or one file")
    files = list(xml_files(place))
    if not files:
        raise UsageError(f"folder {place} has no file NAME.xml", hint="name the folder where the server keeps its projects")
    found: list[Assessment] = []
    with progress_bar(f"assess {place.name}") as show:
        for number, file in enumerate(files):
            show(number, len(files), file.name)
            found += assess_file(file)
    if json_:
        typer.echo(json.dumps(_document(found), indent=2, ensure_ascii=False))
    else:
        _print(found, place, _Shown.ALL if verbose else _Shown.VERDICTS)
    if any(each.verdict not in (Verdict.RUNS, Verdict.OTHER) for each in found):
        raise typer.Exit(1)


def _print(found: Sequence[Assessment], place: Path, shown: _Shown) -> None:
    """Prints a table of the projects with their verdicts, each kind of error once, and the counts of verdicts."""
    from hotspare.base.errors import RemedyKind
    from hotspare.cli.shared.display import print_table
    from hotspare.operate.assessing import PROJECT_VERDICTS, Verdict, findings

    projects = [each for each in found if each.verdict in PROJECT_VERDICTS]
    listed_files = [each for each in found if shown is _Shown.ALL or each.verdict is not Verdict.OTHER]
    rows = [(each.project or "-", each.verdict.words, _relative(each.file, place)) for each in listed_files]
    print_table(f"Projects below {place}" if place.is_dir() else f"Projects of {place.name}", ("project", "verdict", "file"), rows)
    listed = findings([(f"{each.file}:{each.project}", each.mistakes) for each in projects])
    for outlook, title in (
        (RemedyKind.NEVER, "Never, whatever is changed"),
        (RemedyKind.MISSING, "Not yet: hotspare does not have it"),
        (RemedyKind.CHANGE, "To change"),
    ):
        _print_findings(title, [each for each in listed if each.outlook is outlook])
    for each in found:
        if each.verdict is Verdict.UNREADABLE:
            typer.echo(f"cannot be read: {each.mistakes[0]}")
    if shown is _Shown.ALL:
        notes = findings([(f"{each.file}:{each.project}", each.notes) for each in projects])
        _print_findings("No change needed, but to know", notes)
    counts = Counter(each.verdict for each in found)
    parts = [f"{counts[verdict]} {_SUM_WORDS[verdict.value]}" for verdict in Verdict if counts[verdict]]
    typer.echo(f"{len(projects)} project{'' if len(projects) == 1 else 's'}: {', '.join(parts)}")


_SUM_WORDS = {
    "runs": "run as they are",
    "changes": "after changes",
    "missing": "not yet",
    "never": "never",
    "unreadable": "files that cannot be read",
    "other": "files with other XML",
}


def _print_findings(title: str, listed: Sequence[KindCount]) -> None:
    if not listed:
        return
    typer.echo(f"{title}:")
    for each in listed:
        times = f"{each.count} times in {each.projects} projects" if each.projects > 1 else f"{each.count} times"
        typer.echo(f"  {each.what}" + (f" ({times})" if each.count > 1 else ""))
        typer.echo(f"    {each.example.place}: {each.example.message}")
        if each.example.hint:
            typer.echo(f"    hint: {each.example.hint}")


def _relative(file: Path, place: Path) -> str:
    return str(file.relative_to(place)) if file != place else file.name


def _document(found: Sequence[Assessment]) -> dict[str, Any]:
    from hotspare.operate.assessing import Verdict, findings

    counts = Counter(each.verdict for each in found)
    return {
        "sum": {verdict.value: counts[verdict] for verdict in Verdict},
        "projects": [
            {
                "file": str(each.file),
                "project": each.project,
                "verdict": each.verdict.value,
                "findings": [_finding(finding) for finding in findings([("", each.mistakes)])],
                "notes": [_finding(finding) for finding in findings([("", each.notes)])],
            }
            for each in found
        ],
    }


def _finding(finding: KindCount) -> dict[str, Any]:
    example = finding.example
    return {
        "what": finding.what,
        "outlook": finding.outlook.value,
        "count": finding.count,
        "first": str(example.place),
        "message": example.message,
        "hint": example.hint,
    }
