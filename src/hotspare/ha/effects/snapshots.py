"""Snapshots of a group: candidates first, confirmed once everything before them is known to be published.

So no restorable snapshot is ahead of what was published, and a snapshot of a wrong engine does no harm. Every call to the store
runs in the background: a call that hangs must not cost the engine its lease.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from hotspare.base.choices import SnapshotForm
from hotspare.base.errors import HotspareError
from hotspare.bus.contract import Bus
from hotspare.flow.numbering import NUMBERED_SINCE, NUMBERING
from hotspare.ha.calls.store_jobs import Candidate, StoreJob, StoreJobKind, StoreJobResult
from hotspare.ha.effects import recording, trimming
from hotspare.ha.effects.store_agreement import check_store_unchanged
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState, view_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import persisting
from hotspare.ha.rules import snapshots as rules
from hotspare.ha.rules.facts import PersistOutcome, PersistRequest
from hotspare.rows.batch import NextInput
from hotspare.stores.contract import Content, SnapshotInfo, Store
from hotspare.stores.writing import NewContent

DISCARDED_MAX = 100
"""The maximum of snapshots that one persist request deletes; later requests delete the rest."""
_ALL = 1 << 30
"""The `confirmed_max` with which `prune_snapshots` deletes only the remains of crashed writes."""


def start_snapshot(state: GroupState, ports: Ports) -> None:
    """Freezes the state, which must be at a batch boundary, and writes it as a candidate in the background."""
    candidate, now_ms = _candidate(state, ports), ports.clock_ms()
    state.snapshots = replace(state.snapshots, snapshot_ms=now_ms, snapshot_order=candidate.order)
    _write(state, ports, candidate, {})


def start_persisted_snapshot(
    state: GroupState, ports: Ports, number: int, request: PersistRequest, brings: Mapping[str, object]
) -> None:
    """Freezes the state and writes it for persist request `number`, in the background. `brings`: additional keys of the snapshot's
    header."""
    _write(
        state,
        ports,
        replace(_candidate(state, ports), persist_request=number, target_url=request.to, keep_max=request.keep),
        brings,
    )


def _candidate(state: GroupState, ports: Ports) -> Candidate:
    """Returns the description of a snapshot of the present state, before it is written."""
    order, events = state.order, state.intake.events_taken
    name = f"{order:016d}-{state.engine}-{state.identity.process_start:x}"
    sequences = {name: held.last_sequence for name, held in state.held.streams.items()}
    shifts = {name: held.shift for name, held in state.held.streams.items() if held.shift}
    needed = trimming.needed_by_snapshot(state)
    return Candidate(name, order, sequences, ports.clock_ms(), needed, ports.wall_us() // 1_000, events, shifts=shifts)


def _write(state: GroupState, ports: Ports, candidate: Candidate, brings: Mapping[str, object]) -> None:
    frozen, group, engine, store_id = state.core.freeze(), state.group, state.engine, state.store_id
    is_full = state.settings.snapshot_form is SnapshotForm.FULL
    brings = {**brings, **_numbering(state)}

    def write(store: Store, hear: Callable[[], None]) -> SnapshotInfo:
        if candidate.is_in_group_store:
            check_store_unchanged(store, store_id)
        header, contents = with_header_keys(frozen.header, brings), frozen.contents()
        contents = _without_store_keys(contents) if is_full else contents
        return store.write_candidate(group, candidate.name, engine, candidate.order, header, reporting_progress(contents, hear))

    _start_store_job(state, ports, StoreJobKind.WRITE, candidate, write)


def _numbering(state: GroupState) -> dict[str, object]:
    """Returns the header keys that record the shifts of streams (`flow.numbering`); empty if all shifts are 0 and no other project
    ever published."""
    found = {n: None if state.streams[n].is_shift_unknown else held.shift for n, held in state.held.streams.items()}
    told = {name: shift for name, shift in found.items() if shift != 0}
    since = state.projects.changes_epoch
    return ({NUMBERING: told} if told else {}) | ({NUMBERED_SINCE: since} if since else {})


def with_header_keys(header: bytes, brings: Mapping[str, object]) -> bytes:
    """Returns the JSON text `header` with the additional keys `brings`."""
    return json.dumps({**json.loads(header), **brings}, sort_keys=True, separators=(",", ":")).encode() if brings else header


@contextlib.contextmanager
def _store_of(ports: Ports, candidate: Candidate) -> Iterator[Store]:
    """Yields the store of the snapshot. A store other than the group's own is opened for the block, and closed after it."""
    if candidate.is_in_group_store:
        yield ports.store
        return
    store = ports.open_store(candidate.target_url)
    try:
        yield store
    finally:
        store.close()


def _without_store_keys(contents: Iterable[tuple[str, bytes | Content]]) -> Iterator[tuple[str, bytes | Content]]:
    """Yields the contents so that the store encodes and writes each, even if it already has the same content."""
    for name, content in contents:
        yield name, content if isinstance(content, bytes) else NewContent(content.encode)


