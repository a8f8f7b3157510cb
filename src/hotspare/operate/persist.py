"""Requests a snapshot while a group runs, or copies its newest one if no engine runs (SPEC H3, H13, Z4, Z5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from hotspare.base.errors import StoreError, UsageError
from hotspare.base.retry import Retry
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.effects.persisting import PersistRequestState, copy_newest_snapshot, find_persist_request, submit_persist_request
from hotspare.ha.rules.facts import PersistRequest
from hotspare.ha.rules.requests import FINISHED_KEPT_MAX
from hotspare.ha.rules.roles import PARTICIPATING
from hotspare.operate.groups import GroupSources, has_sign_of_life
from hotspare.stores.contract import SnapshotInfo
from hotspare.stores.open import open_store
from hotspare.telemetry.secrets import masked

_POLL_S = 0.05


def live_engines(service: Coordination, group: str) -> list[Member]:
    """Returns the engines of the group that count as alive (`has_sign_of_life`) and are active, about to become active, or
    spares."""
    members, leader = service.members(group), service.leader(group)
    newest_ms = max((member.seen_ms for member in members), default=0)
    return [m for m in members if m.role in PARTICIPATING and has_sign_of_life(m, leader, newest_ms)]


def request_snapshot(service: Coordination, group: str, engines: Sequence[Member], request: PersistRequest) -> int:
    """Adds a request for a snapshot and returns its number. Raises UsageError if the engine `request.by` is not among `engines`,
    if `engines` is empty, or if too many requests are unfinished."""
    meant = [member for member in engines if request.by in ("", member.engine)]
    if not meant:
        names = ", ".join(member.engine for member in engines)
        raise UsageError(f"group {group} has no running engine {request.by}", hint=f"engines: {names}")
    return submit_persist_request(service, group, request)


def await_persist_outcome(
    service: Coordination, group: str, number: int, timeout_s: float, report: Callable[[PersistRequestState], None]
) -> PersistRequestState:
    """Waits until request `number` is done, and returns it with its outcome. `report` is called with the state of the request
    after each look while it is unfinished. Raises StoreError if the snapshot could not be written, UsageError after `timeout_s` or
    if the result is not stored.
    """
    known: PersistRequestState | None = None
    for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries():
        known = find_persist_request(service, group, number)
        if known is None or known.outcome is not None:
            break
        report(known)
    if known is None:
        what = f"the result of request {number} of group {group} is no longer kept: {FINISHED_KEPT_MAX} later requests are done"
        raise UsageError(what, hint="`hotspare state ls` shows the snapshots of a store")
    if known.outcome is None:
        who = f"engine {known.claims[-1]} has taken it" if known.claims else "no engine has taken it"
        detail = f"{who}; it may be restored only after the outputs before it are committed"
        raise UsageError(f"request {number} is not done after {timeout_s:g} s", detail=detail, hint="`hotspare status` shows it")
    if known.outcome.failure:
        what = f"engine {known.outcome.engine} could not persist a snapshot of group {group}"
        raise StoreError(what, detail=masked(known.outcome.failure))
    return known


def copy_without_engines(sources: GroupSources, group: str, request: PersistRequest) -> SnapshotInfo:
    """Copies the newest restorable snapshot of a group without running engines to `request.to`, and returns its description.
    Raises UsageError without a target or a store."""
    if not request.to:
        raise UsageError(f"no engine of group {group} runs", hint="add --to PATH, to copy its newest snapshot there")
    if sources.store is None:
        raise UsageError(f"group {group} has no snapshot", hint="give --store URL, if its snapshots are elsewhere")
    with closing(open_store(request.to)) as target:
        return copy_newest_snapshot(sources.store, target, sources.coordination, group, request.keep)
