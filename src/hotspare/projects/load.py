"""The only path from a file to a project that can run: reads, checks, and reports every mistake and warning together."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeAlias

from hotspare.base.errors import Mistake, Place, ProjectError, UsageError
from hotspare.base.places import absolute_path
from hotspare.model.connector_rules import rebind
from hotspare.model.frontends.values import TEXT_BYTES_MAX, FrontEndResult
from hotspare.model.mistakes import Mistakes
from hotspare.model.names import did_you_mean, one_of, repeated
from hotspare.model.project import Connector, Project, Window, WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import FieldType, Schema
from hotspare.model.window_type import WindowInput
from hotspare.projects.analysis import Analysis, analyse
from hotspare.projects.resolve import resolved_from


class Form(Enum):
    """The form in which a project is written."""

    YAML = "yaml"
    ESP_XML = "esp-xml"


_HOME_PROPERTIES = ("ESP_PROJECT_HOME", "ESP_PROJECT_OUTPUT")
_SUFFIXES = {".yaml": Form.YAML, ".yml": Form.YAML, ".xml": Form.ESP_XML}
_ENCODINGS = frozenset({"us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252", "utf-8", "utf-16"})
_XML_ENCODING = re.compile(rb"""\s*<\?xml[^>]*\sencoding\s*=\s*["']([A-Za-z0-9._\-]{1,40})["']""")


Bindings: TypeAlias = Mapping[str, Mapping[str, str]]
ExpressionCheck: TypeAlias = Callable[[WindowId, Window, Sequence[WindowInput]], Sequence[Mistake]]
"""Returns every mistake in the expressions of a window, given its inputs. The caller provides it, so that this
package needs no expressions (`windows.shared.expressions.expression_mistakes`)."""
ConnectorCheck: TypeAlias = Callable[[Connector, Schema], Sequence[Mistake]]
"""Returns every mistake in the values of a connector, given its window's schema. The caller provides it, so that
this package needs no `adapters`.
"""
OperatorCheck: TypeAlias = Callable[[Resolved, Collection[WindowId]], Sequence[Mistake]]
"""Returns every mistake that shows only when a window is compiled, except for windows already known as invalid. The caller
provides it, so that this package loads no kernels (`flow.plan.operator_mistakes`).
"""


@dataclass(frozen=True)
class Checks:
    """The checks that the caller provides; None skips a check."""

    expressions: ExpressionCheck | None
    connectors: ConnectorCheck | None
    operators: OperatorCheck | None


@dataclass(frozen=True)
class LoadedProject:
    """A valid project, its resolved form, and the warnings about its text."""

    project: Project
    resolved: Resolved
    warnings: tuple[Mistake, ...]


def load_project(
    path: Path | str,
    properties: Mapping[str, str] | None = None,
    *,
    name: str = "",
    bindings: Bindings | None = None,
    expressions: ExpressionCheck | None = None,
    connectors: ConnectorCheck | None = None,
    operators: OperatorCheck | None = None,
) -> LoadedProject:
    """Loads a YAML or ESP XML file, distinguished by suffix, else by content.

    `properties` override those of the project and set the reserved ones (SPEC A4). `name` chooses among several projects in one
    file (SPEC A3). `bindings` override properties of connectors before they are checked, see `connector_rules.rebind`.
    `expressions`, `connectors` and `operators` find the mistakes of expressions, of connectors' values and of compiling windows in
    the same pass. `operators` runs only if there are other mistakes: without them, compiling the project reports the same. Raises
    UsageError if the file cannot be read or a binding names no connector, ProjectError with every mistake.
    """
    path = Path(path)
    text, form = _text_of(path)
    source = _Source(text, str(path), form, properties or {}, name, bindings or {})
    return _checked(source, Checks(expressions, connectors, operators))


def home_properties(project_file: Path, home: Path | None) -> dict[str, str]:
    """Returns the values of the reserved properties (SPEC A4): the folder `home`, by default the folder of the project's file."""
    folder = str(absolute_path(home or project_file.parent))
    return dict.fromkeys(_HOME_PROPERTIES, folder)


def project_names(path: Path | str) -> tuple[str, ...]:
    """Returns the names of the projects in a file, in the order of the file; "" for a project without a name. Raises UsageError if
    the file cannot be read, ProjectError if it has no project that can be read.
    """
    path = Path(path)
    text, form = _text_of(path)
    reading = _Source(text, str(path), form, {}, "", {}).reading()
    if not reading.projects:
        raise ProjectError(str(path), reading.found.mistakes)
    return tuple(project.name for project in reading.projects)


def _text_of(path: Path) -> tuple[str, Form]:
    try:
        with path.open("rb") as file:
            data = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"project file {path} cannot be read", detail=str(error)) from error
    if len(data) > TEXT_BYTES_MAX:
        raise UsageError(f"project file {path} is larger than {TEXT_BYTES_MAX >> 20} MiB")
    text = _decoded(data, str(path))
    return text, _SUFFIXES.get(path.suffix.lower()) or _form(text)


