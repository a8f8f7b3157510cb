"""`hotspare validate`: shows all errors and warnings of a project, and the topics that it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PREFIX, URL, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.run_settings import SnapshotsOption, snapshot_settings
from hotspare.cli.shared.values import HomeOption, ProjectNameOption, SetOption, ShardsOption

if TYPE_CHECKING:
    from hotspare.flow.plan import Plan
    from hotspare.model.resolved import Resolved
    from hotspare.model.retention_needs import Finding

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
    from hotspare.base.shard import shards_of
    from hotspare.bus.naming import checked_prefix, group_name
    from hotspare.cli.shared.project_file import loaded_project
    from hotspare.flow.plan import compile_plan
    from hotspare.model.mistakes import brief
    from hotspare.model.partitioning import refused_shards
    from hotspare.model.recent_input import recent_input
    from hotspare.model.retention_needs import state_bound

    checked_prefix(prefix)
    loaded = loaded_project(project, set_, home, project_name)
    plan = compile_plan(loaded.resolved)
    if (refusal := refused_shards(loaded.resolved, shards)) is not None:
        raise refusal
    groups = [group_name(prefix, loaded.project.name, shard) for shard in shards_of(shards)]
    findings = _retention(plan, prefix, topic_retention_ms, _Places(bus, coordination, store), snapshots or (), groups)
    for warning in loaded.warnings if verbose else brief(loaded.warnings):
        typer.echo(f"warning: {warning}", err=True)
    count = len(loaded.warnings) + _report_findings(findings)
    _show(loaded.resolved, prefix)
    if shards > 1:
        _show_shards(plan, prefix, shards)
    typer.echo(str(state_bound(loaded.resolved, plan.windows_with_rows)))
    if not (recent := recent_input(loaded.resolved, plan.windows_with_rows)).refusals:
        typer.echo(str(recent))
    typer.echo(f"project {loaded.project.name} has no mistakes and {count} warning{'' if count == 1 else 's'}")
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


class _Places(NamedTuple):
    """The URLs of bus, coordination and store; "" if not given."""

    bus: str
    coordination: str
    store: str


def _retention(
    plan: Plan,
    prefix: str,
    topic_retention_ms: int | None,
    places: _Places,
    snapshots: Sequence[str],
    groups: Sequence[str],
) -> tuple[Finding, ...]:
    """Returns the findings about the retention of topics, and about the age of the newest snapshot in the store.
    `topic_retention_ms` overrides what the bus reports. Without a bus, the age is not checked."""
    import time
    from contextlib import ExitStack

    from hotspare.ha.rules.settings import GroupSettings
    from hotspare.model.retention_needs import check_retention

    resolved = plan.resolved
    given = {} if topic_retention_ms is None else dict.fromkeys(resolved.sources, topic_retention_ms)
    reach = GroupSettings(**snapshot_settings(snapshots)).snapshot_reach
    if not places.bus:
        return check_retention(resolved, plan.windows_with_rows, given, reach)

    from hotspare.host.topic_checks import check_newest_snapshot, topic_retentions
    from hotspare.operate.groups import existing_bus, existing_coordination, existing_snapshots
    from hotspare.stores.open import bus_store_url

    with ExitStack() as stack:
        opened = existing_bus(stack, places.bus)
        retentions = {**topic_retentions(opened, prefix, resolved), **given}
        findings = check_retention(resolved, plan.windows_with_rows, retentions, reach)
        if not retentions or not (places.coordination or places.store or bus_store_url(places.bus)):
            return findings
        kept = existing_snapshots(stack, places.store, places.bus, existing_coordination(stack, places.coordination, places.bus))
        if kept is None:
            return findings
        now_us = time.time_ns() // 1000
        ages = (check_newest_snapshot(kept, group, retentions, now_us) for group in groups)
        return (*findings, *(finding for each in ages for finding in each))


def _report_findings(findings: tuple[Finding, ...]) -> int:
    """Prints the findings. Returns the number of findings other than notes."""
    from hotspare.model.retention_needs import Severity

    for finding in findings:
        word = "note" if finding.severity is Severity.NOTE else "warning"
        typer.echo(f"{word}: {finding.message}", err=True)
        if finding.hint:
            typer.echo(f"    hint: {finding.hint}", err=True)
    return sum(finding.severity is not Severity.NOTE for finding in findings)


def _show(resolved: Resolved, prefix: str) -> None:
    from hotspare.bus.naming import bad_topic, group_name, outbound_topic
    from hotspare.cli.shared.display import print_table
    from hotspare.host.topics import source_topic
    from hotspare.model.window_type import type_of
    from hotspare.rows.batch import BAD_STREAM

    name = resolved.project.name
    rows = [
        (
            str(window.id),
            type_of(window.window).name,
            window.window.index.value,
            ", ".join(str(source) for source, _ in window.inputs),
            str(window.schema),
        )
        for window in resolved.windows
    ]
    print_table(f"Windows of {name}, in order of evaluation", ("window", "type", "index", "inputs", "schema"), rows)
    topics = [("input", str(w), source_topic(resolved, prefix, w)) for w in resolved.sources]
    topics += [("output", str(w), outbound_topic(prefix, name, w.query, w.window)) for w in resolved.streams]
    topics.append(("bad events", BAD_STREAM, bad_topic(prefix, name)))
    print_table(f"Topics of group {group_name(prefix, name)}", ("kind", "window", "topic"), topics)


def _show_shards(plan: Plan, prefix: str, shards: int) -> None:
    """Prints the groups and partitions of the divided project, and notes about windows whose results depend on the division."""
    from hotspare.base.shard import Shard
    from hotspare.bus.naming import group_name
    from hotspare.model.partitioning import partition_fields

    by = partition_fields(plan.resolved)
    first, last = (group_name(prefix, plan.resolved.project.name, Shard(number, shards)) for number in (0, shards - 1))
    typer.echo(f"in {shards} shards it is the groups {first} to {last}; each topic has {shards} partitions")
    for source, field in by.items():
        typer.echo(f"rows of {source} go into partition murmur2({field}) mod {shards}")
    for node in plan.nodes:
        if node.operator.clock.has_event_time:
            typer.echo(f"note: what {node.operator.id} forgets follows the newest row of any key in its shard", err=True)
