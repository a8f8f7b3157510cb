"""Upgrades a group to another project: plans the effects, and converts the group's state.

If the topics still hold all input since the group began, every state is recomputed. Otherwise the newest restorable snapshot is
converted: unchanged windows keep their state, changed windows begin empty. The result becomes a snapshot of the new project, under
a separate group name in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hotspare.base.errors import UsageError
from hotspare.base.shard import Shard
from hotspare.bus.contract import Bus
from hotspare.coordination.contract import Coordination
from hotspare.flow.carry_over import carried_over
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.semantics import SEMANTICS
from hotspare.flow.upgrade import Past, StreamFate, Upgrade, compare
from hotspare.ha.effects.joining import never_started_error, recorded_origin
from hotspare.ha.effects.upgrading import agreement, record_cut_over
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.settings import GroupTopics
from hotspare.ha.rules.upgrading import Agreement, CutOver, CutOverKind, ProjectVersion, StateSource
from hotspare.host.topics import group_topics
from hotspare.operate.groups import UnseenEngines, refuse_if_alive
from hotspare.projects.fingerprint import from_document, to_document
from hotspare.projects.resolve import resolve
from hotspare.stores.contract import SnapshotInfo, Store
from hotspare.stores.writing import copied_pages


@dataclass(frozen=True, slots=True)
class GroupServices:
    """The bus, coordination and store of a group. `store` is accessed by the names that `ProjectVersion.snapshot_group` returns."""

    bus: Bus
    coordination: Coordination
    store: Store


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """A request to upgrade to the project of `plan`. `past` UNASKED: changed windows begin empty, even if the topics hold all
    input."""

    plan: Plan
    prefix: str
    past: Past = Past.WHOLE


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """The planned upgrade of one group."""

    group: str
    shard: Shard
    group_agreement: Agreement
    old_plan: Plan
    new_plan: Plan
    change: Upgrade

    @property
    def state_source(self) -> StateSource:
        return StateSource.ORIGIN if self.change.has_recomputed else StateSource.SNAPSHOT

    @property
    def is_done(self) -> bool:
        """Whether the group runs the new project already."""
        return self.group_agreement.other is None and self.is_for(self.group_agreement.leading)

    def is_for(self, version: ProjectVersion) -> bool:
        """Whether `version` is the new project."""
        return version.is_run_by(self.new_plan.project_hash, SEMANTICS)


def plan_upgrade(group: str, shard: Shard, wish: UpgradeRequest, places: GroupServices) -> UpgradePlan:
    """Returns the plan of an upgrade. Raises UsageError if no engine of the group ever started, ProjectError if the stored project
    of the group cannot be read."""
    known = agreement(places.coordination, group)
    if known is None:
        raise never_started_error(group, "start one with: hotspare run")
    before = compile_plan(resolve(from_document(known.leading.document)))
    topics = group_topics(before.resolved.project, before, wish.prefix, shard, places.bus.topics())
    past = _input_coverage(places, group, known.leading, topics)
    past = wish.past if past is Past.WHOLE else past
    return UpgradePlan(group, shard, known, before, wish.plan, compare(before, wish.plan, past, known.leading.semantics))


def _input_coverage(places: GroupServices, group: str, leading: ProjectVersion, topics: GroupTopics) -> Past:
    """Returns how much of the group's input since its start the topics still hold. CARRIED if its state was converted from another
    project's, so that input alone does not determine it."""
    if leading.state_source is not StateSource.ORIGIN:
        return Past.CARRIED
    origin = recorded_origin(places.coordination, group, topics)
    if any((p.topic, p.number) not in origin for _, p in topics.partitions):
        return Past.UNNOTED
    is_whole = all(places.bus.begin_offset(p) <= origin[p.topic, p.number] for _, p in topics.partitions)
    return Past.WHOLE if is_whole else Past.CUT


def refuse_impossible(found: Sequence[UpgradePlan]) -> None:
    """Raises UsageError with the reasons, each once, if one of the groups cannot be upgraded."""
    if refusals := dict.fromkeys(refusal for each in found for refusal in each.change.refusals):
        raise UsageError("the project cannot be upgraded", detail="\n  ".join(refusals))


@dataclass(frozen=True, slots=True)
class Upgraded:
    """The result of an upgrade of a stopped group. `has_changed`: False if it ran the new project already. `start`: the snapshot
    from which its engines start, None if they rebuild their state from the topics."""

    group: str
    has_changed: bool
    start: SnapshotInfo | None = None


def upgrade_stopped(found: Sequence[UpgradePlan], places: GroupServices, others: UnseenEngines) -> Iterator[Upgraded]:
    """Upgrades the groups of a project one after the other, and yields the result of each. Raises UsageError before any change if
    an engine of one of them is alive, or may be (`others`); later, as `upgrade`."""
    for each in found:
        if not each.is_done:
            refuse_if_alive(places.coordination, each.group, others)
    for each in found:
        start = None if each.is_done else upgrade(each, places)
        yield Upgraded(each.group, has_changed=not each.is_done, start=start)


