"""Millions of keys that come and go leave nothing behind: the state after each round of keys is as large as it was."""

from __future__ import annotations

import pytest

from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from tests.laws.keys_come_and_go import PROJECT, rounds, state_bytes

pytestmark = pytest.mark.law


def test_state_does_not_grow_with_keys_that_went() -> None:
    plan = compile_plan(load_text(PROJECT).resolved)
    pipeline = Pipeline.fresh(plan)
    sizes = [state_bytes(pipeline) for _ in rounds(plan, pipeline, 1_500, 5)]
    assert max(sizes[2:]) <= 1.02 * sizes[1], sizes
