"""`hotspare upgrade`: lets a group continue with a changed project, from its present state (SPEC Z4-Z6)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hotspare.base.places import absolute_path
from hotspare.cli.shared.places import PREFIX, BusOption, CoordinationOption, PrefixOption, StoreOption
from hotspare.cli.shared.values import ProjectNameOption, SetOption, ShardsOption

if TYPE_CHECKING:
    from hotspare.flow.upgrade import Upgrade
    from hotspare.operate.upgrade_steps import ProjectEngines, UpgradeMethod, UpgradeStepResult
    from hotspare.operate.upgrading import Upgraded, UpgradePlan

_TimeoutOption = Annotated[
    float,
    typer.Option(
        help="With --lead or --back: wait at most this many seconds until an engine of that project has caught up and is active."
    ),
]


def command(
    project: Annotated[Path, typer.Argument(help="Upgrade to the project in this file, YAML or ESP XML.", parser=absolute_path)],
    *,
    bus: BusOption,
    coordination: CoordinationOption = "",
    store: StoreOption = "",
    prefix: PrefixOption = PREFIX,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report the effect; by default upgrade, too.")] = False,
    empty: Annotated[bool, typer.Option("--empty", help="Empty changed windows, even if the topics hold all input.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Upgrade even if engines on other machines may be alive.")] = False,
    set_: SetOption = None,
    project_name: ProjectNameOption = "",
    shards: ShardsOption = 1,
    beside: Annotated[
        bool, typer.Option("--beside", help="Keep engines running, and let those of the changed project start as spares.")
    ] = False,
    lead: Annotated[bool, typer.Option("--lead", help="After --beside: make an engine of the changed project active.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="After --lead: end the engines of the previous project.")] = False,
    back: Annotated[bool, typer.Option("--back", help="Make the previous project active again; other engines end.")] = False,
    timeout_s: _TimeoutOption = 30.0,
) -> None:
    """Report the effect of a changed project on each window of the group that runs it, and upgrade the group.

    Stop its engines before, and start them with the changed project afterwards. Or keep them running, and take the three
    steps with running engines (docs/upgrade.md). To go back, upgrade to the old project.
    """
    from hotspare.base.shard import shards_of
    from hotspare.bus.naming import checked_prefix, group_name
    from hotspare.cli.shared.project_file import loaded_project
    from hotspare.flow.plan import compile_plan
    from hotspare.flow.upgrade import Past
    from hotspare.operate.groups import UnseenEngines, existing_bus, existing_coordination
    from hotspare.operate.upgrade_steps import UpgradeMethod, UpgradeStep, perform_upgrade_step, running_projects
    from hotspare.operate.upgrading import GroupServices, UpgradeRequest, plan_upgrade, refuse_impossible, upgrade_stopped
    from hotspare.stores.open import default_store_url, open_store

    way = _way(beside=beside, lead=lead, finish=finish, back=back)
    _refuse_needless(way, empty=empty, force=force)
    loaded = loaded_project(project, set_, name=project_name)
    with ExitStack() as stack:
        opened, service = existing_bus(stack, bus), existing_coordination(stack, coordination, bus)
        kept = open_store(store or default_store_url(bus))
        stack.callback(kept.close)
        places = GroupServices(opened, service, kept)
        wish = UpgradeRequest(compile_plan(loaded.resolved), checked_prefix(prefix), Past.UNASKED if empty else Past.WHOLE)
        name = loaded.project.name
        found = [plan_upgrade(group_name(prefix, name, shard), shard, wish, places) for shard in shards_of(shards)]
        _show(found)
        refuse_impossible(found)
        step = UpgradeStep(places, checked_prefix(prefix), shards, timeout_s)
        if dry_run:
            for each in found:
                typer.echo(f"{each.group}: {'; '.join(map(_project_text, running_projects(step, each)))}")
        elif way is not UpgradeMethod.STOPPED:
            for result in perform_upgrade_step(way, step, found):
                typer.echo(f"{result.group}: {_step_text(result)}")
        else:
            for done in upgrade_stopped(found, places, UnseenEngines.GONE if force else UnseenEngines.UNKNOWN):
                typer.echo(f"{done.group}: {_outcome(done)}")


def _way(**said: bool) -> UpgradeMethod:
    """Returns the upgrade method whose option is set, STOPPED if none is. Raises UsageError if two are set."""
    from hotspare.base.errors import UsageError
    from hotspare.operate.upgrade_steps import UpgradeMethod

    found = [each for each in UpgradeMethod if said.get(each.value, False)]
    if len(found) > 1:
        raise UsageError(f"--{found[0].value} and --{found[1].value} contradict each other", hint="take one step after the other")
    return found[0] if found else UpgradeMethod.STOPPED


def _refuse_needless(way: UpgradeMethod, **said: bool) -> None:
    """Raises UsageError for an option that is set but has no effect with this method."""
    from hotspare.base.errors import UsageError
    from hotspare.operate.upgrade_steps import UpgradeMethod

    heeding = {"force": (UpgradeMethod.STOPPED,), "empty": (UpgradeMethod.STOPPED, UpgradeMethod.BESIDE)}
    for option, ways in heeding.items():
        if said.get(option, False) and way not in ways:
            when = " and ".join(
                "while no engine runs" if each is UpgradeMethod.STOPPED else f"with --{each.value}" for each in ways
            )
            raise UsageError(f"--{option} has no effect with --{way.value}", hint=f"--{option} has an effect {when}")


def _show(found: list[UpgradePlan]) -> None:
    """Prints each distinct change once, under its first group."""
    shown: list[Upgrade] = []
    for each in found:
        if each.change not in shown:
            shown.append(each.change)
            _print_change(each.group, each.change)


def _print_change(group: str, change: Upgrade) -> None:
    from hotspare.cli.shared.display import print_table

    rows = [(str(each.window), each.fate.value, "; ".join(each.reasons)) for each in change.windows]
    print_table(f"Windows of group {group}", ("window", "its state", "because"), rows)
    print_table("Output streams", ("stream", "its future"), [(name, fate.value) for name, fate in change.streams.items()])
    for window in change.new_topics:
        typer.echo(f"source window {window} gets a topic")
    for window in change.removed_topics:
        typer.echo(f"the topic of source window {window} is no longer read, and stays")


def _outcome(done: Upgraded) -> str:
    if not done.has_changed:
        return "runs this project already"
    if done.start is None:
        return "upgraded; its engines rebuild their state from the topics: start them with the changed project"
    return f"upgraded, from snapshot {done.start.name} at position {done.start.order}: start its engines with the changed project"


def _project_text(each: ProjectEngines) -> str:
    what = "this project" if each.is_changed else "the other project"
    active = f", {each.active} is active" if each.active else ""
    return f"{what} {'leads' if each.is_leading else 'takes part'} (engines: {', '.join(each.engines) or 'none'}{active})"


def _step_text(result: UpgradeStepResult) -> str:
    from hotspare.cli.switchover import switchover_sentence
    from hotspare.operate.upgrade_steps import UpgradeOutcome

    moved = "" if result.switchover is None else switchover_sentence(result.switchover)
    start = result.start
    place = "from the topics" if start is None else f"from snapshot {start.name} at position {start.order}"
    return {
        UpgradeOutcome.DONE: "runs this project alone already",
        UpgradeOutcome.OFFERED: f"engines of the changed project may start, {place}: start them, and continue with --lead when "
        "they have caught up",
        UpgradeOutcome.LEADS: moved,
        UpgradeOutcome.TAKEN_BACK: f"{moved}; engines of the changed project end by themselves",
        UpgradeOutcome.NOT_BEGUN: "does not run this project",
        UpgradeOutcome.FINISHED: "the changed project is the only one; engines of the previous one end by themselves",
    }[result.outcome]
