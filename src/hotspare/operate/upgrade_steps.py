"""Upgrades a group while its engines run, step by step: both projects side by side, the role from one to the other, and back.

What is decided about the two is written first, and the switch-over asked for then: engines follow what is decided whatever happens
to the caller, and the same step goes on where it was cut short.
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
    """How a group goes on with the changed project."""

    STOPPED = "stopped"
    BESIDE = "beside"
    LEAD = "lead"
    BACK = "back"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class UpgradeStep:
    """One step for all groups of a project; `shards`: how many there are."""

    places: Places
    prefix: str
    shards: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Settling:
    """What came of a step in one group, where the project that leads is to be the only one. `known`: what the group runs before;
    None where there is nothing to settle."""

    text: str
    known: Agreement | None = None


def described(step: UpgradeStep, planned: Planned) -> str:
    """Which projects a group runs, and which engines run them."""
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
    """Engines of the changed project may start, as spares."""
    if planned.is_done:
        return _DONE
    info = offer(planned, step.places)
    start = "from the topics" if info is None else f"from snapshot {info.name} at position {info.order}"
    return f"engines of the changed project may start, {start}: start them, and say --lead when they have caught up"


def to_the_front(step: UpgradeStep, planned: Planned) -> str:
    """The changed project leads, and one of its engines has the role."""
    if planned.is_done:
        return _DONE
    known, version = _both(step, planned)
    return _given(step, planned, known, version)


def back(step: UpgradeStep, planned: Planned) -> Settling:
    """The project of before leads, has the role, and is to be the only one."""
    if planned.known.other is None and not planned.is_done:
        return Settling("does not run this project")
    known, version = _both(step, planned)
    before = next(each for each in (known.leading, known.other) if each is not None and each is not version)
    text = _given(step, planned, known, before)
    now = known_projects(step.places.coordination, planned.group)
    return Settling(f"{text}; engines of the changed project end by themselves", now)


def finish(step: UpgradeStep, planned: Planned) -> Settling:
    """The changed project leads, has the role, and is to be the only one."""
    if planned.is_done:
        return Settling(_DONE)
    known, version = _both(step, planned)
    leader = step.places.coordination.leader(planned.group)
    if known.leading.number != version.number or not _side(step, planned, version).has(leader.holder):
        raise UsageError(f"no engine of the changed project is active in group {planned.group}", hint="say --lead before --finish")
    return Settling("the changed project is the only one; engines of the one before end by themselves", known)


_STEPS: Mapping[UpgradeWay, Callable[[UpgradeStep, Planned], str]] = {UpgradeWay.BESIDE: beside, UpgradeWay.LEAD: to_the_front}
"""What a step does with one group; it says what came of it."""
_SETTLING: Mapping[UpgradeWay, Callable[[UpgradeStep, Planned], Settling]] = {
    UpgradeWay.BACK: back,
    UpgradeWay.FINISH: finish,
}


def performed(way: UpgradeWay, step: UpgradeStep, found: Sequence[Planned]) -> Iterator[str]:
    """A step for all groups, and what came of it in each. What cannot be taken back is done once it can be in all of them: else the
    shards of one project would run different ones."""
    if way in _STEPS:
        yield from (f"{each.group}: {_STEPS[way](step, each)}" for each in found)
        return
    came = [(each.group, _SETTLING[way](step, each)) for each in found]
    for group, settling in came:
        if settling.known is not None:
            # engines of the other project end by themselves, an active one, too
            move_on(step.places.coordination, group, settling.known, Move(MoveKind.SETTLE, settling.known.leading))
        yield f"{group}: {settling.text}"


def _both(step: UpgradeStep, planned: Planned) -> tuple[Agreement, Version]:
    """What the group runs, and of the two the changed project."""
    known = known_projects(step.places.coordination, planned.group)
    version = known.offered
    if version is None or not planned.is_for(version):
        what = f"group {planned.group} does not run this project beside the one before it"
        raise UsageError(what, hint="begin with --beside, and name the changed project in each step, in --back, too")
    return known, version


def _given(step: UpgradeStep, planned: Planned, known: Agreement, to: Version) -> str:
    """The role goes to an engine of project `to`, which leads from now on. UsageError where it has none that has caught up."""
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
    return f"{after.holder} is active under epoch {after.epoch}, after {before.holder or 'nobody'}"


def _caught_up(step: UpgradeStep, planned: Planned, known: Agreement, to: Version, holder: str) -> str:
    """The spare that takes over: it has come as far as the active engine, `holder`, was, and what it computed of streams that both
    projects have the same does not differ from what is committed, as far as it was compared. The rest is, before it is active."""
    service = step.places.coordination
    far = {p: n for m in service.members(planned.group) if m.engine == holder for p, n in positions_of(m).items()}
    reached = {partition: offset for partition, offset in far.items() if known.is_read_by_both(int(partition.partition("/")[0]))}
    for _ in Retry(lasting_s=step.timeout_s, pause_s=_POLL_S).tries():
        side = _side(step, planned, to)
        if engine := spare(side, reached):
            return engine
    what = "none runs" if not side.members else f"{side.names} did not catch up within {step.timeout_s:g} s, or differ"
    raise UsageError(
        f"no engine of that project can have the role of group {planned.group}",
        detail=what,
        hint="start one with: hotspare run; `hotspare status` shows how far each is",
    )


def _side(step: UpgradeStep, planned: Planned, version: Version) -> ProjectSide:
    members = at_work(step.places.coordination.members(planned.group))
    return ProjectSide(version, tuple(m for m in members if m.detail.get(PROJECT) == str(version.number)))


@dataclass(frozen=True, slots=True)
class ProjectSide:
    """The engines of one of the projects, those that gave word lately."""

    version: Version
    members: tuple[Member, ...]

    @property
    def names(self) -> str:
        return ", ".join(member.engine for member in self.members) or "none"

    def has(self, engine: str) -> bool:
        return any(member.engine == engine for member in self.members)


def spare(side: ProjectSide, reached: Mapping[str, int]) -> str:
    """The best spare of a project that has taken the input up to there, by its own account (`positions_of`); "" where none has yet,
    or all that have differ from what is committed."""
    ready = [m for m in side.members if m.role == Role.STANDBY.value and not differs(m)]
    far = [m for m in ready if all(positions_of(m).get(partition, 0) >= offset for partition, offset in reached.items())]
    return max(far, key=lambda m: (rank_of(m), m.engine)).engine if far else ""


def known_projects(coordination: Coordination, group: str) -> Agreement:
    """UsageError where no engine of the group ever started."""
    known = agreement(coordination, group)
    if known is None:
        raise UsageError(f"no engine of group {group} ever started", hint="start one with: hotspare run")
    return known
