"""Texts in rows of a window with `resident: always` stay in memory, wherever they are among others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from hotspare.flow.pipeline import Pipeline
from hotspare.rows.tuning import Tuning, tuning_override
from hotspare.table.loops.interning import BEGIN, COUNT, PAGE_BITS, SIZE, STATE_WIDTH, InternedTexts
from hotspare.table.page_cache.budget import Budget
from hotspare.table.pinned_texts import PinnedTexts
from tests.laws.core_scripts import snapshot_bytes
from tests.table.page_cache.test_counts import plan_of, put

PROJECT = """
project: staying
queries:
  q:
    windows:
      source: {type: source, opcodes: any, index: empty, schema: "id*:int64,s:string,value:double"}
      kept: {type: copy}
      picked: {type: filter, condition: value > 0}
      chosen: {type: copy, resident: always, publish: true}
    edges: [source -> kept, source -> picked, picked -> chosen]
"""
ROWS, STEPS, LETTERS = 3_000, 8, 300
CHOSEN = 30
"""The step between chosen rows, so that their texts are among others."""
BUDGET = 4 << 20


def write(pipeline: Pipeline, step: int, keys: Iterable[int], chosen: int = CHOSEN) -> None:
    rows = [f"P,N,{key},{key}{LETTERS * 'x'},{int(key % chosen == 0)}" for key in keys]
    put(pipeline, step, ("source", rows))


def written(budget: Budget | None, chosen: int = CHOSEN, steps: int = STEPS) -> Pipeline:
    pipeline = Pipeline.fresh(plan_of(PROJECT), **({"residence": budget} if budget else {}))
    for step in range(steps):
        write(pipeline, step, range(step * ROWS, (step + 1) * ROWS), chosen)
    return pipeline


def away_of_chosen(pipeline: Pipeline) -> tuple[int, int]:
    """Returns how many texts of the window must stay, and how many of them are evicted."""
    state = pipeline._state
    codes, texts, pages = np.zeros(state.strings.count, np.uint8), state.strings._texts, state.strings._pages
    (rows,) = state._pinned_holders().values()
    rows.mark(codes, 1, 0, rows.write_position)
    places = texts.places[np.flatnonzero(codes)]
    ends = places.sum(axis=1) - 1
    return len(places), int(np.count_nonzero(pages._is_away[places[:, 0] >> 16] | pages._is_away[ends >> 16]))


@pytest.mark.parametrize("chosen", [CHOSEN, 1])
def test_they_stay_and_others_leave(chosen: int, tmp_path: Path) -> None:
    """SPEC G2, G3. A few among others, and all there are: these count as memory that stays."""
    budget = Budget(BUDGET, tmp_path)
    pipeline = written(budget, chosen)
    count, away = away_of_chosen(pipeline)
    assert (count, away) == (ROWS * STEPS // chosen, 0)
    of_texts = budget.counts_by_window()["texts"]
    least = count * LETTERS
    assert of_texts["stays"] > least if chosen == 1 else of_texts["stays"] + of_texts["may_leave"] > least
    assert (of_texts["away"] > BUDGET // 4) == (chosen > 1)
    assert snapshot_bytes(pipeline) == snapshot_bytes(written(None, chosen))


def test_texts_that_were_moved_stay_where_they_are_moved_to(tmp_path: Path) -> None:
    """However much of the budget they take."""
    budget = Budget(BUDGET, tmp_path)
    pipeline = Pipeline.fresh(plan_of(PROJECT), residence=budget)
    for step in range(12):
        write(pipeline, step, range(step * ROWS, (step + 1) * ROWS), 3)
        assert away_of_chosen(pipeline) == ((step + 1) * ROWS // 3, 0)


class Newest:
    """A window's newest rows, each with the text of its own number."""

    codes_per_row, rows_max = 1, 1_000

    def __init__(self) -> None:
        self.write_position = 0

    def mark(self, marks: np.ndarray, mark: int, since: int, rows: int) -> int:
        marks[max(since, self.write_position - self.rows_max, 1) : since + rows] = mark
        return since + rows