def upgrade(wanted: UpgradePlan, places: GroupServices) -> SnapshotInfo | None:
    """Upgrades the group, whose engines must all have ended. Returns the snapshot from which engines of the new project start, None
    if they rebuild their state from the topics. A repeated call continues after a crash. Raises UsageError if the upgrade is not
    possible, or another command upgrades the group concurrently.
    No snapshot of the new project is written before the offer is recorded. Until then another command may write there, and its
    snapshot would be mistaken for the state of the offered project.
    """
    known, group = _offered(wanted, places), wanted.group
    if known.other is not None and wanted.is_for(known.other):
        known = record_cut_over(places.coordination, group, known, CutOver(CutOverKind.LEAD, known.other))
    record_cut_over(places.coordination, group, known, CutOver(CutOverKind.SETTLE, known.leading))
    return _newest(places.store, known.leading.snapshot_group(group))


def offer(wanted: UpgradePlan, places: GroupServices) -> SnapshotInfo | None:
    """Allows engines of the new project to run as spares next to the group's running engines. Returns the snapshot from which they
    start, None if they rebuild their state from the topics. Raises UsageError as `upgrade`.
    """
    known = _offered(wanted, places)
    version = known.other if known.other is not None and wanted.is_for(known.other) else known.leading
    return _newest(places.store, version.snapshot_group(wanted.group))


def _offered(wanted: UpgradePlan, places: GroupServices) -> Agreement:
    refuse_impossible([wanted])
    known, group, carried = wanted.group_agreement, wanted.group, None
    if known.other is None and not wanted.is_for(known.leading):
        version = _version(wanted)
        if version.state_source is StateSource.SNAPSHOT:
            carried = _carried(wanted, places)  # errors are found before anything is decided
        known = record_cut_over(places.coordination, group, known, CutOver(CutOverKind.OFFER, version))
    if known.other is not None and wanted.is_for(known.other):
        _carry(wanted, known.other, places, carried)
    elif not wanted.is_for(known.leading):
        raise UsageError(f"another upgrade of group {group} is in progress", hint="end it first, with its own project")
    return known


def _version(wanted: UpgradePlan) -> ProjectVersion:
    streams = set(wanted.new_plan.stream_schemas)
    before = wanted.group_agreement.leading.renumbered_streams if wanted.state_source is StateSource.ORIGIN else frozenset()
    return ProjectVersion(
        hash=wanted.new_plan.project_hash,
        semantics=SEMANTICS,
        document=to_document(wanted.new_plan.resolved.project),
        number=wanted.group_agreement.cut_overs + 1,
        state_source=wanted.state_source,
        renumbered_streams=frozenset((wanted.change.realigned | before) & streams),
        changed_streams=_streams(wanted, StreamFate.CHANGED, StreamFate.NEW, StreamFate.ENDS),
        added_streams=_streams(wanted, StreamFate.NEW),
        removed_streams=_streams(wanted, StreamFate.ENDS),
        topics_shared=min(len(plan.resolved.sources) for plan in (wanted.old_plan, wanted.new_plan)),
    )


def _streams(wanted: UpgradePlan, *fates: StreamFate) -> frozenset[str]:
    return frozenset(name for name, fate in wanted.change.streams.items() if fate in fates)


@dataclass(frozen=True, slots=True)
class _Carried:
    """The newest snapshot of the old project, converted to the new one."""

    info: SnapshotInfo
    header: bytes
    pages: Mapping[str, bytes]


def _carried(wanted: UpgradePlan, places: GroupServices) -> _Carried:
    """Returns the newest restorable snapshot of the leading project, converted. Raises UsageError if there is none."""
    old = wanted.group_agreement.leading.snapshot_group(wanted.group)
    info = _newest(places.store, old)
    if info is None:
        what = f"group {wanted.group} has no snapshot from which the new project could continue"
        raise UsageError(what, hint="run an engine until it has taken one: `hotspare status` shows them")
    stored = places.store.get(old, info.name)
    return _Carried(info, *carried_over(wanted.old_plan, wanted.new_plan, stored.header, stored.pages, wanted.shard.number))


def _carry(wanted: UpgradePlan, version: ProjectVersion, places: GroupServices, carried: _Carried | None) -> None:
    """Stores the converted snapshot for engines of the new project; does nothing for StateSource.ORIGIN, or if they have a
    restorable snapshot already. Converts the snapshot first if `carried` is None."""
    place = version.snapshot_group(wanted.group)
    if version.state_source is StateSource.ORIGIN or _newest(places.store, place) is not None:
        return
    found = carried or _carried(wanted, places)
    places.store.write_candidate(
        place, found.info.name, found.info.engine, found.info.order, found.header, copied_pages(found.pages)
    )
    places.store.confirm(place, found.info.name)


def _newest(store: Store, place: str) -> SnapshotInfo | None:
    """Returns the newest snapshot that may be restored; None without one."""
    return next(iter(restorable(store.list(place))), None)
