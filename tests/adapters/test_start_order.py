"""Connector groups start in the project's order (SPEC I12)."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.adapters.connectors import ConnectorSet
from hotspare.adapters.start_order import ConnectorState, StartOrder
from hotspare.bus.contract import Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.ha.rules.roles import Role
from hotspare.model.project import ConnectorEntry, ConnectorGroup, ConnectorTarget
from hotspare.projects.load import load_text
from hotspare.telemetry.log import Log
from hotspare.testing.cluster import wait_until

PROJECT = """
project: p
queries:
  q:
    singletons: included
    windows:
      people:
        type: source
        opcodes: any
        schema: id*:int64,name:string
        connectors:
          load: {kind: fs, direction: pub, properties: {fsname: people.csv}}
      orders:
        type: source
        opcodes: any
        schema: id*:int64,name:string
        connectors:
          read: {kind: fs, direction: pub, properties: {fsname: orders.csv}}
          write: {kind: fs, direction: sub, properties: {fsname: out.csv}}
connector_groups:
  first:
    connectors: {q/orders/write: running}
  people:
    connectors: {q/people/load: finished}
    after: [first]
  orders:
    connectors: {q/orders/read: finished}
    after: [first, people]
"""
LOAD, READ, WRITE = "q/people/load", "q/orders/read", "q/orders/write"


def new_bus() -> MemoryBusClient:
    bus = MemoryBus().client("engine")
    for topic in ("x.p.q.people.I", "x.p.q.orders.I", "x.p.q.orders.O", "x.p.q.people.O"):
        bus.create_topic(topic)
    return bus


def end(bus: MemoryBusClient, source: str) -> int:
    return bus.end_offset(Partition(f"x.p.q.{source}.I"))


def test_a_group_starts_once_the_engine_has_taken_what_those_before_it_brought(tmp_path: Path, lines: io.StringIO) -> None:
    """SPEC I12: so no event of a later connector precedes them in the engine's order, whatever the clocks."""
    (tmp_path / "people.csv").write_bytes(b"i,n,1,a\ni,n,2,b\n")
    (tmp_path / "orders.csv").write_bytes(b"i,n,7,a\n")
    bus, taken = new_bus(), {"x.p.q.people.I": 0}
    engine = ConnectorSet(
        load_text(PROJECT).resolved, bus, "x", tmp_path, Log(), taken=lambda partition: taken.get(partition.topic)
    )
    engine.follow_role(Role.ACTIVE)
    engine.follow_role(Role.ACTIVE)
    wait_until(lambda: engine.states()[LOAD] is ConnectorState.FINISHED, "it is at its end")
    for _ in range(3):
        engine.follow_role(Role.ACTIVE)
    assert engine.states()[READ] is ConnectorState.WAITING
    assert end(bus, "orders") == 0
    taken["x.p.q.people.I"] = end(bus, "people")
    engine.follow_role(Role.ACTIVE)
    wait_until(lambda: engine.states()[READ] is ConnectorState.FINISHED, "it is at its end")
    assert end(bus, "orders") == 1
    engine.stop()
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert any(each["connector"] == READ and LOAD in each["message"] for each in told if each["event"] == "connector_waits")


def test_all_begin_again_in_the_same_order_elsewhere(tmp_path: Path) -> None:
    """After a fail-over a publisher that was at its end finishes at once, and nothing is published again."""
    (tmp_path / "people.csv").write_bytes(b"i,n,1,a\n")
    (tmp_path / "orders.csv").write_bytes(b"i,n,7,a\n")
    bus = new_bus()
    for _ in range(3):
        engine = ConnectorSet(load_text(PROJECT).resolved, bus, "x", tmp_path)

        def is_over(engine: ConnectorSet = engine) -> bool:
            engine.follow_role(Role.ACTIVE)
            return engine.states()[READ] is ConnectorState.FINISHED

        wait_until(is_over, "all are at their ends")
        engine.stop()
        assert (end(bus, "people"), end(bus, "orders")) == (1, 1)