def of_a_byte_each(count: int) -> InternedTexts:
    nothing, state, places = np.zeros(1, np.int64), np.zeros(STATE_WIDTH, np.int64), np.ones((count, 2), np.int64)
    state[PAGE_BITS], state[COUNT] = 16, count
    places[:, BEGIN], places[:, SIZE] = np.arange(count), 1
    text = InternedTexts(*([nothing] * len(InternedTexts._fields)))
    return text._replace(state=state, places=places, marks=np.ones(count, np.uint8))


def test_rows_that_go_keep_twice_what_stays_at_most() -> None:
    """Although another window has their texts, so that nothing else begins a round."""
    staying, window, texts, rounds = PinnedTexts(), Newest(), of_a_byte_each(60_000), 0
    while window.write_position < 59_000:
        window.write_position += 100
        staying.mark_written({"w/rows": window}, 60_000)
        assert len(staying.find_pinned(texts).codes) <= 2 * window.rows_max + 300
        if staying.is_round_due(window.rows_max):
            rounds += 1
            staying.begin_round()
            window.mark(staying.marks, staying.round, 0, window.write_position)
            staying.end_round(60_000)
    assert rounds > 10


def test_a_round_over_more_texts_than_a_small_array_holds() -> None:
    """SPEC G1. The reserved room behind them is not read."""
    staying = PinnedTexts()
    staying.pin_codes(np.array([3, 8_999_999]), 9_000_000)
    staying.begin_round()
    staying.pin_codes(np.array([5]), 9_000_000)
    staying.end_round(9_000_000)
    assert np.flatnonzero(staying.marks[:9_000_000]).tolist() == [5]


def test_those_that_left_come_back_where_a_row_has_them(tmp_path: Path) -> None:
    budget = Budget(BUDGET, tmp_path)
    pipeline = written(budget, 1 << 60)
    assert away_of_chosen(pipeline)[0] == 1, "key 0"
    write(pipeline, STEPS, range(1_000), 1)
    for step in range(1, 4):
        write(pipeline, STEPS + step, range((STEPS + step) * ROWS, (STEPS + step + 1) * ROWS), 1 << 60)
    assert away_of_chosen(pipeline) == (1_000, 0)
    assert budget.counts_by_window()["texts"]["away"] > 0


@tuning_override(Tuning(collect_bytes_min=1 << 20))
def test_those_of_rows_that_are_gone_leave_again(tmp_path: Path) -> None:
    """Although another window has them."""
    budget = Budget(BUDGET, tmp_path)
    pipeline = written(budget, 1)
    assert budget.counts_by_window()["texts"]["stays"] > BUDGET
    for step in range(STEPS):
        keys = range(step * ROWS, (step + 1) * ROWS)
        put(pipeline, STEPS + step, ("source", [f"P,N,{key},{key}{LETTERS * 'x'},0" for key in keys]))
    pipeline._state.collect_all_strings()
    for step in range(3 * STEPS, 3 * STEPS + 2):
        write(pipeline, step, range(100), 1 << 60)
    texts = budget.counts_by_window()["texts"]
    assert pipeline._state.strings.live == ROWS * STEPS
    assert texts["stays"] < BUDGET // 2
    assert texts["away"] > BUDGET


def test_a_restore_lets_only_others_leave(tmp_path: Path) -> None:
    pipeline = written(None)
    frozen = pipeline.freeze()
    budget = Budget(BUDGET, tmp_path)
    restored = Pipeline.restore(plan_of(PROJECT), frozen.header, dict(frozen.pages()), residence=budget)
    assert away_of_chosen(restored) == (ROWS * STEPS // CHOSEN, 0)
    assert budget.counts_by_window()["texts"]["away"] > 0
    write(restored, STEPS, range(STEPS * ROWS, (STEPS + 1) * ROWS))
    assert away_of_chosen(restored) == (ROWS * (STEPS + 1) // CHOSEN, 0)
    assert snapshot_bytes(restored) == snapshot_bytes(written(None, steps=STEPS + 1))
