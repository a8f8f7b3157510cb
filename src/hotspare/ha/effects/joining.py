"""Joins an engine to its group: with the newest confirmed snapshot, the empty state of the group's origin, or a state to make from
recent input.

An engine starts from the positions of one source, never of two. Before it starts, it checks that the bus still holds the input that
it needs to read (SPEC E10, E12, E15, A44, Z1).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from hotspare.base.call_place import CallAttempt, Decision
from hotspare.base.choices import EventPolicy
from hotspare.base.errors import (
    RESET_HINT,
    HotspareError,
    PositionLost,
    ProjectChanged,
    SnapshotFormat,
    StateError,
    StoreError,
    UsageError,
)
from hotspare.base.inbound_role import InboundRole
from hotspare.bus.contract import Bus, Message, Partition, Producer
from hotspare.bus.naming import whole_group
from hotspare.coordination.contract import Coordination, Member
from hotspare.flow.numbering import Numbering, numbered_since, numbering_of
from hotspare.flow.semantics import SEMANTICS, refuse_other_semantics, stated_semantics
from hotspare.ha.core import Core, CoreFactory
from hotspare.ha.effects.hung_calls import read_attempts, refuse_void
from hotspare.ha.effects.shard_agreement import agree_on_shards, refuse_other_shards
from hotspare.ha.effects.store_agreement import agree_on_store
from hotspare.ha.effects.upgrading import PROJECT, agreement, has_any_cut_over
from hotspare.ha.effects.upgrading import SEMANTICS as SEMANTICS_FACT
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.outputs.qualities import Qualities, agree_on_qualities
from hotspare.ha.ports import Ports
from hotspare.ha.rules import hung_calls as hung_rules
from hotspare.ha.rules import intake, membership
from hotspare.ha.rules import joining as rules
from hotspare.ha.rules.facts import HungCalls, Projects, Warming
from hotspare.ha.rules.settings import GroupSettings, GroupTopics
from hotspare.ha.rules.upgrading import Agreement, ProjectVersion, StateSource
from hotspare.projects.fingerprint import from_document
from hotspare.projects.resolve import projects_read
from hotspare.stores.contract import SnapshotInfo, Store

_T = TypeVar("_T")
_ORIGIN = "origin"
_SKEW = "skew_max_ms"
_POISON, _HANG = "on-poison", "on-hang"
_LISTINGS_MAX = 3
_NAMESAKE_LOOK_MS = 50
_MESSAGE_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class ProjectIdentity:
    """The project of an engine, on which the engines of a group must agree. `differences` returns sentences on how a stored
    document differs from it."""

    hash: str
    document: str
    differences: Callable[[str], Sequence[str]]


@dataclass(frozen=True, slots=True)
class StartPlan:
    """The plan for a runner. `next_offsets`: where it begins to read, by (topic index, partition). `restored_from`: the name of the
    restored snapshot; "" without one.

    `on_poison`: the group's policy for events on which an engine fails.
    """

    next_offsets: Mapping[tuple[int, int], int]
    restored_from: str
    on_poison: EventPolicy = EventPolicy.BAD_EVENT


@dataclass(frozen=True, slots=True)
class OutputNumbering:
    """The shift of each stream: the number of an output on its topic less its number in the core; None if unknown
    (`flow.numbering`).

    `since`: the epoch of the newest change of the publishing project that these shifts take into account.
    """

    by_stream: Numbering = field(default_factory=dict)
    since: int = 0


@dataclass(frozen=True, slots=True)
class _HungCallsRead:
    """The attempts, the decisions and the policy of a group, as read by an engine that joins."""

    attempts: Sequence[CallAttempt] = ()
    decisions: tuple[Decision, ...] = ()
    policy: EventPolicy = EventPolicy.BAD_EVENT
    versions: Mapping[str, str] = field(default_factory=dict)

    def prepare_core(self, core: Core) -> HungCalls:
        """Makes the core apply the decisions and stop before undecided places; returns both."""
        places = hung_rules.places_to_stop_before(self.attempts, self.decisions)
        if self.decisions:
            core.set_decisions(self.decisions)
        if places:
            core.stop_before(places)
        if calls := hung_rules.calls_to_divide(self.attempts):
            core.row_by_row(calls)
        return HungCalls(self.versions, self.decisions, places, policy=self.policy)


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of joining: the core with its state, and the values that the group agreed on."""

    core: Core
    producer: Producer
    plan: StartPlan
    qualities: Qualities
    store_id: str
    message_bytes_max: Mapping[str, int]
    numbering: OutputNumbering
    projects: Projects
    hung_calls: HungCalls = field(default_factory=HungCalls)
    warming: Warming | None = None
    """The progress of an engine that makes its state from recent input; None for any other."""
    refused: tuple[str, ...] = ()
    """Sentences on the snapshots that could not be used, each with the reason."""


