"""Upgrades a group while its engines run, in steps: both projects run side by side, then the active role moves, or moves back.

The decision which project leads is recorded first, and the switch-over is requested after it. So engines follow the decision even
if the caller crashes, and a repeated step continues after an interruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from hotspare.adapters.metadata import describe, publish_metadata
from hotspare.base.errors import UsageError
from hotspare.base.retry import Retry
from hotspare.coordination.contract import Coordination, Member
from hotspare.flow.plan import compile_plan
from hotspare.ha.effects.joining import never_started_error
from hotspare.ha.effects.upgrading import agreement, record_cut_over
from hotspare.ha.member_record import PROJECT, is_differing, positions_of, rank_of
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.upgrading import Agreement, CutOver, CutOverKind, ProjectVersion
from hotspare.operate.groups import participating_members
from hotspare.operate.switchover import Switchover, request_switchover_and_wait
from hotspare.operate.upgrading import GroupServices, UpgradePlan, offer
from hotspare.projects.fingerprint import from_document
from hotspare.projects.resolve import resolve
from hotspare.stores.contract import SnapshotInfo

_POLL_S = 0.1


class UpgradeMethod(Enum):
    """The ways to upgrade a group: while it is stopped, or by one of the steps with running engines."""

    STOPPED = "stopped"
    BESIDE = "beside"
    LEAD = "lead"
    BACK = "back"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """The arguments of a step, which is performed for all groups of a project. `shards`: the number of the project's shards."""

    group_services: GroupServices
    prefix: str
    shards: int
    timeout_s: float


class UpgradeOutcome(Enum):
    """The result of a step in one group."""

    DONE = "the group runs the changed project alone already"
    OFFERED = "engines of the changed project may start"
    LEADS = "the changed project leads"
    TAKEN_BACK = "the previous project leads again"
    NOT_BEGUN = "the group does not run the changed project"
    FINISHED = "the changed project is the only one"


@dataclass(frozen=True, slots=True)
class UpgradeStepResult:
    """The result of a step in one group. `start`: the snapshot from which engines of the changed project start after OFFERED, None
    if they rebuild their state from the topics. `switchover`: the active engine after LEADS and TAKEN_BACK."""

    group: str
    outcome: UpgradeOutcome
    start: SnapshotInfo | None = None
    switchover: Switchover | None = None


@dataclass(frozen=True, slots=True)
class ProjectEngines:
    """A project that a group runs, with its engines that have a recent record. `active`: the active engine if it is one of them,
    else ""."""

    is_changed: bool
    is_leading: bool
    engines: tuple[str, ...]
    active: str


def running_projects(step: UpgradeStep, planned: UpgradePlan) -> tuple[ProjectEngines, ...]:
    """Returns the projects that a group runs, the leading one first; `is_changed` is true for the planned one. Raises UsageError if
    no engine ever started."""
    known = recorded_agreement(step.group_services.coordination, planned.group)
    holder = step.group_services.coordination.leader(planned.group).holder
    sides = [_side(step, planned, each) for each in (known.leading, known.other) if each is not None]
    return tuple(
        ProjectEngines(
            is_changed=planned.is_for(side.version),
            is_leading=side.version.number == known.leading.number,
            engines=tuple(member.engine for member in side.members),
            active=holder if side.has_engine_named(holder) else "",
        )
        for side in sides
    )


def start_side_by_side(step: UpgradeStep, planned: UpgradePlan) -> UpgradeStepResult:
    """Allows engines of the changed project to start as spares. Raises UsageError if the upgrade is not possible."""
    if planned.is_done:
        return UpgradeStepResult(planned.group, UpgradeOutcome.DONE)
    return UpgradeStepResult(planned.group, UpgradeOutcome.OFFERED, start=offer(planned, step.group_services))


