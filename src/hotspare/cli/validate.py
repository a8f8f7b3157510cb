"""`hotspare validate`: shows all errors and warnings of a project, and the topics that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PREFIX, URL, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.run_settings import SnapshotsOption, snapshot_settings
from hotspare.cli.shared.values import HomeOption, ProjectNameOption, SetOption, ShardsOption

if TYPE_CHECKING:
    from hotspare.model.retention_needs import Finding
    from hotspare.operate.validating import Validation

_BUS_HELP = (
    "Ask this bus how long topics keep messages, and check the newest snapshot's age against it; by default only "
    "--topic-retention-ms counts."
)


def command(
    project: Annotated[Path, typer.Argument(help="Read the project from this file, YAML or ESP XML.", parser=absolute_path)],
    *,
    prefix: PrefixOption = PREFIX,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    home: HomeOption = None,
    topic_retention_ms: Annotated[
        int | None, typer.Option(min=1, help="Check windows against topics that keep messages this long (ms); else ask --bus.")
    ] = None,
    bus: Annotated[str, typer.Option(help=_BUS_HELP, **URL)] = "",
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    snapshots: SnapshotsOption = None,
    shards: ShardsOption = 1,
    check_code: Annotated[
        bool, typer.Option("--check-code", help="Run recorded input several times and check that user code gives equal outputs.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show each warning with place and reason; by default once for each kind.")
    ] = False,
    in_: Annotated[
        list[str] | None,
        typer.Option("--in", metavar="CQ/WINDOW=FILE", help="With --check-code: read this file; by default the connectors' files."),
    ] = None,
) -> None:
    """Check a project. Exit status 2 if it has mistakes, which are all shown, each with its place; 1 if its code differs."""
    from hotspare.base.interpreter import raise_gc_threshold

    raise_gc_threshold()
    from hotspare.bus.naming import checked_prefix
    from hotspare.cli.shared.project_file import loaded_project
    from hotspare.ha.rules.settings import GroupSettings
    from hotspare.model.mistakes import brief
    from hotspare.operate.groups import ServiceUrls
    from hotspare.operate.validating import ValidationRequest, validate

    checked_prefix(prefix)
    loaded = loaded_project(project, set_, home, project_name)
    settings, urls = GroupSettings(**snapshot_settings(snapshots or ())), ServiceUrls(bus, coordination, store)
    found = validate(ValidationRequest(loaded, prefix, shards, settings, urls, topic_retention_ms))
    for warning in loaded.warnings if verbose else brief(loaded.warnings):
        typer.echo(f"warning: {warning}", err=True)
    _print_findings(found.findings)
    _show(found, prefix)
    if shards > 1:
        _show_shards(found)
    typer.echo(str(found.bound))
    if not found.recent.refusals:
        typer.echo(str(found.recent))
    count = len(loaded.warnings) + found.warning_count
    typer.echo(f"project {found.project} has no mistakes and {count} warning{'' if count == 1 else 's'}")
    if check_code:
        _check_code(project, tuple(set_ or ()), project_name, home, in_ or ())


def _check_code(project: Path, texts: tuple[str, ...], name: str, home: Path | None, inputs: Sequence[str]) -> None:
    """Prints the differences between runs of the recorded input, and exits with status 1 if there are any."""
    import os

    from hotspare.adapters.files.output_rows import FileStyle
    from hotspare.cli.replaying.code_check import FIRST_RUN, OTHER_RUNS, check_code
    from hotspare.cli.replaying.plan import ReplayRequest, prepare_replay
    from hotspare.cli.shared.values import parse_path_assignments

    request = ReplayRequest(
        project=project,
        texts=texts,
        home=home,
        name=name,
        inputs=parse_path_assignments(inputs, "--in"),
        outputs={},
        bad=Path(os.devnull),
        times={},
        header_rows=None,
        messages_max=1,
        style=FileStyle(),
    )
    checked = check_code(prepare_replay(request))
    for each in checked.differences:
        typer.echo(f"output {each.sequence} of {each.stream} differs", err=True)
        typer.echo(f"    {FIRST_RUN.run_label}: {each.expected or 'there is none'}", err=True)
        typer.echo(f"    {each.differing_run.run_label}: {each.found or 'there is none'}", err=True)
    if checked.differences:
        raise typer.Exit(1)
    typer.echo(f"{checked.events} events give the same in all of {len(OTHER_RUNS) + 1} runs")


def _print_findings(findings: Sequence[Finding]) -> None:
    from hotspare.model.retention_needs import Severity

    for finding in findings:
        word = "note" if finding.severity is Severity.NOTE else "warning"
        typer.echo(f"{word}: {finding.message}", err=True)
        if finding.hint:
            typer.echo(f"    hint: {finding.hint}", err=True)


def _show(found: Validation, prefix: str) -> None:
    from hotspare.bus.naming import group_name
    from hotspare.cli.shared.display import print_table

    rows = [(each.window, each.type, each.index, ", ".join(each.inputs), each.schema) for each in found.windows]
    print_table(f"Windows of {found.project}, in order of evaluation", ("window", "type", "index", "inputs", "schema"), rows)
    topics = [(each.kind, each.window, each.topic) for each in found.topics]
    print_table(f"Topics of group {group_name(prefix, found.project)}", ("kind", "window", "topic"), topics)


def _show_shards(found: Validation) -> None:
    """Prints the groups and partitions of the divided project, and notes about windows whose results depend on the division."""
    shards = len(found.groups)
    typer.echo(f"in {shards} shards it is the groups {found.groups[0]} to {found.groups[-1]}; each topic has {shards} partitions")
    for source, field in found.partition_fields.items():
        typer.echo(f"rows of {source} go into partition murmur2({field}) mod {shards}")
    for window in found.shard_dependent:
        typer.echo(f"note: what {window} forgets follows the newest row of any key in its shard", err=True)