@dataclass(frozen=True, slots=True)
class JoinProcedure:
    """The procedure by which an engine joins its group. `steps` yields before every external effect, as the HA loop does."""

    group: str
    identity: Member
    topics: GroupTopics
    project: ProjectIdentity
    cores: CoreFactory
    settings: GroupSettings
    ports: Ports
    code_versions: Mapping[str, str] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Sentences on snapshots that could not be used, in the order found."""

    @property
    def engine(self) -> str:
        return self.identity.engine

    def steps(self) -> Generator[str, None, JoinResult]:
        """Joins the group and returns the `JoinResult`; yields a description of each external effect before it happens.

        Raises UsageError, TopicOwned, ProjectChanged, PositionLost, StateError, and the errors of bus, coordination and store.
        """
        yield "look for an engine of the same name"
        refuse_namesake(self.ports, self.group, self.engine)
        yield from self._outwait_namesake()
        yield "read the number of shards"
        refuse_other_shards(self.ports.coordination, self.group, self.topics)
        yield "check the inbound topics"
        refuse_other_partitions(self.ports.bus, self.topics)
        yield "agree on the shards"
        agree_on_shards(self.ports.coordination, self.group, self.topics)
        yield "create topics"
        create_topics(self.ports.bus, self.topics)
        yield "read the size limits of the output topics"
        message_bytes_max = dict(self.ports.bus.message_bytes_max(self.topics.output_topics))
        yield "claim output topics"
        producer = self.ports.bus.producer(self.group, self.topics.output_topics)
        yield "agree on the semantics"
        agree_on_semantics(self.ports.coordination, self.group)
        yield "agree on the project"
        requested_ms = self.ports.clock_ms()
        known, version = agreed_project(self.ports.coordination, self.group, self.project)
        yield "agree on the store"
        store_id = agree_on_store(self.ports.coordination, self.ports.store, self.group, self.settings.other_store)
        yield "agree on the setting on-poison"
        on_poison = agree_on_poison(self.ports.coordination, self.group, self.settings.on_poison)
        yield "agree on the qualities of service"
        qualities = agree_on_qualities(self.ports.coordination, self.group, self.topics)
        self._report_other_qualities(qualities)
        yield "agree on the setting skew-max-ms"
        agree_on_skew(self.ports.coordination, self.group, self.settings.skew_max_ms)
        yield "agree on the first offsets"
        origin = agree_on_origin(self.ports.bus, self.ports.coordination, self.group, self.topics)
        read = (yield from self._hung_calls()) if self.code_versions else _HungCallsRead()
        recent = (yield from self._recent_offsets(known, origin, read)) if self.settings.recent_span_us else None
        if recent is None or recent.complete_us is None:
            core, restored_from, numbering = yield from self._state(version, read.decisions)
        else:
            core, restored_from, numbering = self.cores.fresh(), "", OutputNumbering()
        projects = Projects(version.number, known if known.cut_overs else None, read_ms=requested_ms, changes_epoch=numbering.since)
        partitions = [(index, partition.number) for index, partition in self.topics.partitions]
        core.set_partitions(partitions, self.settings.skew_max_ms * 1000)
        hung = read.prepare_core(core)
        offsets = {(index, p.number): origin[p.topic, p.number] for index, p in self.topics.partitions}
        offsets.update(core.next_offsets)
        warming = None
        if recent is not None and recent.complete_us is not None:
            offsets.update(recent.offsets)
            warming = self._warming(offsets, recent.complete_us)
        yield "check that the bus holds the input to be read"
        check_positions(self.ports.bus, self.topics, offsets, core.time_us)
        plan = StartPlan(offsets, restored_from, on_poison)
        return JoinResult(
            core, producer, plan, qualities, store_id, message_bytes_max, numbering, projects, hung, warming, tuple(self.refused)
        )

    def _hung_calls(self) -> Generator[str, None, _HungCallsRead]:
        """Returns the policy, attempts and decisions of the group. They are read in this order and before a snapshot is chosen: an
        engine that stops, and decides later, has seen each snapshot that was confirmed before the attempts."""
        yield "agree on the setting on-hang"
        policy = agree_on_hang(self.ports.coordination, self.group, self.settings.on_hang)
        yield "read which calls of user code did not end"
        attempts = read_attempts(self.ports.coordination, self.group)
        yield "read the decisions about such calls"
        decisions = hung_rules.parsed_decisions(self.ports.bus.progress(self.group))
        return _HungCallsRead(attempts, decisions, policy, self.code_versions)

    def _recent_offsets(
        self, known: Agreement, origin: Mapping[tuple[str, int], int], read: _HungCallsRead
    ) -> Generator[str, None, RecentStart]:
        """Returns the offsets at which recent input begins. Raises StateError if the group was upgraded: the numbers of its outputs
        could not be adopted then; or if it decided about hung calls, which are part of its state."""
        if read.attempts or read.decisions:
            what = f"--join recent: calls of user code did not end in group {self.group}, and its state depends on the decisions"
            raise StateError(what, hint="start the engine without --join recent")
        if known.cut_overs:
            what = f"--join recent: group {self.group} was upgraded, so its outputs may have the numbers of another project"
            raise StateError(what, hint="start the engine without --join recent")
        yield "find the beginning of recent input"
        return recent_start(self.ports.bus, self.topics, origin, self.settings.recent_span_us)

    def _warming(self, begun: Mapping[tuple[int, int], int], complete_us: int) -> Warming:
        span_us, gap_us = self.settings.recent_span_us, self.settings.recent_tick_gap_us
        ticked = dict.fromkeys(begun, complete_us)
        return Warming(complete_us + span_us, span_us, dict(begun), self.settings.recent_matches, tick_gap_us=gap_us, ticked=ticked)

    def _outwait_namesake(self) -> Generator[str, None, None]:
        """Waits `member_stale_ms` if the group has a member record of this engine's name whose process cannot be seen from here.
        Raises UsageError if that record is renewed meanwhile.

        Only a renewal proves that such a process lives: it may run without answering.
        """
        known = self._unseen_namesake()
        if known is None:
            return
        other = f"process {known.process_id} on {known.host}"
        known_as = f"engine {self.engine} has a member record of {other}"
        sentence = f"{known_as}: waits {self.settings.member_stale_ms} ms to see whether that process renews it"
        self.ports.report(HaEvent(HaEventKind.NAMESAKE_AWAITED, self.group, self.engine, sentence))
        until_ms = self.ports.clock_ms() + self.settings.member_stale_ms
        while self.ports.clock_ms() < until_ms:
            yield "check whether an engine of the same name is alive"
            self.ports.pause(_NAMESAKE_LOOK_MS)
            found = self._unseen_namesake()
            if found is not None and membership.is_renewed_since(found, known):
                raise membership.name_taken_error(self.group, found)

    def _unseen_namesake(self) -> Member | None:
        return membership.unseen_namesake(self.ports.coordination.members(self.group), self.identity)

    def _report_other_qualities(self, qualities: Qualities) -> None:
        for output in self.topics.outbound:
            if qualities.stream_quality(output.stream) != output.quality and output.stream not in qualities.changed:
                agreed = f"stream {output.stream} has the quality {qualities.stream_quality(output.stream)} in group {self.group}"
                sentence = f"{agreed}, but {output.quality} in this engine's project; `hotspare quality` changes it"
                self.ports.report(HaEvent(HaEventKind.QUALITY_CHANGED, self.group, self.engine, sentence))

    def _state(
        self, version: ProjectVersion, decisions: Sequence[Decision]
    ) -> Generator[str, None, tuple[Core, str, OutputNumbering]]:
        """Returns (core, name of its snapshot or "", shifts of its streams). The core has the state of the newest snapshot that
        can be used, else that of the origin. Raises StateError if the project needs a snapshot and none is usable."""
        unusable: set[str] = set()
        for _ in range(_LISTINGS_MAX):
            yield "list snapshots"
            for info in self._usable(unusable):
                yield f"restore {info.name}"
                restore = partial(self._restored, decisions)
                found = restore_or_report(self.ports.store, self.group, info, restore, self._report_unusable)
                if found is not None:
                    return found[0], info.name, found[1]
                unusable.add(info.name)
            if not unusable:
                break  # otherwise look again: one that was being replaced may have a newer one now
        if version.state_source is StateSource.SNAPSHOT:
            what = f"group {self.group} has no snapshot from which an engine could start"
            raise StateError(
                what, detail="the project was upgraded from a snapshot, and the topics do not hold the input before it"
            )
        return self.cores.fresh(), "", OutputNumbering(dict.fromkeys(version.renumbered_streams))

    def _restored(self, decisions: Sequence[Decision], header: bytes, pages: Mapping[str, bytes]) -> tuple[Core, OutputNumbering]:
        """Returns the core of a snapshot, and the shifts of its streams. Raises SnapshotFormat as `refuse_void`."""
        core = self.cores.restore(header, pages)
        refuse_void(core, decisions)
        return core, OutputNumbering(numbering_of(header), numbered_since(header))

    def _usable(self, unusable: Collection[str]) -> list[SnapshotInfo]:
        """Returns the confirmed snapshots, newest first, without those named in `unusable`. Deletes the candidates that an earlier
        process of this engine left."""
        listed = self.ports.store.list(self.group)
        for info in rules.stale_candidates(listed, self.engine):
            self.ports.store.discard(self.group, info.name)
        return rules.restorable(listed, unusable)

    def _report_unusable(self, sentence: str) -> None:
        self.refused.append(sentence)
        self.ports.report(HaEvent(HaEventKind.SNAPSHOT_UNUSABLE, self.group, self.engine, sentence))


def restore_or_report(
    store: Store, group: str, info: SnapshotInfo, restore: Callable[[bytes, Mapping[str, bytes]], _T], told: Callable[[str], None]
) -> _T | None:
    """Returns the result of `restore` for the header and pages of a snapshot. If the snapshot cannot be used, calls `told` with a
    sentence and returns None.

    Raises ProjectChanged and other StateErrors of `restore`.
    """
    try:
        stored = store.get(group, info.name)
        return restore(stored.header, stored.pages)
    except (StoreError, SnapshotFormat) as error:
        told(f"snapshot {info.name} cannot be used: {error.message}; the engine tries the next older one")
        return None


def refuse_namesake(ports: Ports, group: str, engine: str) -> None:
    """Raises UsageError if a live process is a member of the group under this engine's name: the two would take the role from each
    other.

    Two processes that start in the same instant do not see each other here; the later one ends when it refreshes its member record.
    """
    for member in ports.coordination.members(group):
        if member.engine == engine and ports.is_alive(member):
            raise membership.name_taken_error(group, member)


def refuse_other_partitions(bus: Bus, topics: GroupTopics) -> dict[str, int]:
    """Returns the inbound topics that have too few partitions and never held a message, with the needed count; `create_topics` adds
    these partitions. Raises UsageError if another inbound topic has a wrong count, or a topic of another project is missing."""
    known = bus.topics()
    missing = [topic.name for topic in topics.inbound if topic.kind is InboundRole.OUTPUTS and topic.name not in known]
    if missing:
        what = f"topic {missing[0]}, which this project reads, does not exist"
        raise UsageError(what, hint="first start the project that writes it, on this bus and under this --prefix")
    wanted = {topic.name: topic.partitions for topic in topics.inbound if topic.kind is not InboundRole.OUTPUTS}
    growing = {
        name: count for name, count in wanted.items() if known.get(name, count) < count and _is_unused(bus, name, known[name])
    }
    found = intake.partition_count_mismatch({**known, **growing}, topics)
    if found:
        raise UsageError(found, detail="events in the other partitions would never be read", hint=intake.PARTITION_COUNT_HINT)
    return growing


def _is_unused(bus: Bus, topic: str, partitions: int) -> bool:
    return not any(bus.end_offset(Partition(topic, number)) for number in range(partitions))


def create_topics(bus: Bus, topics: GroupTopics) -> None:
    """Creates the missing topics, and adds partitions to inbound topics that have too few and never held a message. Raises
    UsageError as `refuse_other_partitions` does."""
    for name, partitions in refuse_other_partitions(bus, topics).items():
        bus.grow_unused(name, partitions)
    for inbound in topics.inbound:
        if inbound.kind is not InboundRole.OUTPUTS:
            bus.create_topic(inbound.name, inbound.partitions)
    for outbound in topics.outbound:
        bus.create_topic(outbound.topic, topics.shard.count)


def agree_on_semantics(coordination: Coordination, group: str) -> None:
    """Makes the first engine's version of the window semantics the group's. Raises ProjectChanged if this engine has another
    version.

    The semantics are set before the project, and the stored value is compared, as another engine may begin the group concurrently.
    A group with a project but without semantics is partly deleted (`upgrading.delete_group_facts`), and refused.
    """
    if has_any_cut_over(coordination, group):
        return  # each of its projects has a version of its own (`agreed_project`)
    if coordination.fact(group, PROJECT) is not None and coordination.fact(group, SEMANTICS_FACT) is None:
        raise ProjectChanged(
            f"the state of group {group} is only partly deleted", hint="delete the rest with: hotspare reset PROJECT --bus URL"
        )
    stands = coordination.set_fact_once(group, SEMANTICS_FACT, str(SEMANTICS).encode())
    refuse_other_semantics(stated_semantics(stands), f"group {group}")


def agreed_project(coordination: Coordination, group: str, project: ProjectIdentity) -> tuple[Agreement, ProjectVersion]:
    """Makes the first engine's project the group's, until the group is upgraded. Returns all projects of the group, and the version
    that this engine runs.

    Raises ProjectChanged, with the differences, if the group does not run this engine's project.
    """
    stands = coordination.set_fact_once(group, PROJECT, f"{project.hash}\n{project.document}".encode())
    known = agreement(coordination, group)
    if known is None:  # it was forgotten just now
        known = Agreement(ProjectVersion(project.hash, SEMANTICS, stands.decode("utf-8", "replace").partition("\n")[2]))
    leading, version = known.leading, known.version_of(project.hash, SEMANTICS)
    if version is not None:
        return known, version
    if leading.hash == project.hash:
        if not known.cut_overs:
            return known, leading  # `agree_on_semantics` compared its semantics
        refuse_other_semantics(leading.semantics, f"group {group}")
    try:
        differences = list(project.differences(leading.document))
    except Exception as error:
        differences = [f"the stored project cannot be read: {error}"]
    raise ProjectChanged(
        f"group {group} runs another project",
        detail="\n  ".join(differences) or f"its hash is {leading.hash}, the hash of this project is {project.hash}",
        hint="continue from the group's state with: hotspare upgrade PROJECT --bus URL; or run the changed project under a new "
        f"--prefix, or {RESET_HINT}",
    )


def agreed_document(coordination: Coordination, group: str) -> str | None:
    """Returns the text of the project that the group runs (during an upgrade, that leads); None if none of its engines ever
    started."""
    known = agreement(coordination, group)
    return None if known is None else known.leading.document


def agree_on_poison(coordination: Coordination, group: str, asked: EventPolicy | None) -> EventPolicy:
    """Returns the group's policy for an event on which an engine fails: the setting of its first engine. With `asked` None any
    policy is accepted.

    Raises UsageError if `asked` is another policy: some engines would end, others continue, and their states would differ.
    """
    return _agreed_policy(coordination, group, _POISON, asked)


def agree_on_hang(coordination: Coordination, group: str, asked: EventPolicy | None) -> EventPolicy:
    """Returns the group's policy for an event for which a call of user code does not end, as `agree_on_poison` does."""
    return _agreed_policy(coordination, group, _HANG, asked)