def switch_to_changed(step: UpgradeStep, planned: UpgradePlan) -> UpgradeStepResult:
    """Makes the changed project lead, and one of its engines active. Raises UsageError if no engine of it has caught up within the
    step's time."""
    if planned.is_done:
        return UpgradeStepResult(planned.group, UpgradeOutcome.DONE)
    known, version = _agreement_and_offered(step, planned)
    return UpgradeStepResult(planned.group, UpgradeOutcome.LEADS, switchover=_give_lead(step, planned, known, version))


def roll_back_upgrade(step: UpgradeStep, planned: UpgradePlan) -> tuple[UpgradeStepResult, Agreement | None]:
    """Makes the earlier project lead again and one of its engines active. Also returns the agreement to settle, None if the group
    runs one project only and not this one. Raises UsageError if the two projects do not run side by side, or no engine of the
    earlier one has caught up within the step's time."""
    if planned.group_agreement.other is None and not planned.is_done:
        return UpgradeStepResult(planned.group, UpgradeOutcome.NOT_BEGUN), None
    known, version = _agreement_and_offered(step, planned)
    before = next(each for each in (known.leading, known.other) if each is not None and each is not version)
    moved = _give_lead(step, planned, known, before)
    now = recorded_agreement(step.group_services.coordination, planned.group)
    return UpgradeStepResult(planned.group, UpgradeOutcome.TAKEN_BACK, switchover=moved), now


def finish_upgrade(step: UpgradeStep, planned: UpgradePlan) -> tuple[UpgradeStepResult, Agreement | None]:
    """Returns the result and the agreement to settle, after which the changed project is the only one; None if it is already.
    Raises UsageError unless the changed project leads and one of its engines is active."""
    if planned.is_done:
        return UpgradeStepResult(planned.group, UpgradeOutcome.DONE), None
    known, version = _agreement_and_offered(step, planned)
    leader = step.group_services.coordination.leader(planned.group)
    if known.leading.number != version.number or not _side(step, planned, version).has_engine_named(leader.holder):
        raise UsageError(f"no engine of the changed project is active in group {planned.group}", hint="use --lead before --finish")
    return UpgradeStepResult(planned.group, UpgradeOutcome.FINISHED), known


_STEPS: Mapping[UpgradeMethod, Callable[[UpgradeStep, UpgradePlan], UpgradeStepResult]] = {
    UpgradeMethod.BESIDE: start_side_by_side,
    UpgradeMethod.LEAD: switch_to_changed,
}
"""The reversible steps: the function of each for one group."""
_SETTLING: Mapping[UpgradeMethod, Callable[[UpgradeStep, UpgradePlan], tuple[UpgradeStepResult, Agreement | None]]] = {
    UpgradeMethod.BACK: roll_back_upgrade,
    UpgradeMethod.FINISH: finish_upgrade,
}


def perform_upgrade_step(way: UpgradeMethod, step: UpgradeStep, found: Sequence[UpgradePlan]) -> Iterator[UpgradeStepResult]:
    """Performs the step `way` for all groups in `found`; yields the result in each group.
    An irreversible step is recorded only after it is possible in all groups: otherwise shards of one project could run different
    projects.
    """
    if way in _STEPS:
        yield from (_STEPS[way](step, each) for each in found)
        return
    for result, settled in [_SETTLING[way](step, each) for each in found]:
        if settled is not None:
            # engines of the other project end by themselves, even an active one
            cut_over = CutOver(CutOverKind.SETTLE, settled.leading)
            record_cut_over(step.group_services.coordination, result.group, settled, cut_over)
        yield result


def _agreement_and_offered(step: UpgradeStep, planned: UpgradePlan) -> tuple[Agreement, ProjectVersion]:
    """Returns the group's agreement, and the changed project in it. Raises UsageError if the group does not run the changed project
    side by side with the previous one."""
    known = recorded_agreement(step.group_services.coordination, planned.group)
    version = known.offered
    if version is None or not planned.is_for(version):
        what = f"group {planned.group} does not run this project together with the previous one"
        raise UsageError(what, hint="begin with --beside, and name the changed project in each step, in --back, too")
    return known, version


