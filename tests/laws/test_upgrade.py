"""A changed project continues with the state of the previous one: unchanged windows keep their state, to the bit (SPEC Z4, Z6)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.flow.carry_over import carried_over
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.flow.upgrade import Past, StreamFate, compare
from tests.examples import examples
from tests.laws.any_changelogs import raw_messages
from tests.laws.any_graphs import Graph
from tests.laws.core_scripts import snapshot_bytes
from tests.laws.graph_laws import same
from tests.laws.search import drawn
from tests.laws.upgrade_kit import begins_otherwise, fed, lacks_rows, only, unread

pytestmark = pytest.mark.law

SEEDS = st.integers(0, 1 << 40)


def _changed(graph: Graph, random: Random) -> Graph:
    """Returns another graph: with one more window or source window, one leaf less, or a changed expression."""
    names = [name for name, window in graph.windows.items() if window["type"] != "source"]
    way = random.choice(["added", "source", "removed", "written"])
    if way == "removed" and names:
        leaves = [name for name in names if not any(source == name for source, _, _ in graph.edges)]
        return graph.without(random.choice(leaves))
    if way == "written" and names:
        name = random.choice(names)
        window = graph.windows[name]
        if window["type"] == "filter":
            changed = {**window, "condition": f"({window['condition']}) or x = 3"} if "condition" in window else window
            return replace(graph, windows={**graph.windows, name: changed})
        return replace(graph, windows={**graph.windows, name: {**window, "index": "hash"}})
    if way == "source":
        first = graph.sources[0]
        return graph.with_window("zz", first, []).with_window("zzz", {"type": "copy"}, [("zz", "zzz", "")])
    behind = random.choice(list(graph.windows))
    return graph.with_window("zzz", {"type": "copy", "retention": {"bycount_sliding": 2}}, [(behind, "zzz", "")])


@examples(0.5)
@given(seed=SEEDS)
def test_a_project_beside_itself_keeps_all(seed: int) -> None:
    graph, script = drawn(seed)
    plan = graph.plan()
    assert compare(plan, compile_plan(graph.resolved()), Past.CUT).is_unchanged
    raw = raw_messages(script, len(plan.entries))
    pipeline = Pipeline.fresh(plan)
    fed(plan, pipeline, raw[: len(raw) // 2])
    frozen = pipeline.freeze()
    header, pages = carried_over(plan, plan, frozen.header, dict(frozen.pages()))
    assert snapshot_bytes(Pipeline.restore(plan, header, pages)) == snapshot_bytes(pipeline)


@examples(0.7)
@example(seed=40384)  # an aggregate behind a changed filter behind a source window with a pulse
@given(seed=SEEDS)
def test_streams_that_do_not_change_go_on_with_the_same_bits(seed: int) -> None:
    """The new project starts with the state of the old one, or is computed again from the topics."""
    random = Random(seed)
    graph, script = drawn(seed)
    changed = _changed(graph, random)
    before, after = graph.plan(), changed.plan()
    found = compare(before, after, Past.CUT)
    if lacks_rows(found):
        return
    raw = raw_messages(script, len(before.entries))
    cut = random.randrange(len(raw) + 1)
    old = Pipeline.fresh(before)
    first, frozen = fed(before, old, raw[:cut]), old.freeze()
    new = Pipeline.restore(after, *carried_over(before, after, frozen.header, dict(frozen.pages())))
    kept = [name for name, fate in found.streams.items() if fate is StreamFate.SAME]
    following = dict(old.next_offsets)
    rest = [left for each in raw if (left := unread(each, following)).num_rows]
    if len(after.entries) > len(before.entries):
        new.set_partitions([(topic, 0) for topic in range(len(before.entries))])  # the new topic has no messages
    expected, made = fed(before, old, raw[cut:]), fed(after, new, rest)
    same("kept streams", only(made, kept), only(expected, kept))
    anew = Pipeline.fresh(after)
    anew.set_partitions([(topic, 0) for topic in range(len(before.entries))])
    whole = {name: pa.concat_tables([each[name] for each in (first, expected) if name in each]) for name in {*first, *expected}}
    same("computed anew", only(fed(after, anew, raw), kept), only(whole, kept))


@examples(0.5)
@given(seed=SEEDS)
def test_a_window_of_any_type_may_begin_behind_windows_that_are_kept(seed: int) -> None:
    """A copy of a window starts empty after the same upstream rows: it processes their changes, and no other window is affected."""
    random = Random(seed)
    graph, script = drawn(seed)
    names = [name for name, window in graph.windows.items() if window["type"] != "source"]
    if not names:
        return
    name = random.choice(names)
    twin = graph.with_window("zzz", graph.windows[name], [(source, "zzz", more) for source, more in graph.inputs(name)])
    before, after = graph.plan(), twin.plan()
    found = compare(before, after, Past.CUT)
    if lacks_rows(found):
        return
    raw = raw_messages(script, len(before.entries))
    cut = random.randrange(len(raw) + 1)
    old = Pipeline.fresh(before)
    fed(before, old, raw[:cut])
    frozen = old.freeze()
    new = Pipeline.restore(after, *carried_over(before, after, frozen.header, dict(frozen.pages())))
    kept = [name for name, fate in found.streams.items() if fate is StreamFate.SAME]
    following = dict(old.next_offsets)
    rest = [left for each in raw if (left := unread(each, following)).num_rows]
    same("kept streams", only(fed(after, new, rest), kept), only(fed(before, old, raw[cut:]), kept))


@examples(0.5)
@given(seed=SEEDS)
def test_an_aggregate_that_begins_behind_rows_that_are_kept_is_as_one_that_was_always_there(seed: int) -> None:
    differs = begins_otherwise(*drawn(seed), Random(seed))
    assert differs is None, differs
