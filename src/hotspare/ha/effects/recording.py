"""Records the results of actions in the state: the changes that more than one action makes."""

from __future__ import annotations

from dataclasses import replace

from hotspare.base.errors import CoordinationError, CoordinationLost
from hotspare.coordination.contract import Leader
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import leadership
from hotspare.ha.rules.facts import LONG_AGO_MS, Contact, Contacts
from hotspare.ha.rules.roles import Reason, Role, Step, checked_transition

ALARM_MS = 60_000
FAILING_MS = 1_000
"""Failures of coordination that last for less than this raise no alarm: on a busy machine a single call may be late."""
_FAILING_GAP_MS = 10_000
"""Failures that are further apart, with a success between them, do not belong to one series."""


def report(state: GroupState, ports: Ports, kind: HaEventKind, sentence: str, **numbers: int) -> None:
    ports.report(HaEvent(kind, state.group, state.engine, sentence, numbers))


def alarm(state: GroupState, ports: Ports, kind: HaEventKind, reason: str, sentence: str) -> None:
    """Reports an event that may recur many times a second: at most once in `ALARM_MS` for each pair of `kind` and `reason`."""
    now_ms = ports.clock_ms()
    state.alarms = {key: told_ms for key, told_ms in state.alarms.items() if now_ms - told_ms < ALARM_MS}
    if (kind, reason) not in state.alarms:
        state.alarms[kind, reason] = now_ms
        report(state, ports, kind, sentence)


def record_trouble(state: GroupState, ports: Ports, kind: HaEventKind, reason: str, sentence: str) -> None:
    """Reports as `alarm` does, and shows `sentence` in the engine's member record for a while (`member_record.TROUBLE_MS`)."""
    state.contacts = replace(state.contacts, trouble=sentence, trouble_ms=ports.clock_ms())
    alarm(state, ports, kind, reason, sentence)


def invalidate_leader(state: GroupState) -> None:
    """Discards the known leader, so that `decide` reads it again before any decision that depends on it."""
    state.leadership = replace(state.leadership, leader=None)


def schedule_bus_retry(state: GroupState, ports: Ports) -> None:
    state.contacts = replace(state.contacts, bus_retry_ms=ports.clock_ms() + state.settings.retry_ms)


def refresh_member_soon(state: GroupState) -> None:
    state.last_runs = replace(state.last_runs, member_refreshed_ms=LONG_AGO_MS)


def change_role(state: GroupState, ports: Ports, to: Role, reason: Reason, step: Step = Step.NONE) -> None:
    """Changes the role and reports it. Raises StateError if `ROLE_TRANSITIONS` lacks the transition. Also clears the retries of
    oversized outputs."""
    before, now_ms = state.role_state.role, ports.clock_ms()
    role = checked_transition(before, to, reason)
    state.role_state = replace(state.role_state, role=role, role_since_ms=now_ms, step=step, step_ms=now_ms)
    state.lease = replace(state.lease, committing_since_ms=None)
    for stream, known in state.streams.items():
        state.streams[stream] = replace(known, oversized=None)
    refresh_member_soon(state)
    sentence, numbers = f"{before.value} becomes {to.value}: {reason.value}", {"epoch": state.role_state.epoch}
    ports.report(HaEvent(HaEventKind.ROLE_CHANGED, state.group, state.engine, sentence, numbers, reason.value))


def record_promotion_step(state: GroupState, ports: Ports, step: Step) -> None:
    """Records that the promotion reached `step` now; the lease rules count from this time."""
    state.role_state = replace(state.role_state, step=step, step_ms=ports.clock_ms())


def record_contact(state: GroupState, ports: Ports) -> None:
    """Records that coordination answered; reports that if an alarm about its failures was raised."""
    if state.contacts.contact is not Contact.CONNECTED:
        state.contacts = replace(state.contacts, contact=Contact.CONNECTED)
        if not _is_failing(state.contacts):
            return
        sentence = f"coordination is {Contact.CONNECTED.value}"
        alarm(state, ports, HaEventKind.COORDINATION_CHANGED, sentence, sentence)


def record_lost_contact(state: GroupState, ports: Ports, error: CoordinationError) -> None:
    """Records that a call to coordination failed, and reports the failure as late. Once failures last for `FAILING_MS`, reports
    them as a trouble.

    Other calls may succeed in between: on a full disk, reads do.
    """
    contact, now_ms = Contact.LOST if isinstance(error, CoordinationLost) else Contact.SUSPENDED, ports.clock_ms()
    before = state.contacts
    is_same = before.contact is not Contact.CONNECTED or now_ms - before.failed_ms < _FAILING_GAP_MS
    since_ms = before.failing_since_ms if is_same else now_ms
    state.contacts = replace(before, contact=contact, failing_since_ms=since_ms, failed_ms=now_ms)
    reason = f"coordination is {contact.value}"
    sentence = f"{reason}: {error.in_one_line}"
    if _is_failing(state.contacts):
        record_trouble(state, ports, HaEventKind.COORDINATION_CHANGED, reason, sentence)
    else:
        alarm(state, ports, HaEventKind.COORDINATION_LATE, reason, sentence)


def _is_failing(contacts: Contacts) -> bool:
    return contacts.failed_ms - contacts.failing_since_ms >= FAILING_MS


def record_leader(state: GroupState, ports: Ports, leader: Leader) -> None:
    before = state.leadership.leader
    state.leadership = leadership.after_reading(state.leadership, leader, ports.clock_ms())
    record_contact(state, ports)
    if leadership.is_other_holder(before, leader):
        ports.peers.watch(leader)


def close_producer(state: GroupState) -> None:
    """Closes the producer. The result of a transaction under way stays unknown; the next engine that publishes first reads what is
    committed."""
    state.transaction = None
    if state.producer is not None:
        state.producer.close()
        state.producer = None


def record_bus_unlocked(state: GroupState) -> None:
    if state.contacts.locked_since_ms is not None:
        state.contacts = replace(state.contacts, lock_holder=None, locked_since_ms=None)
