"""Shows which windows of a group are in quarantine because calls of their code did not end, and lifts a quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.base.call_place import LiftRequest
from hotspare.base.errors import UsageError
from hotspare.base.retry import Retry
from hotspare.coordination.contract import Coordination, Member
from hotspare.ha.member_record import lifts_of
from hotspare.ha.rules.membership import recently_seen
from hotspare.operate.groups import SILENT_MS_MAX

_POLL_S = 0.1


def windows_in_quarantine(members: Sequence[Member], holder: str) -> tuple[LiftRequest, ...]:
    """Returns, by window, the request that would lift each quarantine of a group, as its active engine `holder` reports; else as
    the engines with a recent record do. Empty without any."""
    recent = recently_seen(members, SILENT_MS_MAX)
    reporting = [member for member in recent if member.engine == holder] or recent
    newest = {each.window: each for member in reporting for each in lifts_of(member)}
    return tuple(newest[window] for window in sorted(newest))


def read_quarantines(service: Coordination, group: str) -> tuple[LiftRequest, ...]:
    """Returns what `windows_in_quarantine` does for a group."""
    return windows_in_quarantine(service.members(group), service.leader(group).holder)


def request_lift(service: Coordination, groups: Sequence[str], window: str) -> dict[str, LiftRequest]:
    """Requests to lift the quarantine of `window` in those of `groups` in which there is one; returns the requests by group. Raises
    UsageError if there is none."""
    known = {group: read_quarantines(service, group) for group in groups}
    found = {group: each for group, requests in known.items() for each in requests if each.window == window}
    if not found:
        names = ", ".join(sorted({each.window for requests in known.values() for each in requests})) or "none"
        raise UsageError(f"window {window} is not in quarantine", hint=f"windows in quarantine: {names}")
    for group, request in found.items():
        service.set_fact_once(group, request.fact_name, b"")
    return found


def await_lifted(service: Coordination, requests: Mapping[str, LiftRequest], timeout_s: float) -> list[str]:
    """Waits until the groups have done what was requested; returns those in which the quarantine remains after `timeout_s`."""
    left = list(requests)
    for _ in Retry(lasting_s=timeout_s, pause_s=_POLL_S).tries():
        left = [group for group in left if requests[group] in read_quarantines(service, group)]
        if not left:
            break
    return left