@dataclass(frozen=True, slots=True)
class _ReportingContent:
    """A `Content` of a snapshot being written, of which each call reports progress: a store may fetch all pages first and encode
    them later."""

    content: Content
    on_progress: Callable[[], None]

    @property
    def store_key(self) -> object:
        self.on_progress()
        return self.content.store_key

    def set_store_key(self, known: object) -> None:
        self.on_progress()
        self.content.set_store_key(known)

    def encode(self) -> bytes:
        self.on_progress()
        return self.content.encode()


def reporting_progress(
    contents: Iterable[tuple[str, bytes | Content]], hear: Callable[[], None]
) -> Iterator[tuple[str, bytes | Content]]:
    """Yields the contents and calls `hear` for each page: writing a large state takes longer than a call to the store may take
    without progress."""
    for name, content in contents:
        hear()
        yield name, content if isinstance(content, bytes) else _ReportingContent(content, hear)


def confirm(state: GroupState, ports: Ports, name: str) -> None:
    """Starts to confirm candidate `name` in its store, so that engines may restore it, and removes the candidate from the state."""
    group, candidate = state.group, _remove_candidate(state, name)
    _start_store_job(state, ports, StoreJobKind.CONFIRM, candidate, lambda store, _: store.confirm(group, name))


def discard(state: GroupState, ports: Ports, name: str) -> None:
    group, candidate = state.group, _remove_candidate(state, name)
    _end_persist(state, ports, candidate, "its outputs differ from those committed")
    state.snapshots = rules.after_refusing(state.snapshots, f"snapshot {name} is deleted: its outputs differ from those committed")
    _start_store_job(state, ports, StoreJobKind.DISCARD, candidate, lambda store, _: store.discard(group, name))


def abandon_stuck_jobs(state: GroupState, ports: Ports) -> None:
    """Gives up jobs on the store that report no progress for `store_wait_ms`, and reports each. The result of a job still counts if
    it ends later."""
    for job in state.store_jobs.mark_stuck(ports.clock_ms() - state.settings.store_wait_ms):
        silent = f"the store has not answered for {state.settings.store_wait_ms} ms"
        sentence = f"cannot {job.kind.value} snapshot {job.candidate.name}: {silent}"
        _after_failing(state, job, sentence)
        _end_persist(state, ports, job.candidate, silent)
        _report(state, ports, HaEventKind.SNAPSHOT_FAILED, sentence)


def record_store_results(state: GroupState, ports: Ports) -> None:
    """Records the results of ended background jobs in the state. The HA loop calls it at the start of each run."""
    while (done := state.store_jobs.take_ended()) is not None:
        candidate = done.job.candidate
        if done.failure:
            _record_job_failure(state, ports, done)
        elif done.job.kind is StoreJobKind.WRITE:
            state.snapshots = rules.after_writing(state.snapshots, replace(candidate, bytes=done.bytes))
            _report(state, ports, HaEventKind.SNAPSHOT_WRITTEN, f"snapshot {candidate.name} is a candidate")
        elif done.job.kind is StoreJobKind.CONFIRM:
            _record_confirmed(state, ports, candidate)
        elif done.job.kind is StoreJobKind.TIDY:
            _end_persist(state, ports, candidate)


def _record_job_failure(state: GroupState, ports: Ports, done: StoreJobResult) -> None:
    work, candidate = done.job.kind, done.job.candidate
    sentence = f"cannot {work.value} snapshot {candidate.name}: {done.failure}"
    _after_failing(state, done.job, sentence)
    if work in (StoreJobKind.WRITE, StoreJobKind.CONFIRM):
        _end_persist(state, ports, candidate, f"cannot {work.value} it: {done.failure}")
    elif work is StoreJobKind.TIDY:
        _end_persist(state, ports, candidate, f"it may be restored, but older snapshots could not be deleted: {done.failure}")
    if candidate.persist_request:
        _report(state, ports, HaEventKind.SNAPSHOT_FAILED, sentence)
    else:  # the next one fails for the same reason
        recording.alarm(state, ports, HaEventKind.SNAPSHOT_FAILED, work.value, sentence)


def _after_failing(state: GroupState, job: StoreJob, sentence: str) -> None:
    if not job.candidate.persist_request:
        state.snapshots = rules.after_failing(state.snapshots, job.kind, sentence)


def _end_persist(state: GroupState, ports: Ports, candidate: Candidate, failure: str = "") -> None:
    """Records the outcome of the persist request that the snapshot is for, if any. `failure` "" is a success."""
    if candidate.persist_request:
        took_ms = ports.clock_ms() - candidate.taken_ms
        outcome = PersistOutcome(state.engine, candidate.name, candidate.order, candidate.bytes, took_ms, failure)
        state.persisting = persisting.after_work(state.persisting, candidate.persist_request, outcome)