def test_what_starts_after_a_connector_that_fails_waits(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_bytes(b"i,n,7,a\n")
    bus = new_bus()
    engine = ConnectorSet(load_text(PROJECT).resolved, bus, "x", tmp_path)
    engine.follow_role(Role.ACTIVE)
    wait_until(lambda: engine.states()[LOAD] is ConnectorState.FAILED, "it fails")
    engine.follow_role(Role.ACTIVE)
    assert engine.states()[READ] is ConnectorState.WAITING
    engine.stop()


STATES = st.sampled_from(ConnectorState)
TARGETS = st.sampled_from(ConnectorTarget)


@st.composite
def orders(draw: st.DrawFn) -> tuple[list[ConnectorGroup], list[str]]:
    """Draws groups, each starting after some earlier ones, and connectors within and outside of groups."""
    names = [f"q/w/{i}" for i in range(draw(st.integers(1, 8)))]
    groups: list[ConnectorGroup] = []
    left = list(names)
    while left and draw(st.booleans()):
        size = draw(st.integers(1, len(left)))
        mine, left = left[:size], left[size:]
        after = tuple(draw(st.sets(st.sampled_from([g.name for g in groups])))) if groups else ()
        groups.append(ConnectorGroup(f"g{len(groups)}", tuple(ConnectorEntry(name, draw(TARGETS)) for name in mine), after))
    return groups, names


@given(orders(), st.data())
def test_whatever_happens_those_that_may_start_are_those_behind_nothing_that_is_missing(
    drawn: tuple[list[ConnectorGroup], list[str]], data: st.DataObject
) -> None:
    groups, names = drawn
    states = {name: data.draw(STATES) for name in names}
    lost = data.draw(st.sets(st.sampled_from(names)))
    order = StartOrder(groups, names)
    for name in names:
        group = next((g for g in groups if name in [e.connector for e in g.entries]), None)
        before = [e for g in groups if group is not None and g.name in group.after for e in g.entries]
        expected = all(plainly_reached(e.target, states[e.connector], e.connector not in lost) for e in before)
        assert (name in order.startable_connectors(states, lambda each: each not in lost)) is expected
    assert set(order.startable_connectors({}, lambda each: False)) == set(names), "nobody waits for what another engine runs"


def plainly_reached(target: ConnectorTarget, state: ConnectorState, is_taken: bool) -> bool:
    table: Mapping[ConnectorTarget, bool] = {
        ConnectorTarget.RUNNING: state in (ConnectorState.RUNNING, ConnectorState.FINISHED),
        ConnectorTarget.FINISHED: state is ConnectorState.FINISHED and is_taken,
        ConnectorTarget.STOPPED: state is ConnectorState.STOPPED or (state is ConnectorState.FINISHED and is_taken),
    }
    return table[target]


@given(orders())
def test_every_connector_starts_where_all_reach_their_targets(drawn: tuple[list[ConnectorGroup], list[str]]) -> None:
    groups, names = drawn
    targets = {e.connector: e.target for g in groups for e in g.entries}
    order, states = StartOrder(groups, names), dict.fromkeys(names, ConnectorState.WAITING)
    for _ in names:
        for name in list(order.startable_connectors(states, lambda each: True)):
            states[name] = ConnectorState(targets.get(name, ConnectorTarget.RUNNING).value)
    assert ConnectorState.WAITING not in states.values()


@pytest.mark.parametrize("state", list(ConnectorState))
def test_a_running_connector_need_not_be_taken(state: ConnectorState) -> None:
    groups = [
        ConnectorGroup("a", (ConnectorEntry("q/w/a", ConnectorTarget.RUNNING),)),
        ConnectorGroup("b", (ConnectorEntry("q/w/b", ConnectorTarget.RUNNING),), ("a",)),
    ]
    order = StartOrder(groups, ["q/w/a", "q/w/b"])
    waits = order.blocking_connectors("q/w/b", {"q/w/a": state, "q/w/b": ConnectorState.WAITING}, lambda each: False)
    assert waits == ([] if state in (ConnectorState.RUNNING, ConnectorState.FINISHED) else ["q/w/a"])
