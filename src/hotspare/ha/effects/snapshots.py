"""Snapshots of a group: candidates first, confirmed once everything before them is known to be published (DESIGN section 4).

So no snapshot stands ahead of what was published, and a wrong engine's snapshot harms nobody. Every call to the store is made in
the background: one that hangs must not keep the engine from its lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from hotspare.bus.contract import Bus
from hotspare.choices import SnapshotForm
from hotspare.errors import HotspareError
from hotspare.ha.calls.store_jobs import Candidate, StoreDone, StoreJob, StoreWork
from hotspare.ha.effects import trimming
from hotspare.ha.effects.store_agreement import check_same
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules import snapshots as rules
from hotspare.stores.contract import Content, Store


def take(state: GroupState, ports: Ports) -> None:
    """Freeze the state, which stands at a batch boundary, and write it in the background."""
    frozen = state.core.freeze()
    is_full = state.settings.snapshot_form is SnapshotForm.FULL
    order = state.order
    sequences = {name: stream.last_sequence for name, stream in state.held.streams.items()}
    name = f"{order:016d}-{state.engine}-{state.identity.process_start:x}"
    now_ms = ports.clock_ms()
    state.snapshots = replace(state.snapshots, snapshot_ms=now_ms, snapshot_order=order)
    group, engine, store, store_id = state.group, state.engine, ports.store, state.store_id

    def write() -> None:
        check_same(store, store_id)
        contents = frozen.contents()
        store.put(group, name, engine, order, frozen.header, _all_anew(contents) if is_full else contents)

    needed, events = trimming.needed_by_snapshot(state), state.intake.events_taken
    candidate = Candidate(name, order, sequences, now_ms, needed, ports.wall_us() // 1_000, events)
    _begin(state, ports, StoreWork.WRITE, candidate, write)


def _all_anew(contents: Iterable[tuple[str, bytes | Content]]) -> Iterator[tuple[str, bytes]]:
    """Encoded, whatever a store knows of them."""
    for name, content in contents:
        yield name, content if isinstance(content, bytes) else content.encode()


def confirm(state: GroupState, ports: Ports, name: str) -> None:
    """Make a settled candidate restorable."""
    group, store = state.group, ports.store
    _begin(state, ports, StoreWork.CONFIRM, _take_out(state, name), lambda: store.confirm(group, name))


def discard(state: GroupState, ports: Ports, name: str) -> None:
    group, store = state.group, ports.store
    _begin(state, ports, StoreWork.DISCARD, _take_out(state, name), lambda: store.discard(group, name))


def give_up(state: GroupState, ports: Ports) -> None:
    """No longer wait for work on the store that takes too long. What it comes to still counts if it ends after all."""
    for job in state.store_jobs.give_up(ports.clock_ms() - state.settings.store_wait_ms):
        state.snapshots = rules.after_failing(state.snapshots, job.work)
        sentence = (
            f"the store gives no answer for {state.settings.store_wait_ms} ms: {job.work.value} snapshot {job.candidate.name}"
        )
        _report(state, ports, HaEventKind.SNAPSHOT_FAILED, sentence)


def take_note_of_written(state: GroupState, ports: Ports) -> None:
    """Take what background work came to into the state; called at the start of a cycle."""
    while (done := state.store_jobs.take_ended()) is not None:
        if done.failure:
            _note_failed(state, ports, done)
        elif done.job.work is StoreWork.WRITE:
            state.snapshots = rules.after_writing(state.snapshots, done.job.candidate)
            _report(state, ports, HaEventKind.SNAPSHOT_WRITTEN, f"snapshot {done.job.candidate.name} is a candidate")
        elif done.job.work is StoreWork.CONFIRM:
            _note_confirmed(state, ports, done.job.candidate)


def _note_failed(state: GroupState, ports: Ports, done: StoreDone) -> None:
    work, name = done.job.work, done.job.candidate.name
    state.snapshots = rules.after_failing(state.snapshots, work)
    _report(state, ports, HaEventKind.SNAPSHOT_FAILED, f"cannot {work.value} snapshot {name}: {done.failure}")


def _note_confirmed(state: GroupState, ports: Ports, candidate: Candidate) -> None:
    state.snapshots = rules.after_confirming(
        state.snapshots, candidate, state.engine, ports.clock_ms(), ports.wall_us() // 1_000, state.intake.events_taken
    )
    _report(state, ports, HaEventKind.SNAPSHOT_CONFIRMED, f"snapshot {candidate.name} may be restored")
    group, store, confirmed_max = state.group, ports.store, state.settings.confirmed_snapshots_max
    _begin(state, ports, StoreWork.TIDY, candidate, lambda: _tidy(store, ports.bus, group, candidate, confirmed_max))


def _tidy(store: Store, bus: Bus, group: str, confirmed: Candidate, confirmed_max: int) -> None:
    trimming.note_confirmed(bus, group, confirmed.needed)
    store.keep(group, confirmed_max)
    for name in rules.superseded(store.list(group), confirmed):
        store.discard(group, name)


def _begin(state: GroupState, ports: Ports, work: StoreWork, candidate: Candidate, call: Callable[[], object]) -> None:
    """Start work in the background. Whatever goes wrong there, its end is told."""
    job, jobs = StoreJob(work, candidate, ports.clock_ms()), state.store_jobs
    jobs.running.append(job)

    def run() -> None:
        failure = "it ended without a result"
        try:
            call()
            failure = ""
        except HotspareError as error:
            failure = error.message
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        finally:
            jobs.ended.append(StoreDone(job, failure))

    try:
        ports.background(run)
    except RuntimeError as error:  # no thread can be started
        jobs.ended.append(StoreDone(job, str(error)))


def _take_out(state: GroupState, name: str) -> Candidate:
    candidate = next(c for c in state.snapshots.candidates if c.name == name)
    state.snapshots = replace(state.snapshots, candidates=tuple(c for c in state.snapshots.candidates if c is not candidate))
    return candidate


def _report(state: GroupState, ports: Ports, kind: HaEventKind, sentence: str) -> None:
    ports.report(HaEvent(kind, state.group, state.engine, sentence))