def _agreed_policy(coordination: Coordination, group: str, name: str, asked: EventPolicy | None) -> EventPolicy:
    first = EventPolicy.BAD_EVENT if asked is None else asked
    stands = coordination.set_fact_once(group, name, first.value.encode()).decode("utf-8", "replace")
    if asked is not None and stands != asked.value:
        raise UsageError(
            f"{name} {asked.value}: group {group} uses {stands}",
            hint=f"remove {name} from the settings file, or stop all engines and {RESET_HINT}",
        )
    try:
        return EventPolicy(stands)
    except ValueError:
        what = f"group {group} uses {name} {stands}, which this version of hotspare does not support"
        raise UsageError(what, hint="run the version of hotspare that the group uses") from None


def agree_on_skew(coordination: Coordination, group: str, skew_max_ms: int) -> None:
    """Makes the first engine's `skew_max_ms` the group's, since it determines the order in which input is processed. Raises
    UsageError if this engine's setting differs."""
    stands = coordination.set_fact_once(group, _SKEW, str(skew_max_ms).encode()).decode("utf-8", "replace")
    if stands != str(skew_max_ms):
        raise UsageError(
            f"skew-max-ms {skew_max_ms}: group {group} uses {stands}",
            hint=f"write `skew-max-ms: {stands}` in this engine's settings file, or {RESET_HINT}",
        )


