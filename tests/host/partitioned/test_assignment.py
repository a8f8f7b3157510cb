"""Every shard has one task, and no task two more than another one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.host.partitioned.assignment import assigned_shards, tasks_for


@given(st.integers(1, 200), st.data())
def test_every_shard_is_assigned_once_and_evenly(shards: int, data: st.DataObject) -> None:
    """SPEC K9."""
    tasks = data.draw(st.integers(1, shards))
    assigned = assigned_shards(shards, tasks)
    assert len(assigned) == tasks
    assert sorted(shard for each in assigned for shard in each) == list(range(shards))
    assert max(map(len, assigned)) - min(map(len, assigned)) <= 1


@pytest.mark.parametrize("tasks", [0, 4])
def test_a_task_without_a_shard_is_refused(tasks: int) -> None:
    with pytest.raises(ValueError, match="3 shards cannot be spread"):
        assigned_shards(3, tasks)


@pytest.mark.parametrize(
    ("shards", "slots", "wanted", "tasks"),
    [(8, 4, 0, 4), (8, 16, 0, 8), (8, 4, 2, 2), (8, 4, 6, 4), (1, 4, 0, 1), (8, 0, 0, 1)],
)
def test_there_are_as_many_tasks_as_slots_shards_and_wishes_allow(shards: int, slots: int, wanted: int, tasks: int) -> None:
    assert tasks_for(shards, slots, wanted) == tasks
