"""Decides what a group does about a call of user code that does not end: where engines stop, who decides, and which state is void.

    attempts (coordination)          decisions (progress partition of the bus)
         │ counted when an engine joins      │ read when an engine joins, with each progress
         ▼                                   ▼
    the core stops before a place ──► an active engine commits a decision ──► the window refuses what the position causes

An attempt proves nothing about other machines: it only makes engines stop and look. A decision is safe for one reason: it is
committed under the newest epoch, by an engine whose state ends right before the place and has every committed output. So no output
at or beyond the place exists, and every engine that publishes later has read the decision after its fence. An engine whose state
passed the place without the decision is void, whatever its outputs look like: it leaves, and is started again.

After QUARANTINE_DECISIONS of them a window is in quarantine. A user may request to lift it. Then an active engine chooses a place
ahead of the end of the input, stops before it, and commits the decision that the quarantine ends there. The same reason makes it
safe: no engine has output at or beyond the place.

If the group's policy is to stop, an active engine commits all outputs before the place and ends, and so does each successor.

If committed output does lie beyond the place, some engine has passed it, so the call ends: this engine computes it without a
limit.

A snapshot becomes void if a place before it is decided later. So in a group with user code, input and older snapshots are deleted
only behind a snapshot beyond which output is committed (`effects.snapshots`): then no engine can decide about a place before it.
Attempts could not hold back a deletion: a call that began before it may be recorded after it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from hotspare.base.call_place import (
    BEFORE_EVENTS,
    CallAttempt,
    CallPlace,
    Decision,
    HangCause,
    LiftRequest,
    decisions_left,
)
from hotspare.base.choices import EventPolicy
from hotspare.bus.contract import Partition, Progress
from hotspare.ha.rules.facts import HungCalls
from hotspare.ha.rules.project_changes import DECISION_PREFIX
from hotspare.ha.rules.view import StreamView, View

STARTS_MAX = 2
"""The number of engine starts that may fail at one place before no engine computes it undecided."""


def is_decision_record(name: str) -> bool:
    """Whether a record among a group's progress is a decision, and not that of a stream."""
    return name.startswith(DECISION_PREFIX)


def decision_record(decision: Decision, epoch: int) -> dict[str, Progress]:
    """Returns the record, by name, with which a decision is committed under `epoch`."""
    *named, number = decision.to_list()
    return {DECISION_PREFIX + json.dumps(named, separators=(",", ":")): Progress(int(number), None, 0, epoch)}


def parsed_decisions(progress: Mapping[str, Progress]) -> tuple[Decision, ...]:
    """Returns the decisions among a group's records, by number. Records of other versions, and those of a group that was reset,
    are ignored."""
    found = [_parsed(name, each.sequence) for name, each in progress.items() if is_decision_record(name) and each.sequence]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: each.number))


def _parsed(name: str, number: int) -> Decision | None:
    try:
        return Decision.from_list([*json.loads(name.removeprefix(DECISION_PREFIX)), number])
    except (ValueError, TypeError):
        return None


def places_to_stop_before(attempts: Iterable[CallAttempt], decisions: Collection[Decision]) -> dict[CallPlace, HangCause]:
    """Returns the undecided places at which STARTS_MAX different starts have failed, each with the cause of one of the attempts.
    Calls of several rows do not count, because any of their rows may be the one."""
    attempts = sorted(attempts, key=lambda each: each.fact_name)
    decided, starts = {each.place for each in decisions}, dict[CallPlace, set[str]]()
    for each in attempts:
        if each.rows == 1 and each.place not in decided:
            starts.setdefault(each.place, set()).add(each.start)
    return {each.place: each.cause for each in attempts if len(starts.get(each.place, ())) >= STARTS_MAX}


def calls_to_divide(attempts: Iterable[CallAttempt]) -> tuple[CallPlace, ...]:
    """Returns the places of calls for several rows that did not end. Their windows are called row by row from then on, which shows
    each time which row it is."""
    return tuple(sorted({each.place for each in attempts if each.rows > 1}))


def is_output_beyond_committed(streams: Mapping[str, StreamView]) -> bool:
    """Whether committed output lies beyond this engine's state, so that another engine has computed what this one has not."""
    return any(
        stream.is_behind if stream.facts.is_shift_unknown else stream.facts.committed_sequence > stream.last_sequence
        for stream in streams.values()
    )


def due_decision(view: View) -> Decision | None:
    """Returns the decision to commit with the next transaction of an active engine; None without one.

    The core has stopped before the place, or will, and all that older epochs committed is known since the promotion.
    """
    known = view.hung_calls
    place = min(chosen_lifts(known), default=view.core.stopped_at)
    if place is None or is_output_beyond_committed(view.streams) or any(each.place == place for each in known.decisions):
        return None
    cause = known.places.get(place, HangCause.DEADLINE)
    if cause is not HangCause.LIFTED and known.policy is EventPolicy.STOP:
        return None
    return Decision(place, cause, max((each.number for each in known.decisions), default=0) + 1)


def lift_requests(known: HungCalls) -> tuple[LiftRequest, ...]:
    """Returns the requests that would lift the present quarantines, one for each window in quarantine, by window."""
    about = dict[str, list[Decision]]()
    for each in known.decisions:
        if known.versions.get(each.place.window) == each.place.version:
            about.setdefault(each.place.window, []).append(each)
    found = (own for own in about.values() if not decisions_left(each.cause for each in own))
    return tuple(sorted(LiftRequest(own[-1].place.window, own[-1].place.version, own[-1].number) for own in found))


def chosen_lifts(known: HungCalls) -> list[CallPlace]:
    """Returns the undecided places that this engine chose to lift quarantines."""
    chosen = [place for place, cause in known.places.items() if cause is HangCause.LIFTED]
    decided = {each.place for each in known.decisions} if chosen else set()
    return [place for place in chosen if place not in decided]


def lift_place(request: LiftRequest, before: Mapping[Partition, int], now: Mapping[Partition, int]) -> CallPlace | None:
    """Returns the place at which to lift a quarantine: in the partition that grew most, as far behind its end as it grew. None if
    none grew. `before`, `now`: the end offsets of the partitions.

    So spares usually read the decision before they reach the place; one that does not is void.
    """
    growth = {each: now[each] - end for each, end in before.items() if each in now}
    at = max(growth, key=growth.__getitem__, default=None)
    if at is None or growth[at] <= 0:
        return None
    return CallPlace(at.topic, at.number, now[at] + growth[at], BEFORE_EVENTS, request.window, request.version)


def may_pass(view: View) -> bool:
    """Whether the core has stopped before a place that another engine is known to have passed."""
    return _is_stopped_by_attempts(view) and is_output_beyond_committed(view.streams)


def _is_stopped_by_attempts(view: View) -> bool:
    place = view.core.stopped_at
    return place is not None and view.hung_calls.places.get(place) is not HangCause.LIFTED


def stop_reason(view: View) -> str:
    """Returns why an active engine that has committed all outputs ends instead of deciding, as the group's policy requires; ""
    while it need not."""
    is_to_stop = _is_stopped_by_attempts(view) and view.hung_calls.policy is EventPolicy.STOP
    if not is_to_stop or is_output_beyond_committed(view.streams):
        return ""
    return f"calls of user code did not end in {STARTS_MAX} starts of engines, and on-hang is stop: {view.core.stopped_at}"


def void_reason(view: View) -> str:
    """Returns why this engine's state is void; "" if it is valid."""
    if not view.core.missing_decisions:
        return ""
    return f"the state passed a call that the group has decided to refuse: {view.core.missing_decisions[0].place}"
