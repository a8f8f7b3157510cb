"""Writes an engine's description of itself for its group, and parses the descriptions of other engines (SPEC M5)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace

from hotspare.base.call_place import HangCause, LiftRequest
from hotspare.coordination.contract import Member
from hotspare.ha.group_state import GroupState, stream_views
from hotspare.ha.outputs.held import HeldStream
from hotspare.ha.ports import ConnectorFacts
from hotspare.ha.rules import hung_calls, membership
from hotspare.ha.rules.commit_budget import CommitSizes
from hotspare.ha.rules.facts import Difference, OtherMember
from hotspare.ha.rules.holding import has_missing_outputs
from hotspare.ha.rules.parsed_number import parsed_number
from hotspare.ha.rules.roles import Role
from hotspare.ha.rules.warming import warming_sentence

_DIFFERS = "differs"
_POSITIONS = "positions"
_CONFIRMED = "snapshot_confirmed"
_PRIORITY = "snapshot_priority"
_COMMIT = "commit"
_EPOCH = "epoch"
_ROLE_AGE = "role_age_ms"
PROJECT = "project"
"""The key of the project's number in a description (`rules.upgrading.ProjectVersion`)."""
CUT_OVERS = "moves"
_MEMORY_BY_WINDOW = "memory_by_window"
CONNECTORS = "connectors"
"""The key of the connectors in a description: by name, state, rows, last error, and milliseconds until a failed connector is
retried."""
QUARANTINED = "quarantined"
"""The key of the windows in quarantine in a description: for each, the request that would lift its quarantine. A lifted one is
left out once the engine has passed the place."""
_CONNECTORS_MAX, _BAD_MAX, _ERROR_LENGTH_MAX = 100, 50, 500
TROUBLE_MS = 60_000
"""The time for which an engine shows the last failure of bus or coordination in its description."""
_WINDOWS_MAX = 50
"""The count of windows, the largest ones, whose memory an engine reports: its description is written every half second."""


def member_of(state: GroupState, now_ms: int, connectors: Mapping[str, ConnectorFacts]) -> Member:
    """Returns this engine's description at `now_ms`, with the facts of its `connectors`. Every detail is text; structured details
    are JSON."""
    held = state.held.streams
    detail = {
        **state.identity.detail,
        "step": state.role_state.step.value,
        _EPOCH: str(state.role_state.epoch),
        _ROLE_AGE: str(now_ms - state.role_state.role_since_ms),
        "skew_ms": _json(_skews_ms(state)),
        _POSITIONS: _json({f"{topic}/{number}": offset for (topic, number), offset in state.core.next_offsets.items()}),
        "time_us": str(state.core.time_us),
        "waiting": str(state.core.waiting_rows),
        "digests": _json({name: f"{digest:016x}" for name, digest in _digests(state)}),
        "held": _json({name: _pending(state, name, stream) for name, stream in held.items()}),
        "held_bytes": str(state.held.memory_bytes),
        "spilled_bytes": str(sum(stream.spilled_bytes for stream in held.values())),
        "committed": _json({name: state.streams[name].committed_sequence for name in held}),
        "qualities": _json({name: str(state.qualities.stream_quality(name)) for name in held}),
        "qualities_pending": _json(_pending_qualities(state)),
        "quality_version": str(state.qualities.version),
        "lost": _json({name: stream.lost for name, stream in state.streams.items() if stream.lost}),
        "memory": _json(dict(state.core.memory_by_kind)),
        "coordination": state.contacts.contact.value,
        "ended_because": state.ended_because,
        "stalled_ms": str(state.intake.stalled_ms),
        "oversized": _json({name: s.oversized.sentence for name, s in state.streams.items() if s.oversized is not None}),
        "snapshot_failure": state.snapshots.failure,
        "snapshots_refused": _json(state.snapshots.refused),
        "trouble": state.contacts.trouble if now_ms - state.contacts.trouble_ms < TROUBLE_MS else "",
        "trouble_age_ms": str(now_ms - state.contacts.trouble_ms),
        QUARANTINED: _json([astuple(each) for each in _quarantines(state)]),
        "bad_events": _json(state.bad_counts.largest(_BAD_MAX)),
        "unknown_members": _json(state.unknown_counts.largest(_BAD_MAX)),
        CONNECTORS: _json(_connectors(connectors)),
        _CONFIRMED: str(state.snapshots.confirmed_order),
        "persisting": _json(_persisting(state)),
        "warming": ""
        if state.role_state.role is not Role.WARMING or state.warming is None
        else warming_sentence(state.warming, state.streams),
        _PRIORITY: str(state.settings.snapshot_priority),
        _COMMIT: _json(state.budget.commit_sizes),
        PROJECT: str(state.projects.own),
    }
    if state.projects.cut_overs:
        detail[CUT_OVERS] = str(state.projects.cut_overs)
    if windows := _memory_by_window(state):
        detail[_MEMORY_BY_WINDOW] = _json(windows)
    if state.differences:
        first = state.differences[0]
        detail[_DIFFERS] = _json([first.stream, first.sequence, first.digest, first.epoch])
    return replace(state.identity, role=state.role_state.role.value, sequences=_sequences(state), detail=detail)