def agreed_skew_ms(coordination: Coordination, group: str) -> int:
    """Returns the `skew_max_ms` that the group agreed on. Raises UsageError if no engine of the group ever started."""
    stands = coordination.fact(group, _SKEW)
    if stands is None or not stands.isdigit():
        raise never_started_error(group)
    return int(stands)


def never_started_error(group: str, hint: str = "`hotspare status` shows the groups") -> UsageError:
    """Returns the UsageError of a command for a group of which no engine ever started."""
    return UsageError(f"no engine of group {group} ever started", hint=hint)


def agree_on_origin(bus: Bus, coordination: Coordination, group: str, topics: GroupTopics) -> dict[tuple[str, int], int]:
    """Returns the offsets at which the group began to read, by (topic, partition), the same for every engine. The first engine
    records them.

    Raises StateError if they are unreadable or lack a partition.
    """
    stored = coordination.fact(group, _ORIGIN)
    if stored is None:
        begin = [[p.topic, p.number, bus.begin_offset(p)] for _, p in topics.partitions]
        stored = coordination.set_fact_once(group, _ORIGIN, json.dumps(begin, separators=(",", ":")).encode())
    try:
        origin = {(topic, int(number)): int(offset) for topic, number, offset in json.loads(stored)}
        missing = [p for _, p in topics.partitions if (p.topic, p.number) not in origin]
        if missing and has_any_cut_over(coordination, group):
            origin |= {(p.topic, p.number): _later_origin(bus, coordination, group, p) for p in missing}
            missing = []
    except (ValueError, TypeError) as error:
        what = f"the first offsets of group {group} cannot be read"
        raise StateError(what, detail=str(error), hint=RESET_HINT) from error
    if missing:
        raise StateError(
            f"the first offsets of group {group} lack partition {missing[0].number} of topic {missing[0].topic}",
            hint=RESET_HINT,
        )
    return origin


