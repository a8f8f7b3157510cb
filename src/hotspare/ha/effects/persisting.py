"""Persists a snapshot on request: requests, the claims of engines that undertake them, and results are facts of the group.

    persist-N           request N: the URL of a store or "", an engine or "", and the maximum of snapshots left there, 0 for all
    persist-N-claim-K   the engine of claim K; a later claim replaces the earlier one, whose engine has ended
    persist-N-result    the result of request N

Facts never change, so all engines, and the command that made the request, agree on each. A command that makes another request
removes old finished ones (`rules.requests`), since it has more time than an engine. A persisted snapshot contains the project's
text and the snapshot's origin.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

from hotspare.base.errors import UsageError
from hotspare.coordination.contract import Coordination
from hotspare.ha.effects import recording, snapshots
from hotspare.ha.effects.joining import agreed_document
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import persisting as rules
from hotspare.ha.rules import requests
from hotspare.ha.rules.facts import Persisting, PersistOutcome, PersistRequest
from hotspare.ha.rules.requests import RequestFact, RequestFactKind
from hotspare.stores.contract import SnapshotInfo, Store
from hotspare.stores.snapshot_choice import SnapshotChoice, SnapshotScope, choose_snapshot
from hotspare.stores.writing import copied_pages

WAITING_MAX = 1_000
"""The count of unfinished requests from which on another request is refused."""
REMOVED_MAX = 10_000
"""The maximum of facts that one request removes; later requests remove the rest."""
DOCUMENT, ORIGIN = "document", "persisted"
"""The additional header keys of a persisted snapshot: DOCUMENT holds the project's text; ORIGIN the group, the engine and the
time."""


def read_persist_request(_: do.ReadPersist, state: GroupState, ports: Ports) -> None:
    """Reads the oldest unfinished request and its claims into the state."""
    known, now_ms = state.persisting, ports.clock_ms()
    request = known.request or _request(ports.coordination, state.group, known.number + 1)
    done = _newest_finished(ports.coordination, state.group, known, request)
    if done > known.number:
        known = rules.after_end(known, now_ms, done)
        request = _request(ports.coordination, state.group, done + 1)
    claims = () if request is None else _claims(ports.coordination, state.group, known.number + 1, known.claims)
    state.persisting = rules.after_reading(known, request, claims, now_ms)


def _newest_finished(coordination: Coordination, group: str, known: Persisting, request: PersistRequest | None) -> int:
    """Returns the number of the newest finished request; `known.number` if no later one is finished.

    The facts of requests that finished while this engine slept may be removed. So each call also probes one number of
    `requests.search_misses`, of which at least one remains then.
    """

    def is_done(number: int) -> bool:
        return coordination.fact(group, _result(number)) is not None

    beyond = requests.search_misses(known.number)
    looked = {known.number + 1} if request is not None else set()
    if known.number:
        looked.add(beyond[known.result_lookups % len(beyond)])
    found = next((number for number in sorted(looked) if is_done(number)), known.number)
    return found if found == known.number else requests.search_newest(lambda number: number <= found or is_done(number))


def claim_persist_request(action: do.ClaimPersist, state: GroupState, ports: Ports) -> None:
    own = state.engine.encode()
    stands = ports.coordination.set_fact_once(state.group, _claim(action.number, action.claim_index), own).decode(
        "utf-8", "replace"
    )
    known = state.persisting
    state.persisting = rules.after_reading(known, known.request, (*known.claims, stands), ports.clock_ms())


def start_persist(action: do.PersistSnapshot, state: GroupState, ports: Ports) -> None:
    """Freezes the state and writes the requested snapshot in the background. Records a failure at once if this engine differs, or
    the requested engine does not run."""
    known, now_ms = state.persisting, ports.clock_ms()
    state.persisting = rules.after_beginning(known, now_ms)
    recording.refresh_member_soon(state)
    assert known.request is not None
    failure = "its outputs differ from those committed" if state.differences else ""
    if known.request.is_for_another(state.engine):
        failure = f"engine {known.request.by}, which was requested to write it, does not run"
    if failure:
        state.persisting = rules.after_work(state.persisting, action.number, PersistOutcome(state.engine, failure=failure))
        return
    brings = {DOCUMENT: state.document, ORIGIN: {"group": state.group, "engine": state.engine, "time_us": ports.wall_us()}}
    snapshots.start_persisted_snapshot(state, ports, action.number, known.request, brings if known.request.to else {})


def report_persist_outcome(action: do.ReportPersisted, state: GroupState, ports: Ports) -> None:
    outcome = state.persisting.outcome
    assert outcome is not None
    ports.coordination.set_fact_once(state.group, _result(action.number), json.dumps(asdict(outcome)).encode())
    state.persisting = rules.after_end(state.persisting, ports.clock_ms())
    recording.refresh_member_soon(state)


# --- commands that request -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PersistRequestState:
    """A request as the group's facts record it. `claims`: the engines that undertook it, in order. `outcome` None: the request is
    unfinished."""

    number: int
    request: PersistRequest
    claims: tuple[str, ...]
    outcome: PersistOutcome | None


def submit_persist_request(
    coordination: Coordination,
    group: str,
    request: PersistRequest,
    kept: int = requests.FINISHED_KEPT_MAX,
    waiting_max: int = WAITING_MAX,
) -> int:
    """Adds a request and returns its number. Removes all but the newest `kept` finished requests. Raises UsageError if
    `waiting_max` requests are unfinished."""
    wanted = json.dumps(asdict(request)).encode()
    told = list(_parsed_request_facts(coordination.fact_names(group)))
    last, done = requests.greatest_number(told, RequestFactKind.REQUEST), requests.greatest_number(told, RequestFactKind.RESULT)
    if last - done >= waiting_max:
        what = f"group {group} has {last - done} unfinished requests for snapshots; the limit is {waiting_max}"
        raise UsageError(what, hint="wait until some are done; `hotspare status` shows which engine writes a snapshot")
    coordination.remove_facts(group, requests.removable(told, kept)[:REMOVED_MAX])
    return next(n for n in count(max(last, done) + 1) if coordination.set_fact_once(group, _name(n), wanted) == wanted)


def find_persist_request(coordination: Coordination, group: str, number: int) -> PersistRequestState | None:
    """Returns request `number`; None if it does not exist or was removed."""
    request = _request(coordination, group, number)
    if request is None:
        return None
    return PersistRequestState(
        number, request, _claims(coordination, group, number), _outcome(coordination.fact(group, _result(number)))
    )


def newest_finished_request(coordination: Coordination, group: str) -> PersistRequestState | None:
    """Returns the newest finished request of the group; None without any."""
    number = requests.search_newest(lambda number: coordination.fact(group, _result(number)) is not None)
    return find_persist_request(coordination, group, number) if number else None


def copy_newest_snapshot(source: Store, target: Store, coordination: Coordination, group: str, keep: int = 0) -> SnapshotInfo:
    """Copies the newest confirmed snapshot, with the project's text, into the store `target`, and returns its description. Raises
    UsageError without one.

    At most `keep` of the group's snapshots remain in `target`; 0: all.
    """
    info = choose_snapshot(group, source.list(group), SnapshotChoice(), SnapshotScope.CONFIRMED)
    stored, document = source.get(group, info.name), agreed_document(coordination, group)
    origin = {"group": group, "engine": info.engine, "time_us": info.written_time_us}
    brings = {ORIGIN: origin} if document is None else {ORIGIN: origin, DOCUMENT: document}
    target.write_candidate(
        group, info.name, info.engine, info.order, snapshots.with_header_keys(stored.header, brings), copied_pages(stored.pages)
    )
    target.confirm(group, info.name)
    if keep:
        snapshots.keep_newest(target, group, info.name, keep)
    return info


_REQUEST_FACT_NAME = re.compile(r"persist-([1-9][0-9]*)(-claim-[0-9]+|-result)?")


def _parsed_request_facts(names: Sequence[str]) -> Iterator[RequestFact]:
    for name in names:
        if found := _REQUEST_FACT_NAME.fullmatch(name):
            part = (
                RequestFactKind.REQUEST
                if found[2] is None
                else RequestFactKind.RESULT
                if found[2] == "-result"
                else RequestFactKind.CLAIM
            )
            yield RequestFact(name, part, int(found[1]))


def _name(number: int) -> str:
    return f"persist-{number}"


def _claim(number: int, place: int) -> str:
    return f"persist-{number}-claim-{place}"


def _result(number: int) -> str:
    return f"persist-{number}-result"


def _claims(coordination: Coordination, group: str, number: int, known: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns the engines that undertook request `number`, in order. `known`: the claims read before, which are not read again."""
    while (claim := coordination.fact(group, _claim(number, len(known)))) is not None:
        known = (*known, claim.decode("utf-8", "replace"))
    return known


def _request(coordination: Coordination, group: str, number: int) -> PersistRequest | None:
    """Returns request `number`; None if it does not exist. An unreadable one becomes a request for a snapshot in the group's own
    store, which is harmless."""
    value = coordination.fact(group, _name(number))
    if value is None:
        return None
    try:
        found = json.loads(value)
        return PersistRequest(str(found["to"]), str(found["by"]), int(found["keep"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return PersistRequest()


def _outcome(value: bytes | None) -> PersistOutcome | None:
    if value is None:
        return None
    try:
        known: dict[str, Any] = json.loads(value)
        return PersistOutcome(**{name: known[name] for name in PersistOutcome.__slots__})
    except (ValueError, TypeError, KeyError, RecursionError):
        return PersistOutcome("", failure="the recorded result cannot be read")
