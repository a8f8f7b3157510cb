"""A snapshot of aggregates of an older version goes on as if it were today's (SPEC G10)."""

from __future__ import annotations

from hotspare.engine.operators.aggregate_groups import VALUES
from hotspare.engine.pipeline import Pipeline
from hotspare.engine.state.ordered_values import OrderedValues
from tests.laws.core_scripts import joined
from tests.laws.test_joins import decoded
from tests.unit.engine import old_aggregate


def in_trees(pipeline: Pipeline) -> int:
    """How many values stand beside the rows of groups."""
    values = pipeline._state.pages["q/groups#0"].parts[VALUES]
    assert isinstance(values, OrderedValues)
    return values.rows.live


def test_values_of_small_groups_stand_in_trees_until_their_group_is_empty() -> None:
    rows = decoded(old_aggregate.case(old_aggregate.ALL))
    begin = old_aggregate.BEFORE
    expected = Pipeline.fresh(old_aggregate.plan())
    expected.feed(rows.slice(0, begin))
    pipeline = Pipeline.restore(old_aggregate.plan(), *old_aggregate.stored())
    assert in_trees(pipeline) > in_trees(expected) > 0
    for size in (1, 20, 31, rows.num_rows):
        outputs = [joined([each.feed(rows.slice(begin, size))]) for each in (pipeline, expected)]
        assert outputs[0] == outputs[1]
        again = pipeline.freeze()
        pipeline = Pipeline.restore(old_aggregate.plan(), again.header, dict(again.pages()))
        begin += size
    assert in_trees(pipeline) == 0
    assert pipeline.sequences == expected.sequences
