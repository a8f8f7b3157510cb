"""Rebuilds an engine's state from recent input: records when its outputs count, and adopts their numbers (`rules.warming`)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.bus.contract import Progress
from hotspare.ha.effects import committed, recording
from hotspare.ha.events import HaEventKind
from hotspare.ha.group_state import GroupState
from hotspare.ha.outputs.held import NO_OUTPUT, OutputMark, base_of, numbers_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import warming as rules
from hotspare.ha.rules.facts import Warming
from hotspare.ha.rules.roles import Reason, Role
from hotspare.rows.batch import BAD_STREAM, RowKind


def is_state_valid(state: GroupState) -> bool:
    """Whether the outputs that the core computes now are the group's: always, except while a state made from recent input is
    incomplete."""
    return state.warming is None or state.warming.is_warm


def record_ticks(state: GroupState, decoded: pa.RecordBatch | pa.Table) -> None:
    """Records the ticks of a batch before the core computes it."""
    if state.warming is None or state.warming.is_warm:
        return
    ticks = decoded.filter(pc.equal(decoded.column("kind"), int(RowKind.TICK)))
    rows = zip(*(ticks.column(name).to_pylist() for name in ("topic", "partition", "time_us")), strict=True)
    times: dict[tuple[int, int], list[int]] = {}
    for topic, partition, time_us in rows:
        times.setdefault((topic, partition), []).append(time_us)
    for key, found in times.items():
        state.warming = rules.after_ticks(state.warming, key, found)


def advance_warming(state: GroupState, ports: Ports) -> None:
    """Advances the warming after a batch or after committed progress was read: finds out whether the state is complete, and adopts
    output numbers. Does nothing within a batch."""
    known = state.warming
    if known is None or state.role_state.role is not Role.WARMING or not state.core.is_between_batches:
        return
    offsets = state.core.next_offsets
    now = rules.after_input(known, state.core.time_us, state.core.sequences.get(BAD_STREAM, 0), offsets)
    state.warming = now
    if not now.is_warm:
        return
    if not known.is_warm:
        for stream in state.streams:
            state.held.restart_stream(stream, base_of(state.core, stream))
        recording.report(
            state, ports, HaEventKind.WARMED, "the state no longer depends on input that the engine has not read: its outputs count"
        )
    for stream, each in state.streams.items():
        if each.is_unadopted:
            _find_numbering(state, ports, stream, now)
    committed.reconcile_held_outputs(state, ports)


def _find_numbering(state: GroupState, ports: Ports, stream: str, warming: Warming) -> None:
    known, held = state.streams[stream], state.held.streams[stream]
    newest = rules.output_to_adopt(known)
    at = None if newest is None else newest.output_id
    place = rules.output_place(at, warming.begin_offsets, state.core.next_offsets)
    if place is rules.OutputPlace.AHEAD:
        state.streams[stream] = replace(known, adoption_target=newest)
        held.drop_through(held.last_sequence)  # all of it comes before what is committed
    elif place is rules.OutputPlace.BEFORE:
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
    """Adopts sequence and digest of the committed output `newest` for this engine's output `through`, which is that output or the
    last one before it."""
    held = state.held.streams[stream]
    mark = NO_OUTPUT if newest is None else OutputMark(newest.sequence, newest.output_id, newest.digest)
    state.held.rebase(stream, mark, through)
    end = held.mark_at(held.last_sequence)
    assert end is not None
    state.core.adopt(stream, end.sequence, end.digest, numbers_of(end.output_id))
    state.streams[stream] = rules.after_adoption(state.streams[stream], newest)
    if stream in state.points_ahead:
        state.points_ahead[stream].pop_through(mark.sequence)
    recording.report(state, ports, HaEventKind.WARMED, f"continues after committed output {mark.sequence} of stream {stream}")


def become_eligible(_: do.BecomeEligible, state: GroupState, ports: Ports) -> None:
    recording.change_role(state, ports, Role.STANDBY, Reason.MATCHED)