def load_text(
    text: str,
    file: str = "",
    properties: Mapping[str, str] | None = None,
    *,
    name: str = "",
    bindings: Bindings | None = None,
    expressions: ExpressionCheck | None = None,
    connectors: ConnectorCheck | None = None,
    operators: OperatorCheck | None = None,
) -> LoadedProject:
    """Loads a project from a text; arguments and errors as for `load_project`. `file` is the name in the places of mistakes."""
    source = _Source(text, file, _form(text), properties or {}, name, bindings or {})
    return _checked(source, Checks(expressions, connectors, operators))


def _form(text: str) -> Form:
    return Form.ESP_XML if text.lstrip("\ufeff \t\r\n").startswith("<") else Form.YAML


def _decoded(data: bytes, file: str) -> str:
    declared = _XML_ENCODING.match(data)
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    if declared and declared[1].lower() != b"utf-8":
        encoding = declared[1].decode("ascii").lower()
        if encoding not in _ENCODINGS:
            raise ProjectError(file, [Mistake(Place(file, 1), f"encoding {encoding} is not accepted", one_of(sorted(_ENCODINGS)))])
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        mistake = Mistake(Place(file, line), f"the text is not {encoding.removesuffix('-sig')}", "save the file as UTF-8")
        raise ProjectError(file, [mistake]) from None


@dataclass(frozen=True)
class _Source:
    """A project's text, its form and file, and the arguments of `load_project`."""

    text: str
    file: str
    form: Form
    properties: Mapping[str, str]
    name: str
    bindings: Bindings

    def reading(self, assumed: FieldType | None = None) -> FrontEndResult:
        if self.form is Form.ESP_XML:
            from hotspare.projects import esp_xml

            return esp_xml.read(self.text, self.file, self.properties, self.name, assumed)
        from hotspare.projects import yaml as yaml_project

        return yaml_project.read(self.text, self.file, self.properties, assumed)


def _checked(source: _Source, checks: Checks) -> LoadedProject:
    reading = source.reading()
    project, analysis, found = _analyse_result(source, reading, checks)
    if reading.found.has_unread_type:
        for mistake in _type_independent_mistakes(source, replace(checks, operators=None)):
            found.add_mistake(mistake)
    if found:
        raise ProjectError(project.name or source.file, found.mistakes)
    return LoadedProject(project, resolved_from(project, analysis), found.warnings)


def _type_independent_mistakes(source: _Source, checks: Checks) -> Set[Mistake]:
    """Returns the mistakes that remain whatever type the fields with unknown types have. So windows downstream of such a field are
    checked, and no mistake is reported that the right type would correct.
    """
    found = (_analyse_result(source, source.reading(assumed), checks)[2].mistakes for assumed in FieldType)
    return frozenset.intersection(*map(frozenset, found))