def _connectors(found: Mapping[str, ConnectorFacts]) -> dict[str, list[object]]:
    """Returns [state, rows, last error, retry_in_ms] by connector, failed ones first; at most _CONNECTORS_MAX, and long errors are
    cut off."""
    names = sorted(found, key=lambda name: (found[name].retry_in_ms is None, name))[:_CONNECTORS_MAX]
    return {name: [f.state, f.rows, f.last_error[:_ERROR_LENGTH_MAX], f.retry_in_ms] for name in names for f in [found[name]]}


def _memory_by_window(state: GroupState) -> dict[str, Mapping[str, int]]:
    windows = state.core.memory_by_window
    largest = sorted(windows, key=lambda name: (-sum(windows[name].values()), name))[:_WINDOWS_MAX]
    return {name: windows[name] for name in largest}


def memory_by_window(member: Member) -> dict[str, dict[str, int]]:
    """Returns the bytes of a member's state by window and kind, only of windows whose rows may be evicted; empty if unreported or
    invalid."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        found = json.loads(member.detail.get(_MEMORY_BY_WINDOW, "{}"))
        return {str(name): {str(what): int(size) for what, size in sizes.items()} for name, sizes in found.items()}
    return {}


def _quarantines(state: GroupState) -> tuple[LiftRequest, ...]:
    """Returns the requests that would lift the quarantines in which windows are at this engine's position."""
    offsets = {(each.topic, each.number): state.core.next_offsets.get((i, each.number), 0) for i, each in state.topics.partitions}
    known = state.hung_calls
    passed = (
        each
        for each in known.decisions
        if each.cause is not HangCause.LIFTED or each.place.offset < offsets.get((each.place.topic, each.place.partition), 0)
    )
    return hung_calls.lift_requests(replace(known, decisions=tuple(passed))) if known.decisions else ()


def lifts_of(member: Member) -> tuple[LiftRequest, ...]:
    """Returns the requests that would lift the quarantines that a member reports; empty if unreported or invalid."""
    with contextlib.suppress(ValueError, TypeError):
        found = json.loads(member.detail.get(QUARANTINED, "[]"))
        return tuple(LiftRequest(str(window), str(version), int(number)) for window, version, number in found)
    return ()


def _persisting(state: GroupState) -> tuple[int, str] | None:
    """Returns (number, store) of the persist request that this engine is working on; None without one."""
    known = state.persisting
    return (known.number + 1, known.request.to) if known.is_begun and known.request is not None and known.outcome is None else None


def _skews_ms(state: GroupState) -> dict[str, int]:
    """Returns the milliseconds by which this engine's clock is ahead of the bus's, by "topic index/partition", as far as known."""
    skews = {f"{each.facts.topic_index}/{each.facts.number}": each.skew.ahead_ms for each in state.inbound}
    return {partition: ahead_ms for partition, ahead_ms in skews.items() if ahead_ms is not None}


def _pending_qualities(state: GroupState) -> list[str]:
    """Returns the streams whose quality forbids loss but of which this engine has released uncommitted outputs, because the quality
    was changed lately."""
    return [name for name, stream in stream_views(state).items() if has_missing_outputs(stream)]


def _sequences(state: GroupState) -> dict[str, int]:
    """Returns the newest sequence of each stream, without streams whose numbers this engine has yet to adopt."""
    return {name: stream.last_sequence for name, stream in state.held.streams.items() if not state.streams[name].is_unadopted}