def _later_origin(bus: Bus, coordination: Coordination, group: str, partition: Partition) -> int:
    """Returns the offset at which the group began to read a partition that an upgrade added; the first engine records it. Raises
    ValueError if the record is unreadable."""
    begin = str(bus.begin_offset(partition)).encode()
    return int(coordination.set_fact_once(group, _later(partition), begin))


def _later(partition: Partition) -> str:
    return f"{_ORIGIN}-{partition.number}-{partition.topic}"


def recorded_origin(coordination: Coordination, group: str, topics: GroupTopics) -> dict[tuple[str, int], int]:
    """Returns the recorded offsets at which the group began to read, by (topic, partition); empty if no engine ever started or they
    are unreadable. Records nothing."""
    stored, found = coordination.fact(group, _ORIGIN), dict[tuple[str, int], int]()
    with contextlib.suppress(ValueError, TypeError):
        found = {(str(topic), int(number)): int(offset) for topic, number, offset in json.loads(stored or b"[]")}
        for _, p in topics.partitions:
            later = None if (p.topic, p.number) in found else coordination.fact(group, _later(p))
            found |= {} if later is None else {(p.topic, p.number): int(later)}
    return found


@dataclass(frozen=True, slots=True)
class RecentStart:
    """The beginning of recent input. `offsets` are by (topic index, partition).

    `complete_us`: all input with this append time or a later one is read. None: nothing precedes the offsets, so all input of the
    group is read.
    """

    offsets: Mapping[tuple[int, int], int]
    complete_us: int | None


