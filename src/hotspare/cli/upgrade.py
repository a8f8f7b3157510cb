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
    from hotspare.operate.upgrade_steps import UpgradeMethod
    from hotspare.operate.upgrading import UpgradePlan
    from hotspare.stores.contract import SnapshotInfo

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
    from hotspare.operate.groups import UnseenEngines, existing_bus, existing_coordination, refuse_if_alive
    from hotspare.operate.upgrade_steps import UpgradeMethod, UpgradeStep, describe_agreement, perform_upgrade_step
    from hotspare.operate.upgrading import GroupServices, UpgradeRequest, plan_upgrade, upgrade
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
        step = UpgradeStep(places, checked_prefix(prefix), shards, timeout_s)
        if dry_run or way is not UpgradeMethod.STOPPED:
            states = (f"{each.group}: {describe_agreement(step, each)}" for each in found)
            for line in states if dry_run else perform_upgrade_step(way, step, found):
                typer.echo(line)
            return
        for each in (each for each in found if not each.is_done):
            refuse_if_alive(service, each.group, UnseenEngines.GONE if force else UnseenEngines.UNKNOWN)
        for each in found:
            outcome = "runs this project already" if each.is_done else _outcome(upgrade(each, places))
            typer.echo(f"{each.group}: {outcome}")


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
    """Prints each distinct change once, under its first group. Raises UsageError if a group cannot be upgraded to the project."""
    from hotspare.base.errors import UsageError

    shown: list[Upgrade] = []
    for each in found:
        if each.change not in shown:
            shown.append(each.change)
            _print_change(each.group, each.change)
    if refusals := [refusal for each in found for refusal in each.change.refusals]:
        raise UsageError("the project cannot be upgraded", detail="\n  ".join(dict.fromkeys(refusals)))


def _print_change(group: str, change: Upgrade) -> None:
    from hotspare.cli.shared.display import print_table

    rows = [(str(each.window), each.fate.value, "; ".join(each.reasons)) for each in change.windows]
    print_table(f"Windows of group {group}", ("window", "its state", "because"), rows)
    print_table("Output streams", ("stream", "its future"), [(name, fate.value) for name, fate in change.streams.items()])
    for window in change.new_topics:
        typer.echo(f"source window {window} gets a topic")
    for window in change.removed_topics:
        typer.echo(f"the topic of source window {window} is no longer read, and stays")


def _outcome(info: SnapshotInfo | None) -> str:
    if info is None:
        return "upgraded; its engines rebuild their state from the topics: start them with the changed project"
    return f"upgraded, from snapshot {info.name} at position {info.order}: start its engines with the changed project"