def _give_lead(step: UpgradeStep, planned: UpgradePlan, known: Agreement, to: ProjectVersion) -> Switchover:
    """Makes project `to` lead and one of its engines active. Raises UsageError if no engine of `to` has caught up within the
    step's time."""
    service, group = step.group_services.coordination, planned.group
    before = service.leader(group)
    is_active = _side(step, planned, to).has_engine_named(before.holder)
    engine = before.holder if is_active else _await_caught_up(step, planned, known, to, before.holder)
    if known.leading.number != to.number:
        record_cut_over(service, group, known, CutOver(CutOverKind.LEAD, to))
    plan = compile_plan(resolve(from_document(to.document)))
    document = describe(plan.resolved, step.prefix, step.shards, plan.prefixes)
    publish_metadata(step.group_services.bus, step.prefix, document)
    if is_active:
        return Switchover(engine, before.epoch, engine, before.epoch)
    return request_switchover_and_wait(service, group, before, engine, step.timeout_s)


def _await_caught_up(step: UpgradeStep, planned: UpgradePlan, known: Agreement, to: ProjectVersion, holder: str) -> str:
    """Waits for a spare of project `to` that may take over, and returns its name. Raises UsageError after the step's time.
    The spare must have processed all input that the active engine, `holder`, had processed at the call. Its outputs must not differ
    from committed outputs of streams that both projects share, as far as they are compared. The rest is compared before it becomes
    active.
    """
    service = step.group_services.coordination
    far = {p: n for m in service.members(planned.group) if m.engine == holder for p, n in positions_of(m).items()}
    reached = {partition: offset for partition, offset in far.items() if known.is_read_by_both(int(partition.partition("/")[0]))}
    for _ in Retry(lasting_s=step.timeout_s, pause_s=_POLL_S).tries():
        side = _side(step, planned, to)
        if engine := best_spare(side, reached):
            return engine
    what = "none runs" if not side.members else f"{side.engine_names} did not catch up within {step.timeout_s:g} s, or differ"
    raise UsageError(
        f"no engine of that project can take the role of group {planned.group}",
        detail=what,
        hint="start one with: hotspare run; `hotspare status` shows how far each is",
    )


def _side(step: UpgradeStep, planned: UpgradePlan, version: ProjectVersion) -> ProjectSide:
    members = participating_members(step.group_services.coordination.members(planned.group))
    return ProjectSide(version, tuple(m for m in members if m.detail.get(PROJECT) == str(version.number)))


@dataclass(frozen=True, slots=True)
class ProjectSide:
    """A project of a group, with its engines that have a recent record."""

    version: ProjectVersion
    members: tuple[Member, ...]

    @property
    def engine_names(self) -> str:
        return ", ".join(member.engine for member in self.members) or "none"

    def has_engine_named(self, engine: str) -> bool:
        return any(member.engine == engine for member in self.members)


def best_spare(side: ProjectSide, reached: Mapping[str, int]) -> str:
    """Returns the name of the best spare that has processed the input up to `reached`, as it reports (`positions_of`). "" if there
    is none, or if the outputs of all such spares differ from committed ones.
    """
    ready = [m for m in side.members if m.role == Role.STANDBY.value and not is_differing(m)]
    far = [m for m in ready if all(positions_of(m).get(partition, 0) >= offset for partition, offset in reached.items())]
    return max(far, key=lambda m: (rank_of(m), m.engine)).engine if far else ""


def recorded_agreement(coordination: Coordination, group: str) -> Agreement:
    """Returns the agreement on the projects that the group runs. Raises UsageError if no engine of the group ever started."""
    known = agreement(coordination, group)
    if known is None:
        raise never_started_error(group, "start one with: hotspare run")
    return known
