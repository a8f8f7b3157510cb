"""Decides which engine of a group writes a requested snapshot, and when another one takes over (SPEC H3, Z4, Z5). Pure.

A request, the claims of engines that undertake it, and its result are facts of the group (`ha.effects.persisting`). Requests are
processed one at a time. The engine whose turn it is to take snapshots (`snapshots.snapshot_turn`) does it, a spare if there is one;
if that engine has ended, another one does. Two engines that write one snapshot do no harm, so a wrong decision here costs only
time. A written snapshot is confirmed like any other: once all outputs before it are committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hotspare.ha.rules import actions as do
from hotspare.ha.rules import two_projects
from hotspare.ha.rules.actions import Duty
from hotspare.ha.rules.facts import Persisting, PersistOutcome, PersistRequest
from hotspare.ha.rules.roles import PARTICIPATING
from hotspare.ha.rules.snapshots import STORE_STUCK_MAX, snapshot_turn
from hotspare.ha.rules.view import View

BY_TURNS = 20
"""The number of turns to wait for a requested engine that does not run. Then another one reports a failure, so that the next
request need not wait."""


def duties(view: View) -> Iterator[Duty]:
    """Yields this engine's duties about persist requests: read them, claim one, write its snapshot, report the outcome."""
    known, settings = view.persisting, view.settings
    if not settings.persist_poll_ms:
        return
    if known.outcome is not None:
        yield Duty(view.contacts.coordination_retry_ms, do.ReportPersisted(known.number + 1))
        return
    yield Duty(max(known.persist_read_ms + settings.persist_poll_ms, view.contacts.coordination_retry_ms), do.ReadPersist())
    if known.request is None or known.is_begun:
        return
    if known.owner == view.engine:
        may_write = view.core.is_between_batches and not view.store.is_writing and view.store.stuck < STORE_STUCK_MAX
        if may_write or known.request.is_for_another(view.engine) or view.difference is not None:  # then it reports a failure
            yield Duty(0, do.PersistSnapshot(known.number + 1))
    elif (due_ms := _claim_due_ms(view, known.request)) is not None:
        yield Duty(max(due_ms, view.contacts.coordination_retry_ms), do.ClaimPersist(known.number + 1, len(known.claims)))


def _claim_due_ms(view: View, request: PersistRequest) -> int | None:
    """Returns the time at which this engine undertakes a request; None while another engine has to, or if this engine cannot."""
    is_for_another = request.is_for_another(view.engine)
    if view.difference is not None or (is_for_another and is_engine_present(view, request.by)):
        return None
    known, turn = view.persisting, 0 if request.by == view.engine else snapshot_turn(view)
    if turn is None:
        turn = len(view.membership.others)  # it takes no snapshots by itself, but one is requested
    if two_projects.is_other_leading(view):
        turn += len(view.membership.others)  # the request is for a snapshot of the project that leads
    if is_for_another:
        turn += BY_TURNS
    if known.owner and is_engine_present(view, known.owner):
        return None
    return known.since_ms + turn * view.settings.persist_turn_ms + (view.settings.member_stale_ms if known.owner else 0)


def is_engine_present(view: View, engine: str) -> bool:
    """Whether another engine renews its record, and has not ended."""
    return any(o.engine == engine and o.role in PARTICIPATING for o in view.membership.others)


# --- updates after reading and after the work --------------------------------------------------------------------------------


def after_reading(known: Persisting, request: PersistRequest | None, claims: tuple[str, ...], now_ms: int) -> Persisting:
    """Returns the facts after the next request and its claims were read."""
    is_newer = (request, claims) != (known.request, known.claims)
    since_ms = now_ms if is_newer else known.since_ms
    return replace(
        known, request=request, claims=claims, persist_read_ms=now_ms, result_lookups=known.result_lookups + 1, since_ms=since_ms
    )


def after_end(known: Persisting, now_ms: int, last: int = 0) -> Persisting:
    """Returns the facts after the request, and all requests up to `last`, are finished, by any engine; the next one is read at
    once."""
    return Persisting(number=max(last, known.number + 1), since_ms=now_ms)


def after_beginning(known: Persisting, now_ms: int) -> Persisting:
    return replace(known, is_begun=True, begun_ms=now_ms)


def after_work(known: Persisting, number: int, outcome: PersistOutcome) -> Persisting:
    """Returns the facts with the result of this engine's work on request `number`; unchanged if the request has ended otherwise
    meanwhile."""
    return replace(known, outcome=outcome) if known.is_begun and number == known.number + 1 and known.outcome is None else known
