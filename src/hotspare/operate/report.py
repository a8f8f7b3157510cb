"""The report on groups that `hotspare status --json` prints: the facts from coordination, bus and store in one document.

    {"groups": [{"group", "epoch", "active", "successor", "switchover_asked", "lease_left_ms",
                 "engines": [{"engine", "role", "last_role", "role_since_us", "heard_us", "step", "epoch", "host", "process_id",
                              "address", "is_running", "silent_ms", "project_hash", "versions", "cpu", "coordination",
                              "application", "task", "executor", "persisting": {"number", "to"}, "warming", "starting",
                              "ended_because", "held_bytes", "spilled_bytes", "memory": {WHAT: BYTES}, "stalled_ms",
                              "oversized": {STREAM: WHY}, "snapshot_failure", "snapshots_refused": [WHY], "trouble",
                              "trouble_age_ms",
                              "connectors": [{"connector", "state", "rows", "last_error", "retry_in_ms"}],
                              "bad_events": [{"window", "reason", "count"}],
                              "unknown_members": [{"window", "member", "near", "events"}],
                              "positions": [{"topic", "partition", "next_offset", "end_offset", "lag", "skew_ms"}],
                              "streams": [{"stream", "sequence", "committed", "held", "digest"}]}],
                 "persisted": {"number", "to", "engine", "name", "order", "bytes", "took_ms", "failure"},
                 "progress": [{"stream", "sequence", "digest", "epoch"}],
                 "hung_calls": [{"window", "topic", "partition", "offset", "index", "cause", "starts", "engines", "used_ms",
                                 "decision"}],
                 "quarantined": [WINDOW],
                 "newest_snapshot": {"engine", "order", "age_ms"},
                 "snapshots": [{"name", "engine", "status", "order", "bytes_total", "written_time_us"}],
                 "store_failure"}]}

Digests are 16 hexadecimal digits; other quantities are numbers. A value that is not known is null.

| of a group | meaning |
|---|---|
| `active`, `lease_left_ms` | the engine with the role, and the time left of its lease; null if no engine has the role |
| `successor` | the engine that a released role is reserved for |
| `switchover_asked` | the engine that a pending request for a switch-over names, "" for any; null without a request |
| `persisted` | the result of the newest finished request for a snapshot |
| `progress` | what the bus has committed of each stream |
| `hung_calls` | the calls of user code that did not end, by the event (or tick) and window |
| `hung_calls[].starts`, `engines` | how many starts of engines ended there, and which engines these were |
| `hung_calls[].cause`, `used_ms` | `deadline`, `memory` or `crash`, and the processor time of the longest such call |
| `hung_calls[].decision` | the number of the decision that the window refuses what the event causes; null while undecided |
| `quarantined` | the windows that refuse every event after three such decisions (`hotspare quarantine`) |
| `newest_snapshot` | the newest that may be restored, with the engine that wrote it |
| `snapshots[].status` | `candidate`, `confirmed` (may be restored) or `damaged` |
| `snapshots[].order` | the sum of the input positions; so a newer snapshot has a greater one |
| `store_failure` | the reason why the store cannot list snapshots now |

| of an engine | meaning |
|---|---|
| `role` | null without a sign of life; see below |
| `last_role`, `role_since_us` | the role that it reported last, and the time since which it has it, by this machine's clock |
| `heard_us`, `silent_ms` | the time of its newest record by this machine's clock, and its age compared with the group's newest |
| `step`, `epoch` | the step of its promotion, and the newest epoch that it won, 0 before the first |
| `is_running` | whether its process runs; null unless it is in this command's process space |
| `application`, `task`, `executor` | Spark's names of the processes that host it; null of an engine without Spark (docs/scale.md) |
| `persisting` | the request for a snapshot that it works on |
| `warming` | what an engine that rebuilds its state from recent input still waits for |
| `starting` | the phase of its start, until it takes part |
| `ended_because` | the reason of a role that ended it |
| `held_bytes`, `spilled_bytes` | the size of its held outputs in memory, and in files |
| `memory` | the bytes of its windows' state, if it has a budget |
| `stalled_ms` | the time for which its runner has delivered no input although input is pending |
| `oversized` | for each stream that waits because its next output is larger than its topic accepts, the reason |
| `snapshot_failure`, `snapshots_refused` | why the store refused its last snapshot, and why it could not start from others |
| `trouble`, `trouble_age_ms` | the last failure of bus or coordination within the last minute, and its age |
| `connectors` | those of the project, which run only on the active engine |
| `connectors[].state` | `running`, `finished`, `stopped`, `failed`, or `waiting` for others or until `last_error` has passed |
| `connectors[].rows`, `connectors[].retry_in_ms` | rows since it was started there, and the time until a failed one is retried |
| `bad_events` | those that it computed since it started; the sequence of the stream `bad` counts all of the group |
| `unknown_members` | events that it decoded with a member that is not a field; `near` is the field that may be meant |
| `positions[].lag` | messages still to be read |
| `positions[].skew_ms` | at most how far its clock is ahead of the bus's in this partition; negative if it is behind |
| `streams[].sequence`, `committed`, `held` | its newest output, the newest known as committed, and how many are not known as such |

`role` is null if the engine's process is known to have ended, if it is `active` without a valid lease, or if its newest record is
2 s older than the group's. An engine that stopped or diverged keeps its role in the report, so that it shows why it ended.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hotspare.base.call_place import Decision, HangCause
from hotspare.base.errors import BusError, HotspareError, StoreError
from hotspare.bus.contract import Bus, Partition
from hotspare.bus.naming import whole_group
from hotspare.coordination.contract import Coordination, Leader, Member
from hotspare.ha.effects import persisting
from hotspare.ha.effects.hung_calls import read_attempts
from hotspare.ha.effects.upgrading import agreement
from hotspare.ha.member_record import CONNECTORS
from hotspare.ha.rules.hung_calls import parsed_decisions
from hotspare.ha.rules.project_changes import is_stream_record
from hotspare.operate.groups import GroupSources, has_sign_of_life, is_running
from hotspare.operate.quarantine import windows_in_quarantine
from hotspare.stores.contract import SnapshotInfo, SnapshotStatus, Store
from hotspare.telemetry.secrets import masked

Document = dict[str, Any]
_ORIGIN = "origin"
_DAMAGED = "damaged"


def report(sources: GroupSources, groups: Sequence[str] | None = None) -> Document:
    """Returns the document for `groups`, by default for all groups that coordination has records of."""
    names = sorted(sources.coordination.groups()) if groups is None else list(groups)
    return {"groups": [group_document(sources, name) for name in names]}


def group_document(sources: GroupSources, group: str) -> Document:
    leader = sources.coordination.leader(group)
    members = sources.coordination.members(group)
    topics = inbound_topics(sources.coordination, group)
    ends = _end_offsets(sources.bus, topics)
    snapshots, store_failure = _snapshots(sources.store, group)
    newest_ms = max((member.seen_ms for member in members), default=0)
    return {
        "group": group,
        "epoch": leader.epoch,
        "active": leader.holder or None,
        "successor": leader.successor or None,
        "switchover_asked": sources.coordination.requested_successor(group),
        "lease_left_ms": leader.lease_left_ms if leader.holder else None,
        "engines": [_engine(member, topics, ends) | _liveness(member, leader, newest_ms) for member in members],
        "persisted": _persisted(sources.coordination, group),
        "progress": _progress(sources.bus, group),
        "hung_calls": _hung_calls(sources, group),
        "quarantined": [each.window for each in windows_in_quarantine(members, leader.holder)],
        "newest_snapshot": _newest(snapshots),
        "snapshots": [_snapshot(info) for info in snapshots],
        "store_failure": store_failure,
    }


def _snapshots(store: Store | None, group: str) -> tuple[Sequence[SnapshotInfo], str | None]:
    """Returns the group's snapshots, and the reason why the store cannot be read, else None. Raises no StoreError: the report on
    the rest of the group is needed even then."""
    try:
        return ([] if store is None else store.list(group)), None
    except StoreError as error:
        return [], masked(error.in_one_line)


def inbound_topics(coordination: Coordination, group: str) -> list[str]:
    """Returns the inbound topics by index, as the group's first engine recorded them; after an upgrade, those of the leading
    project. Empty if they are not known."""
    known = agreement(coordination, group)
    if known is not None and known.cut_overs:
        from hotspare.host.topics import source_topic
        from hotspare.projects.fingerprint import from_document
        from hotspare.projects.resolve import resolve

        with contextlib.suppress(HotspareError):  # of another version
            resolved = resolve(from_document(known.leading.document))
            return [source_topic(resolved, whole_group(group).rpartition(".")[0], source) for source in resolved.sources]
    with contextlib.suppress(ValueError, TypeError):
        origin = json.loads(coordination.fact(group, _ORIGIN) or b"[]")
        return list(dict.fromkeys(str(topic) for topic, _, _ in origin))
    return []


def _end_offsets(bus: Bus | None, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """Returns the end offset of each partition of those `topics` that the bus has; empty without a bus."""
    ends: dict[tuple[str, int], int] = {}
    if bus is not None:
        known = bus.topics()
        for topic in topics:
            for number in range(known.get(topic, 0)):
                ends[topic, number] = bus.end_offset(Partition(topic, number))
    return ends


def _engine(member: Member, topics: Sequence[str], ends: Mapping[tuple[str, int], int]) -> Document:
    detail = member.detail
    return {
        "engine": member.engine,
        "step": detail.get("step"),
        "epoch": _number(detail.get("epoch")),
        "host": member.host,
        "process_id": member.process_id,
        "address": member.address,
        "application": detail.get("application"),
        "task": detail.get("task"),
        "executor": detail.get("executor") or None,
        "persisting": _persisting(detail.get("persisting")),
        "warming": detail.get("warming") or None,
        "starting": detail.get("starting") or None,
        "is_running": is_running(member),
        "project_hash": member.project_hash,
        "versions": member.versions,
        "cpu": member.cpu,
        "coordination": detail.get("coordination"),
        "ended_because": detail.get("ended_because") or None,
        "held_bytes": _number(detail.get("held_bytes")),
        "spilled_bytes": _number(detail.get("spilled_bytes")),
        "memory": {what: size for what, size in _mapping(detail.get("memory")).items() if isinstance(size, int)},
        "stalled_ms": _number(detail.get("stalled_ms")),
        "oversized": _mapping(detail.get("oversized")),
        "snapshot_failure": detail.get("snapshot_failure") or None,
        "snapshots_refused": [str(why) for why in _list(detail.get("snapshots_refused"))],
        "trouble": detail.get("trouble") or None,
        "trouble_age_ms": _number(detail.get("trouble_age_ms")) if detail.get("trouble") else None,
        "connectors": _connectors(detail.get(CONNECTORS)),
        "bad_events": [
            {"window": each[0] or None, "reason": each[1], "count": each[2]}
            for each in _list(detail.get("bad_events"))
            if isinstance(each, list) and len(each) == 3
        ],
        "unknown_members": [
            {"window": each[0], "member": each[1], "near": each[2] or None, "events": each[3]}
            for each in _list(detail.get("unknown_members"))
            if isinstance(each, list) and len(each) == 4
        ],
        "positions": _positions(member, topics, ends),
        "streams": _streams(member),
    }


def _liveness(member: Member, leader: Leader, newest_ms: int) -> Document:
    """Returns the facts of an engine's document that depend on the current time, which is taken to be the time of the group's
    newest record."""
    silent_ms, age_ms = newest_ms - member.seen_ms, _number(member.detail.get("role_age_ms"))
    heard_us = time.time_ns() // 1000 - silent_ms * 1000
    return {
        "role": member.role if has_sign_of_life(member, leader, newest_ms) else None,
        "last_role": member.role,
        "role_since_us": None if age_ms is None else heard_us - age_ms * 1000,
        "heard_us": heard_us,
        "silent_ms": silent_ms,
    }


def _positions(member: Member, topics: Sequence[str], ends: Mapping[tuple[str, int], int]) -> list[Document]:
    offsets, skews = _mapping(member.detail.get("positions")), _mapping(member.detail.get("skew_ms"))
    found = []
    for key, offset in sorted(offsets.items()):
        index, _, number = key.partition("/")
        if not (index.isdigit() and number.isdigit() and isinstance(offset, int)):
            continue
        topic = topics[int(index)] if int(index) < len(topics) else None
        end = ends.get((topic, int(number))) if topic is not None else None
        lag = None if end is None else max(0, end - offset)
        place = {"topic": topic, "partition": int(number), "next_offset": offset, "end_offset": end, "lag": lag}
        found.append({**place, "skew_ms": skews.get(key)})
    return found


def _streams(member: Member) -> list[Document]:
    committed, held = _mapping(member.detail.get("committed")), _mapping(member.detail.get("held"))
    digests = _mapping(member.detail.get("digests"))
    return [
        {
            "stream": stream,
            "sequence": sequence,
            "committed": committed.get(stream),
            "held": held.get(stream),
            "digest": digests.get(stream),
        }
        for stream, sequence in sorted(member.sequences.items())
    ]


def _connectors(text: str | None) -> list[Document]:
    names = ("state", "rows", "last_error", "retry_in_ms")
    return [
        {"connector": name, **dict(zip(names, told, strict=True)), "last_error": told[2] or None}
        for name, told in sorted(_mapping(text).items())
        if isinstance(told, list) and len(told) == len(names)
    ]


def _progress(bus: Bus | None, group: str) -> list[Document]:
    if bus is None:
        return []
    with contextlib.suppress(BusError):
        return [
            {"stream": stream, "sequence": each.sequence, "digest": f"{each.digest:016x}", "epoch": each.epoch}
            for stream, each in sorted(bus.progress(group).items())
            if is_stream_record(stream)
        ]
    return []


def _hung_calls(sources: GroupSources, group: str) -> list[Document]:
    """Returns what the group recorded about calls of user code that did not end, by place."""
    attempts, decisions = read_attempts(sources.coordination, group), tuple[Decision, ...]()
    if sources.bus is not None:
        with contextlib.suppress(BusError):
            decisions = parsed_decisions(sources.bus.progress(group))
    numbers = {each.place: each.number for each in decisions}
    causes = {each.place: each.cause.value for each in attempts} | {each.place: each.cause.value for each in decisions}
    found = []
    for place in sorted(place for place, cause in causes.items() if cause != HangCause.LIFTED):
        own = [each for each in attempts if each.place == place]
        known = {"starts": len({each.start for each in own}), "engines": sorted({each.engine for each in own})}
        known |= {"used_ms": max((each.used_ms for each in own), default=None), "decision": numbers.get(place)}
        found.append(asdict(place) | {"cause": causes[place]} | known)
    return found


def _newest(snapshots: Sequence[SnapshotInfo]) -> Document | None:
    """Returns the newest snapshot that may be restored, None without one. Its age is this machine's time minus that of the
    writer."""
    confirmed = [info for info in snapshots if info.status is SnapshotStatus.CONFIRMED and not info.is_damaged]
    if not confirmed:
        return None
    newest = max(confirmed, key=lambda info: info.order)
    age_ms = max(0, time.time_ns() // 1000 - newest.written_time_us) // 1000
    return {"engine": newest.engine, "order": newest.order, "age_ms": age_ms}


def _snapshot(info: SnapshotInfo) -> Document:
    return {
        "name": info.name,
        "engine": info.engine,
        "status": _DAMAGED if info.is_damaged else info.status.value,
        "order": info.order,
        "bytes_total": None if info.is_damaged else info.bytes_total,
        "written_time_us": None if info.is_damaged else info.written_time_us,
    }


def _persisting(text: str | None) -> Document | None:
    """Returns the request for a snapshot on which an engine works; None without one."""
    try:
        number, to = json.loads(text or "null") or (None, None)
    except (ValueError, TypeError):
        return None
    return None if number is None else {"number": number, "to": masked(str(to))}


def _persisted(coordination: Coordination, group: str) -> Document | None:
    """Returns the result of the newest finished request for a snapshot."""
    newest = persisting.newest_finished_request(coordination, group)
    if newest is None or newest.outcome is None:
        return None
    outcome = {name: getattr(newest.outcome, name) for name in ("engine", "name", "order", "bytes", "took_ms")}
    failure = masked(newest.outcome.failure) or None
    return {"number": newest.number, "to": masked(newest.request.to), **outcome, "failure": failure}


def _mapping(text: str | None) -> dict[str, Any]:
    """Parses a JSON object that an engine reported; {} if it cannot be read, because another version wrote it."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _list(text: str | None) -> list[Any]:
    try:
        value = json.loads(text or "[]")
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None