def recent_start(bus: Bus, topics: GroupTopics, origin: Mapping[tuple[str, int], int], span_us: int) -> RecentStart:
    """Returns the offsets at which an engine that makes its state from recent input begins to read (SPEC F11).

    They are `span_us` before the newest message, or at the beginning of a topic that is shorter; then the engine waits for new
    input. Messages are found by their append times, which may be wrong for a while. A wrong time costs only time: the engine's own
    time, counted from the first messages, determines when the state is complete.
    """
    newest_us = max((_newest_us(bus, p) for _, p in topics.partitions), default=0)
    offsets: dict[tuple[int, int], int] = {}
    complete_us: int | None = None
    for index, p in topics.partitions:
        first = origin[p.topic, p.number]
        begin, end = max(first, bus.begin_offset(p)), bus.end_offset(p)
        offset = _first_since(bus, p, begin, end, newest_us - span_us)
        offsets[index, p.number] = offset
        if offset > first:
            message = _message_at(bus, p, offset)
            since_us = newest_us - span_us if message is None else message.append_time_us
            complete_us = max(complete_us or 0, since_us)
    return RecentStart(offsets, complete_us)


def _first_since(bus: Bus, partition: Partition, begin: int, end: int, time_us: int) -> int:
    """Returns, by binary search in `begin`..`end`, the offset of the first message with append time `time_us` or later; `end` if
    all are older. If append times are not sorted, the result may be a later such message."""
    while begin < end:
        middle = (begin + end) // 2
        message = _message_at(bus, partition, middle)
        if message is None or message.append_time_us >= time_us:
            end = middle
        else:
            begin = message.offset + 1
    return begin


