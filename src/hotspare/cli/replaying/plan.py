"""Converts the options of `hotspare replay` to a `Replay`: published windows, files of each topic, and time fields."""

from __future__ import annotations

import dataclasses
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hotspare.adapters.esp.connector_options import FILE_KIND, connector_file, publish_options
from hotspare.adapters.files.canonical import RowForm
from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.files.publisher import PublishOptions
from hotspare.adapters.files.row_file import Growth
from hotspare.adapters.recording import ReplayFile, check_file
from hotspare.base.choices import CsvForm, RunUntil
from hotspare.base.errors import UsageError
from hotspare.base.places import local_file_path
from hotspare.cli.replaying.run import Replay
from hotspare.cli.shared.project_file import loaded_project
from hotspare.cli.shared.values import parse_stamp_unit_option, refuse_ineffective
from hotspare.flow.plan import Plan, compile_plan
from hotspare.model.events import UpdateBlocks
from hotspare.model.project import Connector, ConnectorDirection, WindowId
from hotspare.model.publishing import with_published_windows
from hotspare.model.resolved import Resolved
from hotspare.model.time_fields import time_fields
from hotspare.model.types import TIME_TYPES
from hotspare.model.window_type import type_of
from hotspare.projects.resolve import resolve

_PARQUET, _MAGIC = ".parquet", b"PAR1"


@dataclass(frozen=True)
class ReplayRequest:
    """The options of the command; windows are `query/window` texts. If `header_rows` is None, or `stamp_unit` or `date_format` is
    "", the setting of the window's connector applies. `form` is that of the files of `inputs` and `outputs`."""

    project: Path
    texts: tuple[str, ...]
    home: Path | None
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    bad: Path | None
    times: Mapping[str, str]
    header_rows: int | None
    messages_max: int
    style: FileStyle
    name: str = ""
    stamp_unit: str = ""
    date_format: str = ""
    form: CsvForm = CsvForm.EVENTS
    until: RunUntil = RunUntil.END


def prepare_replay(request: ReplayRequest) -> Replay:
    """Returns the replay that the options request. Raises UsageError for options that do not fit the project or each other,
    ProjectError for an invalid project."""
    if request.form is CsvForm.PLAIN:
        refuse_ineffective({"--header": request.header_rows}, "with --plain", "leave it out: titles name the columns")
    if not request.outputs and request.bad is None:
        raise UsageError("no output is given", hint="give --out CQ/WINDOW=FILE")
    loaded = loaded_project(request.project, request.texts, request.home, request.name)
    known = {str(window.id): window.id for window in loaded.resolved.windows}
    _check_names(request, known, loaded.resolved)
    project = loaded.project
    if request.outputs:
        project = with_published_windows(project, {known[name] for name in request.outputs})
    plan = compile_plan(resolve(project))
    home = request.home or request.project.parent
    files = [file for topic in range(len(plan.resolved.sources)) for file in _files(request, plan.resolved, topic, home)]
    if not files:
        raise UsageError("no source window has an input", hint="give --in CQ/WINDOW=FILE")
    _check_times(request, plan.resolved, files)
    files, untimed = _merged_by_time(request, plan.resolved, files)
    _check_distinct(request, files)
    _check_no_tables(request, files)
    for file in files:
        check_file(file)
    return Replay(
        plan=plan,
        files=files,
        outputs={name: local_file_path(file) for name, file in request.outputs.items()},
        rows=_output_rows(request, plan),
        updates=UpdateBlocks.COLLAPSED if request.form is CsvForm.PLAIN else UpdateBlocks.PAIRS,
        bad=request.bad,
        messages_max=request.messages_max,
        warnings=loaded.warnings,
        untimed=untimed,
        until=request.until,
    )


def _check_names(request: ReplayRequest, known: Mapping[str, WindowId], resolved: Resolved) -> None:
    sources = [str(source) for source in resolved.sources]
    for option, names, allowed in (
        ("--out", request.outputs, list(known)),
        ("--in", request.inputs, sources),
        ("--time", request.times, sources),
    ):
        for name in names:
            if name not in allowed:
                what = "window" if option == "--out" else "source window"
                raise UsageError(f"{option} names {name}, but the project has no such {what}", hint=f"it has {', '.join(allowed)}")


def _files(request: ReplayRequest, resolved: Resolved, topic: int, home: Path) -> list[ReplayFile]:
    """Returns the files of one inbound topic: the file that `--in` names, else the files of the window's connectors, relative to
    `home`."""
    window = resolved.sources[topic]
    schema = resolved.schema(window)
    connectors = [
        connector
        for connector in resolved.window(window).window.connectors
        if connector.kind == FILE_KIND and connector.direction is ConnectorDirection.PUBLISH
    ]
    given = request.inputs.get(str(window))
    rows = type_of(resolved.window(window).window).row_defaults(resolved.window(window).window)
    if given is not None:
        options = publish_options(connectors[0], schema, rows=rows) if connectors else PublishOptions(form=RowForm(schema=schema))
        if request.form is CsvForm.PLAIN:
            options = dataclasses.replace(options, form=dataclasses.replace(options.form, plain=rows), header_rows=0)
        found = [(local_file_path(given), options)]
    else:
        found = [(_existing(connector, home), publish_options(connector, schema, rows=rows)) for connector in connectors]
    return [
        ReplayFile(topic, path, schema, _for_replay(options, request), request.times.get(str(window), ""))
        for path, options in found
    ]


def _existing(connector: Connector, home: Path) -> Path:
    path = connector_file(connector, home)
    if not path.exists():
        raise UsageError(
            f"connector {connector.name} reads {path}, which does not exist",
            hint="give --home with the folder of its files, or --in CQ/WINDOW=FILE",
        )
    return path


def _for_replay(options: PublishOptions, request: ReplayRequest) -> PublishOptions:
    kept = options.header_rows if request.header_rows is None else request.header_rows
    form = options.form
    if request.stamp_unit:
        form = dataclasses.replace(form, stamp_unit=parse_stamp_unit_option(request.stamp_unit))
    if request.date_format:
        form = dataclasses.replace(form, date_format=request.date_format)
    return dataclasses.replace(options, form=form, header_rows=kept, growth=Growth.FIXED)


def _output_rows(request: ReplayRequest, plan: Plan) -> dict[str, OutputRows]:
    """Returns the form of the rows of each output file."""
    style, found = request.style, {}
    for name in request.outputs:
        if request.form is CsvForm.PLAIN:
            style = FileStyle.for_plain_files(plan.prefixes[name], request.date_format)
        found[name] = OutputRows(style, plan.stream_schemas[name])
    return found


def _check_times(request: ReplayRequest, resolved: Resolved, files: list[ReplayFile]) -> None:
    """Raises UsageError if a time is given for a window without input."""
    read = {str(resolved.sources[file.topic]) for file in files}
    for name in request.times:
        if name not in read:
            raise UsageError(
                f"--time names {name}, which has no input", hint=f"name one of {', '.join(sorted(read))}, or give --in"
            )


def _merged_by_time(request: ReplayRequest, resolved: Resolved, files: list[ReplayFile]) -> tuple[list[ReplayFile], list[str]]:
    """Returns the files with their time fields, and the sources that have fields of time but none named, so that their rows precede
    all others. Files are unchanged if only one source has input, or if a connector's rate determines times.
    Raises UsageError if a window uses the event time of a source whose time field is unknown.
    """
    if len({file.topic for file in files}) < 2 or any(file.options.rate for file in files):
        return files, []
    known = time_fields(resolved)
    fields = {str(source): field for source, field in known.fields.items()} | dict(request.times)
    for file in files:
        source = resolved.sources[file.topic]
        if str(source) not in fields and (why := known.unknown.get(source)):
            raise UsageError(
                f"the rows of {source} cannot be merged with those of other files by time",
                detail=why,
                hint=f"name the field: --time {source}=FIELD",
            )
    named = [(str(resolved.sources[file.topic]), file) for file in files]
    of_time = [name for name, file in named if any(field.type in TIME_TYPES for field in file.schema.fields)]
    untimed = [name for name in of_time if name not in fields] if fields else []
    return [dataclasses.replace(file, time_field=fields.get(name, "")) for name, file in named], untimed


def _check_distinct(request: ReplayRequest, files: list[ReplayFile]) -> None:
    """Raises UsageError if an output file is the same file as an input, the project or another output, even under another name."""
    taken = {_identity(path) for path in (request.project, *(file.path for file in files))}
    for path in _written(request):
        identity = _identity(path)
        if identity is not None and identity in taken:
            raise UsageError(f"file {path} would be overwritten", hint="name another file for each --out and --bad")
        taken.add(identity)


def _check_no_tables(request: ReplayRequest, files: list[ReplayFile]) -> None:
    """Raises UsageError for Parquet files, which only the partitioned runner reads and writes."""
    read = [file.path for file in files if _is_parquet(file.path)]
    written = [path for path in _written(request) if path.suffix == _PARQUET]
    if read or written:
        what = f"{read[0]} is Parquet, and this runner reads" if read else f"{written[0]} would be CSV, this runner writes"
        raise UsageError(f"{what} text only", hint="--runner partitioned reads and writes Parquet (docs/dataframes.md)")


def _written(request: ReplayRequest) -> list[Path]:
    """Returns the paths of all files that the replay writes."""
    return [*map(local_file_path, request.outputs.values()), *([] if request.bad is None else [request.bad])]


def _is_parquet(path: Path) -> bool:
    try:
        if path.is_dir():
            return any(path.glob(f"**/*{_PARQUET}"))
        if not path.is_file():
            return False  # opening a pipe would wait for its writer
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _identity(path: Path) -> tuple[int, int] | Path | None:
    """Returns a value that is equal for all names of a file; None for a pipe or a device, which may be written several times."""
    try:
        status = path.stat()
    except OSError:
        return path.resolve()
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
