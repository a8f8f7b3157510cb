"""The counts of a meter: rows into and out of each window, and time by the clock that it gets. Outputs do not depend on it."""

from __future__ import annotations

from itertools import count

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.flow.window_meter import WindowMeter
from hotspare.projects.load import load_text
from tests.flow.changelogs import raw

PROJECT = """
project: shop
queries:
  q:
    windows:
      in: {type: source, schema: "id*:int64,n:int64"}
      kept: {type: copy, retention: {bycount_sliding: 2}, publish: true}
      some: {type: filter, condition: "n > 1", publish: true}
    edges: [in -> kept, kept -> some]
"""


def test_rows_and_time_are_counted_by_window_and_outputs_are_the_same() -> None:
    plan = compile_plan(load_text(PROJECT).resolved)
    meter = WindowMeter(plan, count(0, 10).__next__)
    metered, plain = Pipeline.fresh(plan), Pipeline.fresh(plan)
    metered.attach_meter(meter)
    head = Head.from_plan(plan)
    for first in (0, 4):
        decoded = head.decode(raw([f"i,n,{first + n},{n}" for n in range(4)], first))
        assert metered.feed(decoded) == plain.feed(decoded)
    work = meter.by_window()
    assert set(work) == {"q/in", "q/kept", "q/some"}
    assert (work["q/in"].rows_in, work["q/in"].rows_out) == (8, 8)
    assert (work["q/kept"].rows_in, work["q/kept"].rows_out) == (8, 8 + 6)  # a delete for each row beyond two
    assert work["q/some"].rows_in == 14
    assert 4 <= work["q/some"].rows_out < 14
    assert work["q/kept"].busy_ns == 20  # two calls of 10 each
