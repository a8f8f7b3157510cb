"""`hotspare replay`: runs a project over files to their end, without high availability, and writes its outputs as CSV."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import CsvForm, Doubles, HeadPlace, RunnerKind, RunUntil
from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PATH
from hotspare.cli.shared.values import (
    CODE_DEADLINE_MS,
    DateFormatOption,
    DoublesOption,
    HomeOption,
    MemoryOption,
    PageFolderOption,
    PlainOption,
    ProjectNameOption,
    SetOption,
    StampUnitOption,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from hotspare.cli.replaying.plan import ReplayRequest
    from hotspare.cli.replaying.run import Replay, ReplayCounts


_RUNNER_HELP = "Use this runner: local needs no Spark; partitioned divides Parquet tables by key, with equal outputs per key."
InOption = Annotated[
    list[str] | None,
    typer.Option("--in", metavar="CQ/WINDOW=FILE", help="Read this file into a source window; by default its connectors' files."),
]
OutOption = Annotated[
    list[str] | None, typer.Option("--out", metavar="CQ/WINDOW=FILE", help="Write the outputs of any window to this file.")
]
MasterOption = Annotated[
    str, typer.Option(metavar="URL", help="With --runner partitioned: use this Spark master; by default all cores of this machine.")
]
TimeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--time",
        metavar="CQ/WINDOW=FIELD",
        help="Read the time of the rows from this field; by default the one that the windows use.",
    ),
]
HeaderOption = Annotated[
    int | None, typer.Option(min=0, help="Skip this many rows at the start of each --in; by default the connector's setting.")
]
UntilOption = Annotated[
    RunUntil,
    typer.Option(
        help="After the last row, advance time until all time limits of patterns have expired (end), or not at all (last-row)."
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="With --runner partitioned: set this Spark option; may be repeated."),
]
CodeDeadlineOption = Annotated[
    int,
    typer.Option(
        metavar="MS",
        min=0,
        help="If one call of user code uses this many ms of processor time, make its event a bad event, and begin again; 0: never.",
    ),
]
BatchOption = Annotated[
    int, typer.Option(min=1, help="Process at most this many messages at once; the outputs do not depend on it.")
]


def command(
    project: Annotated[Path, typer.Argument(help="Read the project from this file, YAML or ESP XML.", parser=absolute_path)],
    *,
    in_: InOption = None,
    out: OutOption = None,
    bad: Annotated[Path | None, typer.Option(help="Write bad events to this file; by default only count them.", **PATH)] = None,
    runner: Annotated[RunnerKind, typer.Option(help=_RUNNER_HELP)] = RunnerKind.LOCAL,
    master: MasterOption = "",
    conf: ConfOption = None,
    head: Annotated[HeadPlace, typer.Option(help="With --runner ordered: decode events in this place.")] = HeadPlace.WORKERS,
    batch: BatchOption = 5_000,
    time: TimeOption = None,
    until: UntilOption = RunUntil.END,
    plain: PlainOption = False,
    header: HeaderOption = None,
    dateformat: DateFormatOption = "",
    stamp_unit: StampUnitOption = "",
    doubles: DoublesOption = Doubles.FIXED,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    memory: MemoryOption = "",
    page_folder: PageFolderOption = None,
    home: HomeOption = None,
    code_deadline_ms: CodeDeadlineOption = CODE_DEADLINE_MS,
) -> None:
    """Run a project over files to their end. Nothing waits for a clock; equal files give equal outputs.

    Several files are merged by time: by the fields of --time, else by those that the project names. Rows of equal time are ordered
    by the names of their source windows. Rows without a time come first. At the end of the input, time
    advances until all time limits of patterns have expired.
    """
    from hotspare.adapters.files.output_rows import FileStyle
    from hotspare.cli.replaying.plan import ReplayRequest
    from hotspare.cli.shared.values import csv_style, parse_assignments, parse_path_assignments

    request = ReplayRequest(
        project=project,
        texts=tuple(set_ or ()),
        home=home,
        name=project_name,
        inputs=parse_path_assignments(in_ or (), "--in"),
        outputs=parse_path_assignments(out or (), "--out"),
        bad=bad,
        times=parse_assignments(time or (), "--time", "FIELD"),
        header_rows=header,
        stamp_unit=stamp_unit,
        date_format=dateformat,
        form=CsvForm.PLAIN if plain else CsvForm.EVENTS,
        messages_max=batch,
        until=until,
        style=FileStyle(columns=csv_style(doubles), date_format=dateformat),
    )
    of_files = _file_options(request, memory, page_folder, code_deadline_ms)
    _check_use(runner, head, doubles, of_files, {"--master": master, "--conf": conf})
    if runner is RunnerKind.PARTITIONED:
        _run_tables(request, master, conf or ())
        return
    _run(_prepared(request, memory, page_folder, code_deadline_ms), runner, head)


def _prepared(request: ReplayRequest, memory: str, page_folder: Path | None, code_deadline_ms: int) -> Replay:
    """Returns the replay with its memory budget and its watched calls, and prints warnings."""
    from hotspare.cli.replaying.plan import prepare_replay
    from hotspare.cli.shared.values import parse_memory_option
    from hotspare.host.watchdog.attach import watched_calls
    from hotspare.table.page_cache.open import page_cache_for

    budget, replay = parse_memory_option(memory, page_folder), prepare_replay(request)
    _warn(replay)
    calls = watched_calls(replay.plan, code_deadline_ms)
    return dataclasses.replace(replay, page_budget=page_cache_for(budget, page_folder), calls=calls)


def _warn(replay: Replay) -> None:
    from hotspare.model.mistakes import brief

    for warning in brief(replay.warnings):
        typer.echo(f"warning: {warning}", err=True)
    for name in replay.untimed:
        typer.echo(f"warning: all rows of {name} come before those of other files; to merge them: --time {name}=FIELD", err=True)


def _file_options(request: ReplayRequest, memory: str, page_folder: Path | None, code_deadline_ms: int) -> dict[str, object]:
    """Returns the options that only runners of text files support, by name, with their values."""
    return {
        "--plain": request.form is CsvForm.PLAIN,
        "--header": request.header_rows,
        "--dateformat": request.date_format,
        "--stamp-unit": request.stamp_unit,
        "--memory": memory,
        "--page-folder": page_folder,
        "--code-deadline-ms": code_deadline_ms != CODE_DEADLINE_MS,
    }


def _check_use(
    runner: RunnerKind, head: HeadPlace, doubles: Doubles, of_files: Mapping[str, object], of_spark: Mapping[str, object]
) -> None:
    """Raises UsageError for options that have no effect with this runner. `of_files`: options for text files; `of_spark`: options
    for --runner partitioned."""
    from hotspare.cli.shared.values import refuse_ineffective

    decodes = {"--head": head is HeadPlace.DRIVER}
    if runner is RunnerKind.PARTITIONED:
        idle = {**of_files, **decodes, "--doubles": doubles is Doubles.EXACT}
        refuse_ineffective(idle, "with --runner partitioned", "leave it out")
        return
    refuse_ineffective(of_spark, "without --runner partitioned", "add it, or leave them out")
    if runner is RunnerKind.LOCAL:
        refuse_ineffective(decodes, "with --runner local", "write --runner ordered, or leave it out")


def _run_tables(request: ReplayRequest, master: str, conf: Sequence[str]) -> None:
    from hotspare.cli.shared.display import progress_bar
    from hotspare.cli.shared.values import parse_properties, parse_spark_settings
    from hotspare.spark.replay import TablesRequest, replay_tables

    tables = TablesRequest(
        project=request.project,
        inputs=request.inputs,
        outputs=request.outputs,
        times=request.times,
        bad=str(request.bad) if request.bad else "",
        master=master or "local[*]",
        conf=parse_spark_settings(conf),
        properties=parse_properties(request.texts),
        home=request.home,
        name=request.name,
        until=request.until,
    )
    with progress_bar(f"replay {request.name or request.project.stem}") as show:
        found = replay_tables(tables, lambda done, total, stages: show(done, total, f"tasks of {stages}"))
    if found.undivided:
        typer.echo(f"one task got all rows: {found.undivided}", err=True)
    for window, rows in found.rows.items():
        typer.echo(f"{window}: {rows} rows", err=True)


def _run(replay: Replay, runner: RunnerKind, head: HeadPlace) -> None:
    from dataclasses import replace

    from hotspare.adapters.recording import RecordingProgress
    from hotspare.base.interpreter import freeze_existing_objects, keep_freed_memory
    from hotspare.cli.replaying.run import run_local, run_ordered
    from hotspare.cli.shared.display import progress_bar
    from hotspare.cli.shared.interrupt import stop_on_signal

    keep_freed_memory()
    freeze_existing_objects()
    with stop_on_signal() as stop, progress_bar(f"replay {replay.plan.resolved.project.name}") as show:

        def report(now: RecordingProgress) -> None:
            show(now.bytes_read, now.bytes_total, f"{now.events} events")

        running = replace(replay, stop=stop, report=report, on_trace=_print_trace, on_trouble=_print_replay_warning)
        counts = run_local(running) if runner is RunnerKind.LOCAL else run_ordered(running, head)
        stopped = stop.is_set()
    _summary(counts, replay)
    if stopped:
        typer.echo("stopped before the end of the input", err=True)
        raise typer.Exit(1)


def _print_trace(window: str, events: pa.RecordBatch) -> None:
    from hotspare.formats.csv.rows import CsvStyle, row_texts

    for row in row_texts(events, CsvStyle.EXACT):
        typer.echo(f"trace {window}: {row}", err=True)


def _print_replay_warning(sentence: str) -> None:
    typer.echo(f"warning: {sentence}", err=True)


def _summary(counts: ReplayCounts, replay: Replay) -> None:
    """Prints the number of events read, of rows written to each file, and of bad events."""
    from hotspare.rows.batch import BAD_STREAM

    written = ", ".join(f"{counts.rows.get(name, 0)} rows of {name}" for name in sorted(replay.outputs))
    bad = counts.rows.get(BAD_STREAM, 0)
    where = " (--bad FILE shows them with reasons)" if bad and replay.bad is None else ""
    typer.echo(f"{counts.events} events in; out: {written or 'nothing'}; bad events: {bad}{where}", err=True)
