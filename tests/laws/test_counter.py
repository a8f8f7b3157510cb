"""Law of counters: reports are those of a plain model, event by event, however the input is cut (SPEC A33, F8, M6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message, raw_batches
from tests.laws.test_cut import cut, fed, in_batches

pytestmark = pytest.mark.law

SECOND = 1_000_000
COUNT_US, CLEAR_US = 1_500_000, 4 * SECOND
PLAN = compile_plan(
    load_text("""
project: p
queries:
  q:
    windows:
      w0: {type: source, opcodes: any, schema: "id*:int64"}
      odd: {type: filter, condition: id % 2 = 1}
      gauge: {type: counter, count_interval: 1.5 seconds, clear_interval: 4 seconds, publish: true}
    edges: [w0 -> gauge, odd -> gauge, w0 -> odd]
""").resolved
)
Given = tuple[int, list[int]]
"""Append time, and keys that are upserted; an empty list is a tick."""


@st.composite
def scripts(draw: st.DrawFn) -> list[Given]:
    script, time = [], SECOND
    for _ in range(draw(st.integers(1, 15))):
        time += draw(st.sampled_from([0, 300_000, 1_000_000, 2_500_000]))
        script.append((time, draw(st.one_of(st.just([]), st.lists(st.integers(1, 4), min_size=1, max_size=3)))))
    return script


@dataclass
class Gauge:
    total: int = 0
    count: int = 0
    since: int = 0
    begun: int = 0
    newest: int = 0

    def take(self, now: int) -> None:
        if not self.total:
            self.since = self.begun = now
        self.total += 1
        self.count += 1
        self.newest = now

    def beat(self, now: int) -> tuple[Any, ...] | None:
        if not self.total:
            return None
        if now - self.newest >= CLEAR_US:
            self.total = self.count = 0
            return (0, 0.0, 0.0, 0, 0.0, 0.0)
        if now - self.begun < COUNT_US:
            return None
        whole, part = (now - self.since) / SECOND, (now - self.begun) / SECOND
        told = (self.total, whole, self.total / whole, self.count, part, self.count / part)
        self.count, self.begun = 0, now
        return told


def plain(script: list[Given]) -> list[tuple[Any, ...]]:
    """Returns the rows that report a change."""
    gauges = {"w0": Gauge(), "odd": Gauge()}
    told, beat = [], None
    for time, keys in script:
        for key in keys:
            gauges["w0"].take(time)
            if key % 2:
                gauges["odd"].take(time)
        if not keys and (beat is None or time // SECOND != beat // SECOND):
            beat = time
            told += [(name, *row) for name, gauge in gauges.items() if (row := gauge.beat(time)) is not None]
    return told


@given(scripts(), st.lists(st.integers(0, 60), max_size=12), st.integers(1, 4))
def test_counter(script: list[Given], places: list[int], extra_rows_max: int) -> None:
    messages = tuple(Message(time, "w0" if keys else "", " | ".join(f"P,N,{key}" for key in keys)) for time, keys in script)
    case = Case(PLAN, messages, ())
    rows = Head.from_plan(PLAN).decode(pa.concat_batches(raw_batches(case)))
    outputs = Pipeline.fresh(PLAN).feed(rows)
    made = outputs["q/gauge"].to_pylist() if "q/gauge" in outputs else []
    new = [row for row in made if row["hs:opcode"] != 4]
    assert [tuple(value for name, value in row.items() if not name.startswith("hs:")) for row in new] == plain(script)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole
