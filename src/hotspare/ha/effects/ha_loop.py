"""Performs the actions that `decide` returns, one at a time, and decides again after each.

`perform_due` yields before every action, so that a simulation can suspend or end an engine between any two of its effects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from hotspare.base.inbound_role import InboundRole
from hotspare.flow.head.unknown_members import sentence_of, unknown_of
from hotspare.ha.effects import committed, hung_calls, inbound_check, perform, recording, snapshots, warming
from hotspare.ha.events import HaDuration, HaEvent, HaEventKind
from hotspare.ha.group_state import GroupState, view_of
from hotspare.ha.ports import Ports
from hotspare.ha.rules import actions as do
from hotspare.ha.rules import decide, intake
from hotspare.ha.rules.roles import ENDS, Reason, Role
from hotspare.rows.batch import BAD_STREAM, NextInput, RowKind

ACTIONS_PER_HA_LOOP_MAX = 200
"""The maximum of actions in one run of the HA loop; the next run, due at once, performs the rest."""


def perform_due(state: GroupState, ports: Ports) -> Iterator[do.HaAction]:
    """Performs the due actions one after another, and yields each before performing it. Ends if all due actions were already
    performed in this run, or after ACTIONS_PER_HA_LOOP_MAX.

    So an action that falls due again during slow calls waits for the next run, and the next batch is processed first. Publishing
    may repeat, and permits every other action again: the held outputs are finite, but committing a backlog may take many leases.
    """
    done: list[do.HaAction] = []
    for _ in range(ACTIONS_PER_HA_LOOP_MAX):
        snapshots.record_store_results(state, ports)
        inbound_check.apply_inbound_findings(state)
        view = view_of(state, ports)
        ports.set_read_interval_ms(decide.read_interval_ms(view))
        due = decide.decide(view)
        action = next((each for each in due if isinstance(each, do.Publish) or each not in done), None)
        if action is None:
            return
        if isinstance(action, do.Publish):
            done.clear()
        else:
            done.append(action)
        yield action
        perform.perform(action, state, ports)


def next_due_ms(state: GroupState, ports: Ports) -> int | None:
    """Returns when the next action falls due if nothing else happens, on the ports' clock; None if no action is pending."""
    return decide.next_due_ms(view_of(state, ports))


def enter_first_role(state: GroupState, ports: Ports) -> None:
    """Changes the role of an engine that has joined to STANDBY, or to WARMING if its state is made from recent input."""
    if state.warming is None:
        recording.change_role(state, ports, Role.STANDBY, Reason.STATE_COMPLETE)
    else:
        recording.change_role(state, ports, Role.WARMING, Reason.RECENT_INPUT)


def process_batch(state: GroupState, ports: Ports, decoded: pa.RecordBatch | pa.Table, next_input: NextInput) -> Iterator[None]:
    """Computes a batch and holds its outputs, part by part; yields after each part, so that the caller performs due actions.

    A computed part, not a living thread, is the sign of life that keeps the lease. One event may cause millions of outputs, and
    expressions may be slow. So each step computes as many rows as recently took a fraction of the lease. Stops early if the engine
    has ended.
    """
    _record_arrivals(state, ports, decoded, next_input)
    for window, unknown in state.unknown_counts.add(unknown_of(decoded.schema)).items():
        sentence = sentence_of(f"window {window}", unknown)
        ports.report(HaEvent(HaEventKind.MEMBERS_UNKNOWN, state.group, state.engine, sentence))
    warming.record_ticks(state, decoded)
    taken = 0

    def limit_rows(rows: int) -> int:
        nonlocal taken
        taken = min(rows, state.step_rows.next)
        return taken

    begun_ms = ports.clock_ms()
    state.core.limit_part_rows(state.part_rows.next)
    for outputs in state.core.compute_parts(decoded, limit_rows):
        if state.core.stopped_at is None:
            took_ms = ports.clock_ms() - begun_ms
            ports.observe_ms(HaDuration.PART, took_ms)
            _record_part_cost(state, taken, took_ms)
            taken = 0
            _hold(state, ports, outputs)
            if not state.lease.has_progressed:
                state.lease = replace(state.lease, has_progressed=True)
            state.intake = intake.after_part(state.intake, next_input, state.core)
        else:
            hung_calls.record_stop(state, ports)
        yield
        if state.role_state.role in ENDS:
            return
        begun_ms = ports.clock_ms()
    warming.advance_warming(state, ports)
    _restrict_reading(state, ports)


def _record_part_cost(state: GroupState, taken: int, took_ms: float) -> None:
    """Records the time that a part took. The first part of a step (`taken` rows) shows the cost per input row. Later parts (`taken`
    0) show the cost of rows that one input row caused."""
    if taken:
        state.step_rows.record_step(taken, took_ms)
    else:
        state.part_rows.record_step(state.part_rows.next, took_ms)
        state.core.limit_part_rows(state.part_rows.next)


def _hold(state: GroupState, ports: Ports, outputs: Mapping[str, pa.RecordBatch]) -> None:
    if not outputs or not warming.is_state_valid(state):
        return
    state.bad_counts.add(outputs.get(BAD_STREAM))
    spilled = state.held.append(outputs)
    if spilled:
        sentence = "held outputs exceed their memory budget and were written to disk"
        ports.report(HaEvent(HaEventKind.OUTPUTS_SPILLED, state.group, state.engine, sentence, {"spilled_bytes": spilled}))
    committed.reconcile_held_outputs(state, ports)
    committed.release_by_quality(state, ports.clock_ms())


def _record_arrivals(state: GroupState, ports: Ports, decoded: pa.RecordBatch | pa.Table, next_input: NextInput) -> None:
    """Records when input arrived in each partition. If the input was awaited, also records samples of the difference between this
    machine's clock and the bus's. If snapshots depend on it, also records the count of events."""
    now_ms, read_us = ports.clock_ms(), ports.wall_us()
    if state.settings.snapshot_events:
        events = int((decoded.column("kind").to_numpy() == int(RowKind.EVENT)).sum())
        state.intake = replace(state.intake, events_taken=state.intake.events_taken + events)
    columns = {name: decoded.column(name).to_numpy() for name in ("topic", "partition", "time_us")}
    for inbound in state.inbound:
        own = (columns["topic"] == inbound.facts.topic_index) & (columns["partition"] == inbound.facts.number)
        if own.any():
            inbound.facts = replace(inbound.facts, arrived_ms=now_ms)
            if next_input is NextInput.AWAITED and inbound.facts.kind is not InboundRole.OUTPUTS:
                inbound.skew.add_sample(now_ms, read_us, int(columns["time_us"][own][-1]))


def _restrict_reading(state: GroupState, ports: Ports) -> None:
    """Restricts reading while too many rows wait in the core: only the partition that they wait for, and partitions that hold only
    ticks, are read.

    All partitions are read again once the waiting rows have fallen to half the limit.
    """
    now = intake.partition_to_read_alone(state.settings, state.intake.only_partition, state.core)
    if now != state.intake.only_partition:
        state.intake = replace(state.intake, only_partition=now)
    ports.restrict_reading(frozenset() if now is None else state.topics.tick_only_partitions | {now})
