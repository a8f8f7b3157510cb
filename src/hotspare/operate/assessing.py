"""Assesses the XML projects of a SAS ESP server: which run in hotspare, which need a change, which never will, and why.

Each project is loaded as every command loads it, so an assessment reports what `hotspare validate` reports.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from hotspare.base.errors import HotspareError, Mistake, MistakeKind, Place, ProjectError, RemedyKind
from hotspare.base.places import display_path
from hotspare.flow.plan import compile_plan
from hotspare.host.project import checked_project
from hotspare.model.mistakes import NO_PROJECT
from hotspare.projects.load import project_names

_SUFFIX = ".xml"


class Verdict(Enum):
    """The result for a project or a file. Verdicts of projects are ordered from best to worst. The values are stable: scripts match
    on them."""

    RUNS = "runs"
    CHANGES = "changes"
    MISSING = "missing"
    NEVER = "never"
    UNREADABLE = "unreadable"
    OTHER = "other"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Verdict.RUNS: "runs as it is",
    Verdict.CHANGES: "runs after changes",
    Verdict.MISSING: "needs what hotspare does not have yet",
    Verdict.NEVER: "never runs here",
    Verdict.UNREADABLE: "cannot be read",
    Verdict.OTHER: "is XML of another kind",
}
PROJECT_VERDICTS = (Verdict.RUNS, Verdict.CHANGES, Verdict.MISSING, Verdict.NEVER)
"""The verdicts of projects, from best to worst; all other verdicts are of files."""
_OF_OUTLOOK = {RemedyKind.CHANGE: Verdict.CHANGES, RemedyKind.MISSING: Verdict.MISSING, RemedyKind.NEVER: Verdict.NEVER}


@dataclass(frozen=True)
class Assessment:
    """The result for a project, or for a file without a project (`project` is ""). `notes` are warnings, which require no
    change."""

    file: Path
    project: str
    verdict: Verdict
    mistakes: tuple[Mistake, ...] = ()
    notes: tuple[Mistake, ...] = ()


@dataclass(frozen=True)
class KindCount:
    """Mistakes or warnings of one kind. `count`: the number of places; `projects`: the number of projects; `example`: the first
    one."""

    what: str
    outlook: RemedyKind
    count: int
    projects: int
    example: Mistake


def xml_files(place: Path) -> Iterator[Path]:
    """Yields the XML files below a folder in the order of their paths, or the file itself. Symbolic links to folders are not
    followed, a file with several names counts once, and files that are not regular are skipped."""
    if not place.is_dir():
        yield place
        return
    seen: set[tuple[int, int]] = set()
    for folder, folders, files in os.walk(place):
        folders.sort()
        for name in sorted(files):
            path = Path(folder) / name
            if path.suffix.lower() == _SUFFIX and (identity := _identity(path)) is not None and identity not in seen:
                seen.add(identity)
                yield path


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns device and inode of a regular file; None for any other file and for one that cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def assess_file(file: Path) -> list[Assessment]:
    """Returns one assessment for each project of a file, or one for the file if it has no project. Never raises an error for the
    file's content."""
    try:
        names = project_names(file)
    except HotspareError as error:
        return [_without_project(file, error)]
    return [_assessed(file, name if len(names) > 1 else "", name) for name in dict.fromkeys(names)]


def _without_project(file: Path, error: HotspareError) -> Assessment:
    mistakes = _mistakes_of(error, file)
    is_other = any(each.kind is not None and each.kind.what == NO_PROJECT for each in mistakes)
    return Assessment(file, "", Verdict.OTHER if is_other else Verdict.UNREADABLE, mistakes)


def _assessed(file: Path, chosen: str, name: str) -> Assessment:
    """Returns the result of the checks of `hotspare validate` for the project `name`. `chosen`: the name again if the file has
    several projects, else ""."""
    try:
        loaded = checked_project(file, {}, name=chosen)
        compile_plan(loaded.resolved)
    except HotspareError as error:
        mistakes = _mistakes_of(error, file)
        outlooks = [each.kind.outlook if each.kind else RemedyKind.CHANGE for each in mistakes]
        verdict = max((_OF_OUTLOOK[each] for each in outlooks), key=PROJECT_VERDICTS.index)
        return Assessment(file, name or file.stem, verdict, mistakes)
    return Assessment(file, loaded.project.name, Verdict.RUNS, notes=loaded.warnings)


def _mistakes_of(error: HotspareError, file: Path) -> tuple[Mistake, ...]:
    if isinstance(error, ProjectError) and error.mistakes:
        return error.mistakes
    return (Mistake(Place(str(display_path(file))), error.in_one_line, error.hint),)


def findings(assessed: Sequence[tuple[str, Sequence[Mistake]]]) -> list[KindCount]:
    """Returns the mistakes of projects, counted by kind; the kinds that concern the most projects first. `assessed`: pairs of a
    project's name and its mistakes."""
    places: dict[tuple[str, RemedyKind], list[tuple[str, Mistake]]] = {}
    for project, mistakes in assessed:
        for mistake in mistakes:
            kind = mistake.kind or MistakeKind(mistake.message, ("",))
            for subject in kind.subjects:
                what = f"{subject}: {kind.what}" if subject else kind.what
                places.setdefault((what, kind.outlook), []).append((project, mistake))
    found = [
        KindCount(what, outlook, len(each), len({project for project, _ in each}), each[0][1])
        for (what, outlook), each in places.items()
    ]
    return sorted(found, key=lambda each: (-each.projects, -each.count, each.what))
