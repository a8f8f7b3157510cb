"""An engine whose state is made from recent input: which of its outputs count, and their numbers (`rules.warming`)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.bus.contract import Progress
from hotspare.ha.effects import committed, notes
from hotspare.ha.events import HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.held import NO_OUTPUT, Mark, base_of, numbers_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import warming as rules
from hotspare.ha.rules.facts import Warming
from hotspare.ha.rules.roles import Reason, Role
from hotspare.rows.batch import BAD_STREAM, RowKind


def counts(state: GroupState) -> bool:
    """Whether the core's present outputs are the group's: they are once its state is complete."""
    return state.warming is None or state.warming.is_warm


def note_ticks(state: GroupState, decoded: pa.RecordBatch | pa.Table) -> None:
    """Records the ticks of a batch that is about to be taken."""
    if state.warming is None or state.warming.is_warm:
        return
    ticks = decoded.filter(pc.equal(decoded.column("kind"), int(RowKind.TICK)))
    rows = zip(*(ticks.column(name).to_pylist() for name in ("topic", "partition", "time_us")), strict=True)
    times: dict[tuple[int, int], list[int]] = {}
    for topic, partition, time_us in rows:
        times.setdefault((topic, partition), []).append(time_us)
    for key, found in times.items():
        state.warming = rules.after_ticks(state.warming, key, found)


def go_on(state: GroupState, ports: Ports) -> None:
    """Advances the warming, between two batches and after news of what is committed."""
    known = state.warming
    if known is None or state.standing.role is not Role.WARMING or not state.core.is_whole:
        return
    offsets = state.core.next_offsets
    now = rules.after_input(known, state.core.time_us, state.core.sequences.get(BAD_STREAM, 0), offsets)
    state.warming = now
    if not now.is_warm:
        return
    if not known.is_warm:
        for stream in state.streams:
            state.held.begin(stream, base_of(state.core, stream))
        notes.report(
            state, ports, HaEventKind.WARMED, "the state no longer depends on input that the engine has not read: its outputs count"
        )
    for stream, each in state.streams.items():
        if each.is_unadopted:
            _look_for_numbers(state, ports, stream, now)
    committed.settle(state, ports)


def _look_for_numbers(state: GroupState, ports: Ports, stream: str, warming: Warming) -> None:
    known, held = state.streams[stream], state.held.streams[stream]
    newest = rules.target(known)
    at = None if newest is None else newest.output_id
    place = rules.where(at, warming.begun, state.core.next_offsets)
    if place is rules.Where.AHEAD:
        state.streams[stream] = replace(known, awaited=newest)
        held.drop_through(held.last_sequence)  # all of it comes before what is committed
    elif place is rules.Where.BEFORE:
        if rules.is_silent(known, stream, warming, state.leadership, state.membership.others):
            _adopt(state, ports, stream, newest, held.base.sequence)
    elif newest is not None and at is not None:
        sequence = held.sequence_of(at)
        if sequence is None:
            what = f"committed output {newest.sequence} of stream {stream} is not one of its own"
            mismatch = f"the state rebuilt from recent input differs from the group's: {what}"
            state.warming = replace(warming, mismatch=mismatch)
        else:
            _adopt(state, ports, stream, newest, sequence)


def _adopt(state: GroupState, ports: Ports, stream: str, newest: Progress | None, through: int) -> None:
    """Adopts the number and digest of `newest`: this engine's output `through` is that one, or the last before it."""
    held = state.held.streams[stream]
    mark = NO_OUTPUT if newest is None else Mark(newest.sequence, newest.output_id, newest.digest)
    state.held.rebase(stream, mark, through)
    end = held.mark_at(held.last_sequence)
    assert end is not None
    state.core.adopt(stream, end.sequence, end.digest, numbers_of(end.output_id))
    state.streams[stream] = rules.adopted(state.streams[stream], newest)
    if stream in state.ahead:
        state.ahead[stream].take_through(mark.sequence)
    notes.report(state, ports, HaEventKind.WARMED, f"continues after committed output {mark.sequence} of stream {stream}")


def become_eligible(_: do.BecomeEligible, state: GroupState, ports: Ports) -> None:
    notes.move(state, ports, Role.STANDBY, Reason.MATCHED)