def _record_confirmed(state: GroupState, ports: Ports, candidate: Candidate) -> None:
    group, name, keep = state.group, candidate.name, candidate.keep_max
    if not keep:
        _end_persist(state, ports, candidate)  # otherwise after older ones are deleted
    where = "" if candidate.is_in_group_store else ", in the requested store"
    _report(state, ports, HaEventKind.SNAPSHOT_CONFIRMED, f"snapshot {name} may be restored{where}")
    if not candidate.is_in_group_store:
        if keep:
            _start_store_job(
                state, ports, StoreJobKind.TIDY, candidate, lambda store, hear: keep_newest(store, group, name, keep, hear)
            )
        return
    before, confirmed_max = state.snapshots.own_confirmed, state.settings.confirmed_snapshots_max
    state.snapshots = rules.after_confirming(
        state.snapshots, candidate, state.engine, ports.clock_ms(), ports.wall_us() // 1_000, state.intake.events_taken
    )
    if not state.hung_calls.has_user_code:
        _start_store_job(
            state, ports, StoreJobKind.TIDY, candidate, lambda store, _: _tidy(store, ports.bus, group, candidate, confirmed_max)
        )
    else:
        _start_store_job(state, ports, StoreJobKind.TIDY, candidate, _tidying_behind(state, ports, before))


def _tidying_behind(state: GroupState, ports: Ports, before: Candidate | None) -> Callable[[Store, Callable[[], None]], None]:
    """Returns the job that tidies a group with user code after a later snapshot than `before`, this engine's last one, was
    confirmed; it does nothing without `before`.

    If no decision can make `before` void any more (`rules.is_final`), it is the newest snapshot behind which input and snapshots
    may be deleted. Otherwise `before` itself is deleted, so that such snapshots do not accumulate.
    """
    group, confirmed_max = state.group, state.settings.confirmed_snapshots_max
    is_final = before is not None and rules.is_final(view_of(state, ports), before)

    def tidy(store: Store, hear: Callable[[], None]) -> None:
        if before is None:
            return
        if is_final:
            trimming.record_needed_offsets(ports.bus, group, before.needed_offsets)
            keep_newest(store, group, before.name, confirmed_max, hear)
        else:
            store.discard(group, before.name)

    return tidy


def keep_newest(store: Store, group: str, name: str, keep: int, hear: Callable[[], None] = lambda: None) -> None:
    """Deletes older snapshots of the group in `store`, where snapshot `name` was just confirmed, so that `keep` remain. Deletes at
    most DISCARDED_MAX of them, and calls `hear` before each deletion.

    A reader of a deleted snapshot can finish reading it (`Store.get`).
    """
    for each in rules.to_delete(store.list(group), name, keep)[:DISCARDED_MAX]:
        hear()
        store.discard(group, each)
    hear()
    store.prune_snapshots(group, _ALL)


def _tidy(store: Store, bus: Bus, group: str, confirmed: Candidate, confirmed_max: int) -> None:
    """Lets input and snapshots be deleted that no engine needs that starts from `confirmed` or the snapshot before it."""
    trimming.record_needed_offsets(bus, group, confirmed.needed_offsets)
    store.prune_snapshots(group, confirmed_max)
    for name in rules.superseded(store.list(group), confirmed):
        store.discard(group, name)


def _start_store_job(
    state: GroupState, ports: Ports, work: StoreJobKind, candidate: Candidate, call: Callable[[Store, Callable[[], None]], object]
) -> None:
    """Starts `call` in the background, on the store of the snapshot.

    `call` receives the store, and a function to call as a report of progress. The end of the job is recorded in `store_jobs.ended`,
    whatever fails.
    """
    jobs, job = state.store_jobs, StoreJob(work, candidate, ports.clock_ms())
    jobs.running.append(job)

    def on_progress() -> None:
        job.last_progress_ms = ports.clock_ms()
        if state.intake.next_input is NextInput.AWAITED:  # behind a backlog, a step follows each step, and no event is urgent
            ports.yield_to_steps()

    def run() -> None:
        failure, size = "it ended without a result", 0
        try:
            with _store_of(ports, candidate) as store:
                made = call(store, on_progress)
            size = made.bytes_total if isinstance(made, SnapshotInfo) else 0
            failure = ""
        except HotspareError as error:
            failure = error.in_one_line
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        finally:
            jobs.ended.append(StoreJobResult(job, failure, size))

    try:
        ports.background(run)
    except RuntimeError as error:  # no thread can be started
        jobs.ended.append(StoreJobResult(job, str(error)))


def _remove_candidate(state: GroupState, name: str) -> Candidate:
    candidate = next(c for c in state.snapshots.candidates if c.name == name)
    state.snapshots = replace(state.snapshots, candidates=tuple(c for c in state.snapshots.candidates if c is not candidate))
    return candidate


def _report(state: GroupState, ports: Ports, kind: HaEventKind, sentence: str) -> None:
    ports.report(HaEvent(kind, state.group, state.engine, sentence))
