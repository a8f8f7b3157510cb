"""Upgrades a group while its engines run, step by step: both projects side by side, the role from one to the other, and back.

The decision about the two is written first, and the switch-over requested after it. So engines follow the decision whatever happens
to the caller, and a repeated step continues after an interruption.
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
from hotspare.ha.effects.joining import never_started
from hotspare.ha.effects.upgrading import agreement, move_on
from hotspare.ha.member_record import PROJECT, differs, positions_of, rank_of
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.upgrading import Agreement, Move, MoveKind, Version
from hotspare.operate.groups import at_work
from hotspare.operate.switchover import switched
from hotspare.operate.upgrading import Places, Planned, offer
from hotspare.projects.fingerprint import from_document
from hotspare.projects.resolve import resolve

_POLL_S = 0.1
_DONE = "runs this project alone already"


class UpgradeWay(Enum):
    """The ways in which a group continues with the changed project."""

    STOPPED = "stopped"
    BESIDE = "beside"
    LEAD = "lead"
    BACK = "back"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """A step for all groups of a project. `shards`: the count of its shards."""

    places: Places
    prefix: str
    shards: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Settling:
    """The result of a step in one group whose leading project is to become the only one.

    `known`: the agreement to settle; None if there is nothing to settle.
    """

    text: str
    known: Agreement | None = None


def described(step: UpgradeStep, planned: Planned) -> str:
    """Returns a sentence on the projects that a group runs, and the engines of each."""
    known = known_projects(step.places.coordination, planned.group)
    leader = step.places.coordination.leader(planned.group)
    sides = [_side(step, planned, each) for each in (known.leading, known.other) if each is not None]
    texts = []
    for each in sides:
        what = "this project" if planned.is_for(each.version) else "the other project"
        leads = "leads" if each.version.number == known.leading.number else "takes part"
        active = f", {leader.holder} is active" if each.has(leader.holder) else ""
        texts.append(f"{what} {leads} (engines: {each.names}{active})")
    return "; ".join(texts)


def beside(step: UpgradeStep, planned: Planned) -> str:
    """Allows engines of the changed project to start, as spares."""
    if planned.is_done:
        return _DONE
    info = offer(planned, step.places)
    start = "from the topics" if info is None else f"from snapshot {info.name} at position {info.order}"
    return f"engines of the changed project may start, {start}: start them, and continue with --lead when they have caught up"


def to_the_front(step: UpgradeStep, planned: Planned) -> str:
    """Makes the changed project lead, and gives one of its engines the role."""
    if planned.is_done:
        return _DONE
    known, version = _both(step, planned)
    return _given(step, planned, known, version)


def back(step: UpgradeStep, planned: Planned) -> Settling:
    """Makes the earlier project lead again, with the role, and prepares for it to be the only one."""
    if planned.known.other is None and not planned.is_done:
        return Settling("does not run this project")
    known, version = _both(step, planned)
    before = next(each for each in (known.leading, known.other) if each is not None and each is not version)
    text = _given(step, planned, known, before)
    now = known_projects(step.places.coordination, planned.group)
    return Settling(f"{text}; engines of the changed project end by themselves", now)


def finish(step: UpgradeStep, planned: Planned) -> Settling:
    """Prepares for the changed project, which must lead and have the role, to be the only one."""
    if planned.is_done:
        return Settling(_DONE)
    known, version = _both(step, planned)
    leader = step.places.coordination.leader(planned.group)
    if known.leading.number != version.number or not _side(step, planned, version).has(leader.holder):
        raise UsageError(f"no engine of the changed project is active in group {planned.group}", hint="use --lead before --finish")
    return Settling("the changed project is the only one; engines of the previous one end by themselves", known)


_STEPS: Mapping[UpgradeWay, Callable[[UpgradeStep, Planned], str]] = {UpgradeWay.BESIDE: beside, UpgradeWay.LEAD: to_the_front}
"""The function of a step for one group; it returns a sentence on the result."""
_SETTLING: Mapping[UpgradeWay, Callable[[UpgradeStep, Planned], Settling]] = {
    UpgradeWay.BACK: back,
    UpgradeWay.FINISH: finish,
}


def performed(way: UpgradeWay, step: UpgradeStep, found: Sequence[Planned]) -> Iterator[str]:
    """Performs a step for all groups; yields a sentence on each.

    An irreversible step is done only once it is possible in all groups: otherwise the shards of one project would run different
    ones.
    """
    if way in _STEPS:
        yield from (f"{each.group}: {_STEPS[way](step, each)}" for each in found)
        return
    came = [(each.group, _SETTLING[way](step, each)) for each in found]
    for group, settling in came:
        if settling.known is not None:
            # engines of the other project end by themselves, even an active one
            move_on(step.places.coordination, group, settling.known, Move(MoveKind.SETTLE, settling.known.leading))
        yield f"{group}: {settling.text}"


def _both(step: UpgradeStep, planned: Planned) -> tuple[Agreement, Version]:
    """Returns what the group runs, and the changed project among the two. Raises UsageError if the group does not run it."""
    known = known_projects(step.places.coordination, planned.group)
    version = known.offered
    if version is None or not planned.is_for(version):
        what = f"group {planned.group} does not run this project together with the previous one"
        raise UsageError(what, hint="begin with --beside, and name the changed project in each step, in --back, too")
    return known, version


def _given(step: UpgradeStep, planned: Planned, known: Agreement, to: Version) -> str:
    """Makes project `to` lead, and gives the role to one of its engines. Raises UsageError if none has caught up."""
    service, group = step.places.coordination, planned.group
    before = service.leader(group)
    is_active = _side(step, planned, to).has(before.holder)
    engine = before.holder if is_active else _caught_up(step, planned, known, to, before.holder)
    if known.leading.number != to.number:
        move_on(service, group, known, Move(MoveKind.LEAD, to))
    plan = compile_plan(resolve(from_document(to.document)))
    document = describe(plan.resolved, step.prefix, step.shards, plan.prefixes)
    publish_metadata(step.places.bus, step.prefix, document)
    if is_active:
        return f"{engine} is active already"
    after = switched(service, group, before, engine, step.timeout_s)
    return f"{after.holder} is active under epoch {after.epoch}, after {before.holder or 'no engine'}"


def _caught_up(step: UpgradeStep, planned: Planned, known: Agreement, to: Version, holder: str) -> str:
    """Waits for and returns the spare that takes over: it has taken the input that the active engine, `holder`, had taken at first.

    It also must not differ from what is committed in streams that both projects share, as far as was compared. The rest is compared
    before it is active.
    """
    service = step.places.coordination
    far = {p: n for m in service.members(planned.group) if m.engine == holder for p, n in positions_of(m).items()}
    reached = {partition: offset for partition, offset in far.items() if known.is_read_by_both(int(partition.partition("/")[0]))}
    for _ in Retry(lasting_s=step.timeout_s, pause_s=_POLL_S).tries():
        side = _side(step, planned, to)
        if engine := spare(side, reached):
            return engine
    what = "none runs" if not side.members else f"{side.names} did not catch up within {step.timeout_s:g} s, or differ"
    raise UsageError(
        f"no engine of that project can take the role of group {planned.group}",
        detail=what,
        hint="start one with: hotspare run; `hotspare status` shows how far each is",
    )


def _side(step: UpgradeStep, planned: Planned, version: Version) -> ProjectSide:
    members = at_work(step.places.coordination.members(planned.group))
    return ProjectSide(version, tuple(m for m in members if m.detail.get(PROJECT) == str(version.number)))


@dataclass(frozen=True, slots=True)
class ProjectSide:
    """The engines of one of the projects that gave word lately."""

    version: Version
    members: tuple[Member, ...]

    @property
    def names(self) -> str:
        return ", ".join(member.engine for member in self.members) or "none"

    def has(self, engine: str) -> bool:
        return any(member.engine == engine for member in self.members)


def spare(side: ProjectSide, reached: Mapping[str, int]) -> str:
    """Returns the best spare of a project that has taken the input up to `reached`, by its own report (`positions_of`).

    "" if none has yet, or all that have differ from what is committed.
    """
    ready = [m for m in side.members if m.role == Role.STANDBY.value and not differs(m)]
    far = [m for m in ready if all(positions_of(m).get(partition, 0) >= offset for partition, offset in reached.items())]
    return max(far, key=lambda m: (rank_of(m), m.engine)).engine if far else ""


def known_projects(coordination: Coordination, group: str) -> Agreement:
    """Returns the projects that the group runs. Raises UsageError if no engine of it ever started."""
    known = agreement(coordination, group)
    if known is None:
        raise never_started(group, "start one with: hotspare run")
    return known