def _digests(state: GroupState) -> list[tuple[str, int]]:
    """Returns (name, digest) of each stream whose numbers this engine knows, and of each traced window, which is not a stream."""
    unknown = {name for name, each in state.streams.items() if each.is_unadopted}
    return [(name, digest) for name, digest in state.core.digests.items() if name not in unknown]


def _pending(state: GroupState, name: str, stream: HeldStream) -> int:
    return max(0, stream.last_sequence - max(state.streams[name].committed_sequence, stream.base.sequence))


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def is_differing(member: Member) -> bool:
    """Whether a member reports that its outputs differ from those committed."""
    return _DIFFERS in member.detail


def rank_of(member: Member) -> int:
    """Returns the sum of a member's output sequences: in an election, the candidate with the greatest rank goes first."""
    return sum(member.sequences.values())


def other_members_of(members: Sequence[Member], own_engine: str, stale_ms: int) -> tuple[OtherMember, ...]:
    """Returns the other engines, as decisions need them, whose records are less than `stale_ms` older than the newest record of the
    group."""
    return tuple(
        OtherMember(
            m.engine,
            m.role,
            rank_of(m),
            _evidence(m.detail.get(_DIFFERS, "")),
            _order_of(m),
            _confirmed_by(m),
            _commit_sizes(m),
            _priority(m),
            _held(m),
            m.sequences,
            _project(m),
            parsed_number(m.detail.get(CUT_OVERS, "")) or 0,
        )
        for m in membership.recently_seen(members, stale_ms)
        if m.engine != own_engine
    )


def _order_of(member: Member) -> int:
    """Returns the sum of a member's input positions; -1 if they are missing or invalid."""
    known = positions_of(member)
    return sum(known.values()) if known else -1


def positions_of(member: Member) -> dict[str, int]:
    """Returns a member's next offsets by "topic index/partition"; empty if they are missing or invalid."""
    try:
        found = {str(partition): int(offset) for partition, offset in json.loads(member.detail.get(_POSITIONS, "")).items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}
    return found if all(_is_partition(partition) for partition in found) else {}


def _is_partition(text: str) -> bool:
    topic, mark, number = text.partition("/")
    return mark != "" and parsed_number(topic) is not None and parsed_number(number) is not None


def spares_of(members: Sequence[Member], holder: str, silent_ms: int) -> list[Member]:
    """Returns the engines that could become active next: standbys whose records are less than `silent_ms` older than the group's
    newest record.

    If a group runs two projects, only engines of the holder's project are returned.
    """
    heard = [m for m in membership.recently_seen(members, silent_ms) if m.role == Role.STANDBY.value and m.engine != holder]
    leading = {_project(m) for m in members if m.engine == holder}
    return [m for m in heard if not leading or _project(m) in leading]


def _project(member: Member) -> int:
    return parsed_number(member.detail.get(PROJECT, "")) or 0


def _confirmed_by(member: Member) -> int:
    """Returns the order of the newest snapshot that a member confirmed; -1 for none."""
    order = parsed_number(member.detail.get(_CONFIRMED, ""))
    return -1 if order is None else order


def _priority(member: Member) -> int:
    """Returns the snapshot priority of a member; 1 if unreported or invalid."""
    priority = parsed_number(member.detail.get(_PRIORITY, ""))
    return 1 if priority is None else priority


def _held(member: Member) -> tuple[int, int] | None:
    """Returns (the epoch under which a member is active, milliseconds for which it was active when it reported so); None if it is
    not active."""
    epoch, age_ms = (parsed_number(member.detail.get(name, "")) for name in (_EPOCH, _ROLE_AGE))
    return None if epoch is None or age_ms is None or member.role != Role.ACTIVE.value else (epoch, age_ms)


def _commit_sizes(member: Member) -> CommitSizes | None:
    """Returns the transaction sizes that a member reports the bus to accept; None if missing or invalid."""
    try:
        return CommitSizes(*(int(number) for number in json.loads(member.detail.get(_COMMIT, ""))))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _evidence(text: str) -> Difference | None:
    """Returns the difference that a member reports between its outputs and those committed; None if missing or invalid."""
    try:
        stream, sequence, digest, epoch = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None
    if isinstance(stream, str) and all(isinstance(n, int) for n in (sequence, digest, epoch)):
        return Difference(stream, sequence, digest, epoch, 0)
    return None
