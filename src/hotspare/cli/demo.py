"""`hotspare demo`: kills and freezes processes of a working group of engines on this machine, and checks its output."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.choices import DemoProject

if TYPE_CHECKING:
    from hotspare.demo.scenario import DemoReport
    from hotspare.demo.site import Site


class _Bus(StrEnum):
    sqlite = "sqlite"
    kafka = "kafka"


_PROJECT_HELP = (
    "Run one of two projects, not with --cluster: memory sums readings; windows has aggregate, join, pattern, Python and Lua "
    "windows."
)
_SPARES_HELP = "Start this many hot spares in addition to the active engine; not with --cluster."
_CLUSTER_HELP = "Run two Spark applications that host four shards, and kill and freeze their executors, workers and drivers."
_BUS_HELP = "Use this kind of bus: sqlite needs no server; kafka starts three brokers and a ZooKeeper, and stops one broker."


def command(
    events: Annotated[int, typer.Option(min=100, help="Publish this many readings.")] = 20_000,
    rate: Annotated[float, typer.Option(min=1, help="Publish this many readings per second.")] = 500.0,
    kills: Annotated[
        int, typer.Option(min=0, help="Kill or freeze the active engine, or kill its JVM, this many times in all.")
    ] = 4,
    spares: Annotated[int, typer.Option(min=1, help=_SPARES_HELP)] = 1,
    bus: Annotated[_Bus, typer.Option(help=_BUS_HELP)] = _Bus.sqlite,
    project: Annotated[DemoProject, typer.Option(help=_PROJECT_HELP)] = DemoProject.MEMORY,
    cluster: Annotated[bool, typer.Option("--cluster", help=_CLUSTER_HELP)] = False,  # noqa: FBT002
    keep: Annotated[bool, typer.Option("--keep", help="Keep all results; by default only after failure.")] = False,  # noqa: FBT002
) -> None:
    """Start engines, publish, kill, and compare: exit status 0 only if nothing is lost, doubled or wrong."""
    from hotspare.cli.shared.values import refuse_ineffective
    from hotspare.demo.availability import availability_sentence

    if cluster:
        asked = {"--spares": spares != 1, "--project": project is not DemoProject.MEMORY}
        refuse_ineffective(asked, "with --cluster", "leave it out: two applications run one project")
    folder = Path(tempfile.mkdtemp(prefix="hotspare-demo-"))
    is_exact = False
    try:
        with _site(bus, folder) as site:
            if cluster:
                report = _run_applications_demo(folder, site, events, rate, kills)
            else:
                report = _run_engines_demo(folder, site, events, rate, kills, spares, project)
        is_exact = report.is_exact
        if said := availability_sentence([gap.gap_ms for gap in report.gaps]):
            typer.echo(said, err=True)
        typer.echo(report.last_line())
    finally:
        if keep or not is_exact:
            typer.echo(f"bus, logs and results are in {folder}", err=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    raise typer.Exit(0 if is_exact else 1)


def _run_engines_demo(
    folder: Path, site: Site, events: int, rate: float, kills: int, spares: int, project: DemoProject
) -> DemoReport:
    from hotspare.demo.faults import plan_faults
    from hotspare.demo.scenario import Demo, DemoOptions
    from hotspare.demo.show import Show, engines_table

    options = DemoOptions(folder, site, events, rate, tuple(plan_faults(kills)), spares, project=project)
    with Show(site) as show:
        demo = Demo(options, show.print_step)
        show.show_table(engines_table(demo))
        return demo.run()


def _run_applications_demo(folder: Path, site: Site, events: int, rate: float, kills: int) -> DemoReport:
    from hotspare.demo.applications import ApplicationsDemo, ApplicationsOptions, plan_strikes
    from hotspare.demo.show import Show, shards_table

    options = ApplicationsOptions(folder, site, events, rate, strikes=plan_strikes(kills))
    with Show(site) as show:
        demo = ApplicationsDemo(options, show.print_step)
        show.show_table(shards_table(demo))
        return demo.run()


def _site(bus: _Bus, folder: Path) -> AbstractContextManager[Site]:
    from hotspare.demo.site import embedded

    if bus is _Bus.sqlite:
        return nullcontext(embedded(folder))
    from hotspare.demo.servers import kafka_and_zookeeper

    typer.echo("starting three kafka brokers and a zookeeper", err=True)
    return kafka_and_zookeeper(folder)
