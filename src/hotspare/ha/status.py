"""What `hotspare status` and metrics show of one engine in one group (SPEC M5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.ha.group_state import GroupState
from hotspare.ha.rules.roles import Role, Step


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """`committed` is the newest sequence known to be committed, `sequence` the newest computed; `held` rows lie between."""

    sequence: int
    committed: int
    held: int
    digest: int


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """A moment's picture. `next_offsets` is by (topic index, partition); `ended_because` is "" while the engine takes part."""

    group: str
    engine: str
    role: Role
    step: Step
    epoch: int
    leader: str
    leader_epoch: int
    coordination: str
    next_offsets: Mapping[tuple[int, int], int]
    time_us: int
    streams: Mapping[str, StreamStatus]
    held_memory_bytes: int
    held_spilled_bytes: int
    snapshots_waiting: int
    snapshots_confirmed: int
    differs: bool
    ended_because: str


def status_of(state: GroupState) -> GroupStatus:
    leader = state.leadership.leader
    digests = state.core.digests
    streams = {
        name: StreamStatus(held.last_sequence, state.streams[name].committed_sequence, held.rows, digests.get(name, 0))
        for name, held in state.held.streams.items()
    }
    return GroupStatus(
        group=state.group,
        engine=state.engine,
        role=state.standing.role,
        step=state.standing.step,
        epoch=state.standing.epoch,
        leader=leader.holder if leader is not None else "",
        leader_epoch=leader.epoch if leader is not None else 0,
        coordination=state.contacts.contact.value,
        next_offsets=dict(state.core.next_offsets),
        time_us=state.core.time_us,
        streams=streams,
        held_memory_bytes=state.held.memory_bytes,
        held_spilled_bytes=sum(s.spilled_bytes for s in state.held.streams.values()),
        snapshots_waiting=len(state.snapshots.candidates),
        snapshots_confirmed=state.snapshots.snapshots_confirmed,
        differs=bool(state.differences),
        ended_because=state.ended_because,
    )
