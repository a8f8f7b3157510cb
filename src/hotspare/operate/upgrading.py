"""Upgrades a group to another project: plans the effects, and converts the group's state.

If the topics still hold all input since the group began, every state is recomputed. Otherwise the newest restorable snapshot is
converted: kept windows have their state in it, the others begin empty. It becomes a snapshot of the new project, in a place of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.base.errors import UsageError
from hotspare.base.shard import Shard
from hotspare.bus.contract import Bus
from hotspare.coordination.contract import Coordination
from hotspare.flow.carry_over import carried_over
from hotspare.flow.plan import Plan, compile_plan
from hotspare.flow.semantics import SEMANTICS
from hotspare.flow.upgrade import Past, StreamFate, Upgrade, compare
from hotspare.ha.effects.joining import never_started, stated_origin
from hotspare.ha.effects.upgrading import agreement, move_on
from hotspare.ha.rules.joining import restorable
from hotspare.ha.rules.settings import GroupTopics
from hotspare.ha.rules.upgrading import Agreement, Begin, Move, MoveKind, Version
from hotspare.host.topics import group_topics
from hotspare.projects.fingerprint import from_document, to_document
from hotspare.projects.resolve import resolve
from hotspare.stores.contract import SnapshotInfo, Store
from hotspare.stores.writing import copied


@dataclass(frozen=True, slots=True)
class Places:
    """The bus, coordination and store of a group; `store` takes the names of places (`Version.place`)."""

    bus: Bus
    coordination: Coordination
    store: Store


@dataclass(frozen=True, slots=True)
class Wish:
    """The new project. `past` UNASKED: changed windows begin empty, even if the topics hold all input."""

    plan: Plan
    prefix: str
    past: Past = Past.WHOLE


@dataclass(frozen=True, slots=True)
class Planned:
    """The planned upgrade of one group."""

    group: str
    shard: Shard
    known: Agreement
    before: Plan
    after: Plan
    change: Upgrade

    @property
    def begin(self) -> Begin:
        return Begin.ORIGIN if self.change.recomputes else Begin.SNAPSHOT

    @property
    def is_done(self) -> bool:
        """Whether the group runs the new project already."""
        return self.known.other is None and self.is_for(self.known.leading)

    def is_for(self, version: Version) -> bool:
        """Whether `version` is the new project."""
        return version.is_run_by(self.after.project_hash, SEMANTICS)


def planned(group: str, shard: Shard, wish: Wish, places: Places) -> Planned:
    """Returns the plan of an upgrade. Raises UsageError if no engine of the group ever started, ProjectError if its project is
    unreadable."""
    known = agreement(places.coordination, group)
    if known is None:
        raise never_started(group, "start one with: hotspare run")
    before = compile_plan(resolve(from_document(known.leading.document)))
    topics = group_topics(before.resolved.project, before, wish.prefix, shard, places.bus.topics())
    past = _past(places, group, known.leading, topics)
    past = wish.past if past is Past.WHOLE else past
    return Planned(group, shard, known, before, wish.plan, compare(before, wish.plan, past, known.leading.semantics))


def _past(places: Places, group: str, leading: Version, topics: GroupTopics) -> Past:
    """Returns whether all input since the group began is still there, and its states were made from that alone."""
    if leading.begin is not Begin.ORIGIN:
        return Past.CARRIED
    origin = stated_origin(places.coordination, group, topics)
    if any((p.topic, p.number) not in origin for _, p in topics.partitions):
        return Past.UNNOTED
    is_whole = all(places.bus.begin_offset(p) <= origin[p.topic, p.number] for _, p in topics.partitions)
    return Past.WHOLE if is_whole else Past.CUT


def upgrade(wanted: Planned, places: Places) -> SnapshotInfo | None:
    """Makes the group, whose engines must all have ended, run the new project. Returns the snapshot from which its engines start.

    None: they make their state from the topics. Repeated after a crash, it continues. Raises UsageError if the upgrade is not
    possible, or another command decides concurrently.

    Nothing is written to the new project's place before the offer is recorded. Until then another command may use the place, and
    what it left there would be taken for the state of the offered project.
    """
    known, group = _offered(wanted, places), wanted.group
    if known.other is not None and wanted.is_for(known.other):
        known = move_on(places.coordination, group, known, Move(MoveKind.LEAD, known.other))
    move_on(places.coordination, group, known, Move(MoveKind.SETTLE, known.leading))
    return _newest(places.store, known.leading.place(group))


def offer(wanted: Planned, places: Places) -> SnapshotInfo | None:
    """Allows engines of the new project to take part as spares, together with the group's. Returns the snapshot that they start
    from.

    Otherwise the same as `upgrade`, except that engines may live.
    """
    known = _offered(wanted, places)
    version = known.other if known.other is not None and wanted.is_for(known.other) else known.leading
    return _newest(places.store, version.place(wanted.group))


def _offered(wanted: Planned, places: Places) -> Agreement:
    if wanted.change.refusals:
        raise UsageError("the project cannot be upgraded", detail="\n  ".join(wanted.change.refusals))
    known, group, carried = wanted.known, wanted.group, None
    if known.other is None and not wanted.is_for(known.leading):
        version = _version(wanted)
        if version.begin is Begin.SNAPSHOT:
            carried = _carried(wanted, places)  # errors are found before anything is decided
        known = move_on(places.coordination, group, known, Move(MoveKind.OFFER, version))
    if known.other is not None and wanted.is_for(known.other):
        _carry(wanted, known.other, places, carried)
    elif not wanted.is_for(known.leading):
        raise UsageError(f"another upgrade of group {group} is in progress", hint="end it first, with its own project")
    return known


def _version(wanted: Planned) -> Version:
    streams = set(wanted.after.stream_schemas)
    before = wanted.known.leading.realigned if wanted.begin is Begin.ORIGIN else frozenset()
    return Version(
        hash=wanted.after.project_hash,
        semantics=SEMANTICS,
        document=to_document(wanted.after.resolved.project),
        number=wanted.known.moves + 1,
        begin=wanted.begin,
        realigned=frozenset((wanted.change.realigned | before) & streams),
        differs=_streams(wanted, StreamFate.CHANGED, StreamFate.NEW, StreamFate.ENDS),
        begins=_streams(wanted, StreamFate.NEW),
        ends=_streams(wanted, StreamFate.ENDS),
        topics_shared=min(len(plan.resolved.sources) for plan in (wanted.before, wanted.after)),
    )


def _streams(wanted: Planned, *fates: StreamFate) -> frozenset[str]:
    return frozenset(name for name, fate in wanted.change.streams.items() if fate in fates)


@dataclass(frozen=True, slots=True)
class _Carried:
    """The newest snapshot of the old project, converted to the new one."""

    info: SnapshotInfo
    header: bytes
    pages: Mapping[str, bytes]


def _carried(wanted: Planned, places: Places) -> _Carried:
    """Converts the newest snapshot. Raises UsageError without one."""
    old = wanted.known.leading.place(wanted.group)
    info = _newest(places.store, old)
    if info is None:
        what = f"group {wanted.group} has no snapshot from which the new project could continue"
        raise UsageError(what, hint="run an engine until it has taken one: `hotspare status` shows them")
    stored = places.store.get(old, info.name)
    return _Carried(info, *carried_over(wanted.before, wanted.after, stored.header, stored.pages, wanted.shard.number))


def _carry(wanted: Planned, version: Version, places: Places, carried: _Carried | None) -> None:
    """Stores the converted snapshot where engines of the new project look, unless it, or a newer one of theirs, is there.

    Converts it first if `carried` is None.
    """
    place = version.place(wanted.group)
    if version.begin is Begin.ORIGIN or _newest(places.store, place) is not None:
        return
    found = carried or _carried(wanted, places)
    places.store.put(place, found.info.name, found.info.engine, found.info.order, found.header, copied(found.pages))
    places.store.confirm(place, found.info.name)


def _newest(store: Store, place: str) -> SnapshotInfo | None:
    """Returns the newest snapshot that may be restored; None without one."""
    return next(iter(restorable(store.list(place))), None)