def _newest_us(bus: Bus, partition: Partition) -> int:
    """Returns the append time of the newest message; 0 without any. The last offsets may be markers of transactions, so the search
    steps back."""
    begin, end, back = bus.begin_offset(partition), bus.end_offset(partition), 1
    while end - back >= begin:
        if (message := _message_at(bus, partition, end - back)) is not None:
            return message.append_time_us
        back *= 2
    message = _message_at(bus, partition, begin)
    return 0 if message is None else message.append_time_us


def _message_at(bus: Bus, partition: Partition, offset: int) -> Message | None:
    """Returns the first message at `offset` or later; None without any."""
    messages = bus.read(partition, offset, messages_max=1, bytes_max=_MESSAGE_BYTES_MAX)
    return messages[0] if messages else None


def check_positions(bus: Bus, topics: GroupTopics, offsets: Mapping[tuple[int, int], int], time_us: int) -> None:
    """Raises PositionLost if the bus no longer holds a message that an engine starting at `offsets` has to read. The error names
    the missing count and a sufficient retention."""
    begins = {partition: bus.begin_offset(partition) for _, partition in topics.partitions}
    lost = rules.first_lost_partition(topics, offsets, begins)
    if lost is not None:
        raise PositionLost(
            f"topic {lost.partition.topic} no longer holds input that this engine needs",
            detail=lost.sentence,
            hint=_retention_hint(bus, lost.partition, time_us),
        )


def _retention_hint(bus: Bus, partition: Partition, time_us: int) -> str:
    end = bus.end_offset(partition)
    newest = _message_at(bus, partition, max(bus.begin_offset(partition), end - 1))
    seconds = rules.enough_retention_s(time_us, None if newest is None else newest.append_time_us)
    if seconds is None:
        found = "set the topic's retention to the longest time that an engine may be down"
    else:
        found = f"a retention of {seconds} s on this topic would have been enough"
    return f"{found}; to start again, {RESET_HINT}"


def downstream_groups(coordination: Coordination, group: str) -> list[str]:
    """Returns the groups, sorted by name, whose agreed projects read output streams of this group's project, under the same prefix.
    Groups with an unreadable project are left out."""
    prefix, _, project = whole_group(group).rpartition(".")
    found = []
    for other in sorted(coordination.groups()):
        document = agreed_document(coordination, other)
        if document is not None and whole_group(other).rpartition(".")[0] == prefix:
            with contextlib.suppress(HotspareError):  # of another version
                found += [other] if project in projects_read(from_document(document)) else []
    return found
