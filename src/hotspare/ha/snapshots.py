"""Snapshots of a group: candidates first, confirmed once everything before them is known to be published (DESIGN section 4).

So no snapshot stands ahead of what was published, and a wrong engine's snapshot harms nobody.
"""

from __future__ import annotations

from hotspare.errors import StoreError
from hotspare.ha.events import HaEvent, HaEventKind
from hotspare.ha.group_state import Candidate, GroupState, SnapshotDone
from hotspare.ha.ports import Ports
from hotspare.stores.contract import SnapshotStatus


def take(state: GroupState, ports: Ports) -> None:
    """Freeze the state, which stands at a batch boundary, and write it in the background."""
    frozen = state.core.freeze()
    order = state.order
    sequences = {name: stream.last_sequence for name, stream in state.held.streams.items()}
    name = f"{order:016d}-{state.engine}-{state.identity.process_start:x}"
    now_ms = ports.clock_ms()
    candidate = Candidate(name, order, sequences, now_ms)
    state.is_snapshot_running, state.snapshot_ms, state.snapshot_order = True, now_ms, order
    group, engine, store, done = state.group, state.engine, ports.store, state.done

    def write() -> None:
        try:
            info = store.put(group, name, engine, order, frozen.header, frozen.pages())
        except StoreError as error:
            done.append(SnapshotDone(candidate, 0, error.message))
        else:
            done.append(SnapshotDone(candidate, info.bytes_total))

    ports.background(write)


def take_note_of_written(state: GroupState, ports: Ports) -> None:
    """Take what background writes came to into the state; called at the start of a cycle."""
    while state.done:
        result = state.done.popleft()
        state.is_snapshot_running = False
        if result.failure:
            state.snapshot_order = -1
            _report(state, ports, HaEventKind.SNAPSHOT_FAILED, f"snapshot {result.candidate.name} failed: {result.failure}")
        else:
            state.candidates.append(result.candidate)
            _report(state, ports, HaEventKind.SNAPSHOT_WRITTEN, f"snapshot {result.candidate.name} is a candidate")


def confirm(state: GroupState, ports: Ports, name: str) -> None:
    """Make a settled candidate restorable; older candidates, whoever wrote them, are of no use then."""
    candidate = _take_out(state, name)
    try:
        ports.store.confirm(state.group, name)
        state.snapshots_confirmed += 1
        ports.store.keep(state.group, state.settings.confirmed_snapshots_max)
        for info in ports.store.list(state.group):
            if info.status is SnapshotStatus.CANDIDATE and info.order < candidate.order:
                ports.store.discard(state.group, info.name)
    except StoreError as error:
        _report(state, ports, HaEventKind.SNAPSHOT_FAILED, f"snapshot {name} is not confirmed: {error.message}")


def discard(state: GroupState, ports: Ports, name: str) -> None:
    _take_out(state, name)
    try:
        ports.store.discard(state.group, name)
    except StoreError as error:
        _report(state, ports, HaEventKind.SNAPSHOT_FAILED, f"snapshot {name} is not discarded: {error.message}")


def _take_out(state: GroupState, name: str) -> Candidate:
    candidate = next(c for c in state.candidates if c.name == name)
    state.candidates.remove(candidate)
    return candidate


def _report(state: GroupState, ports: Ports, kind: HaEventKind, sentence: str) -> None:
    ports.report(HaEvent(kind, state.group, state.engine, sentence))