def _analyse_result(source: _Source, reading: FrontEndResult, checks: Checks) -> tuple[Project, Analysis, Mistakes]:
    """Returns the project as far as it could be read, its analysis, and every mistake and warning."""
    project, unreadable = _choose_project(reading, source.file, source.name)
    if source.bindings:
        project = rebind(project, source.bindings)
    analysis = analyse(project, unreadable)
    found = Mistakes()
    for part in (reading.found, analysis.found):
        for mistake in part.mistakes:
            found.add_mistake(mistake)
        for warning in part.warnings:
            found.add_warning(warning)
    mistaken: set[WindowId] = set()
    for window_id, mistake in _expression_mistakes(analysis, checks.expressions):
        mistaken.add(window_id)
        found.add_mistake(mistake)
    for mistake in _connector_mistakes(analysis, checks.connectors):
        found.add_mistake(mistake)
    if found:
        for mistake in _operator_mistakes(project, analysis, reading.found.windows, mistaken, checks.operators):
            found.add_mistake(mistake)
    return project, analysis, found


def _expression_mistakes(analysis: Analysis, check: ExpressionCheck | None) -> Iterator[tuple[WindowId, Mistake]]:
    """Yields the mistakes in expressions of every window whose inputs all have known schemas, even if other windows are invalid."""
    if check is None:
        return
    for window_id in analysis.order:
        given = analysis.window_inputs[window_id]
        if all(each.schema is not None for each in given):
            yield from ((window_id, mistake) for mistake in check(window_id, analysis.windows[window_id], given))


def _connector_mistakes(analysis: Analysis, check: ConnectorCheck | None) -> Iterator[Mistake]:
    """Yields the mistakes in connectors of every window with a known schema."""
    if check is None:
        return
    for window_id, schema in analysis.schemas.items():
        for connector in analysis.windows[window_id].connectors:
            yield from check(connector, schema)


def _operator_mistakes(
    project: Project, analysis: Analysis, unread: Set[WindowId], mistaken: Collection[WindowId], check: OperatorCheck | None
) -> Sequence[Mistake]:
    """Returns the mistakes that compiling finds in valid windows that are not downstream of an invalid one, which could be the
    cause. `mistaken`: windows whose only mistakes are in expressions; these change no schema, so windows downstream are checked.
    """
    if check is None:
        return ()
    sound: dict[WindowId, None] = {}
    wrong = unread | analysis.found.windows
    for window_id in analysis.order:
        above = (*(source for source, _ in analysis.inputs[window_id]), *analysis.forwarding_windows.get(window_id, ()))
        is_known = window_id in analysis.schemas and all(each.schema is not None for each in analysis.window_inputs[window_id])
        if is_known and window_id not in wrong and all(each in sound for each in above):
            sound[window_id] = None
    streams = tuple(each for each in analysis.streams if each in sound)
    return check(resolved_from(project, replace(analysis, order=list(sound), streams=streams)), mistaken)


def _choose_project(reading: FrontEndResult, file: str, name: str) -> tuple[Project, frozenset[WindowId]]:
    """Returns the project to load, and its windows that could not be read. Raises UsageError if `name` does not select exactly one
    project, ProjectError if there is none or the name is not unique."""
    if not reading.projects:
        raise ProjectError(file or "?", reading.found.mistakes)
    named = {p.name: i for i, p in enumerate(reading.projects)}
    if name and name not in named:
        raise UsageError(f"{file} has no project {name!r}", hint=did_you_mean(name, named) or one_of(named))
    if not name and len(reading.projects) > 1:
        raise UsageError(f"{file} has {len(reading.projects)} projects", hint="choose one with --project-name: " + ", ".join(named))
    index = named[name] if name else 0
    chosen = reading.projects[index]
    if chosen.name in repeated(p.name for p in reading.projects):
        raise ProjectError(file, [Mistake(chosen.place, f"there are several projects {chosen.name}", "give each its own name")])
    return chosen, reading.unreadable[index]
