"""Runs every case as a whole, message by message, and restarted after each message: laws Cut and Crash on readable examples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import xxhash

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.model.window_type import type_of
from hotspare.rows.compile import plain
from hotspare.table.loops.columns import identifier_texts
from hotspare.windows.registry import WINDOW_TYPES
from tests.cases.case import CASES, OF_EVERY_TYPE, expected_by_cause, outputs_by_cause, raw_batches, read_case, run


def _identifier(number: int) -> str:
    """Returns the text for @number: the generated key of window cq/source."""
    out = np.empty(36, np.uint8)
    with np.errstate(over="ignore"):
        plain(identifier_texts)(np.uint64(xxhash.xxh3_64_intdigest(b"cq/source")), np.array([number]), out)
    return out.tobytes().decode()


def filled_in(expected: Mapping[tuple[int, int], Mapping[str, list[str]]]) -> dict[tuple[int, int], dict[str, list[str]]]:
    def line(text: str) -> str:
        head, mark, rest = text.partition("@")
        return f"{head}{_identifier(int(rest[0]))}{rest[1:]}" if mark else text

    return {cause: {stream: [line(t) for t in texts] for stream, texts in by.items()} for cause, by in expected.items()}


def test_there_are_cases() -> None:
    assert len(CASES) >= 25


def test_few_cases_have_windows_of_every_type() -> None:
    found = {type_of(window.window).name for path in OF_EVERY_TYPE for window in read_case(path).plan.resolved.windows}
    assert found == set(WINDOW_TYPES)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_case(path: Path) -> None:
    case = read_case(path)
    batches = raw_batches(case)
    expected = filled_in(expected_by_cause(case))
    whole, snapshot = run(case, [batches], restarts=False)
    assert outputs_by_cause(whole) == expected
    single, single_snapshot = run(case, [[batch] for batch in batches], restarts=False)
    assert (outputs_by_cause(single), single_snapshot) == (expected, snapshot), "message by message"
    restarted, restarted_snapshot = run(case, [[batch] for batch in batches], restarts=True)
    assert (outputs_by_cause(restarted), restarted_snapshot) == (expected, snapshot), "restarted after each message"
    head, pipeline = Head.from_plan(case.plan), Pipeline.fresh(case.plan, extra_rows_max=1)
    parts = [item for batch in batches for part in pipeline.compute_parts(head.decode(batch)) for item in part.items()]
    assert outputs_by_cause(parts) == expected, "in small parts"
