"""Texts whose bytes are evicted are found, returned and collected as others (SPEC G1, G2)."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from hotspare.rows.tuning import DEFAULT, Tuning, tuning_override
from hotspare.table.page_cache.budget import Budget
from hotspare.table.strings import StringTable
from tests.table.page_cache.test_counts import filled, put

MANY = pa.array([f"{number}-".ljust(200 + number % 7, "x") for number in range(20_000)])
EVERY = np.ones(len(MANY), np.bool_)


def table_in(budget: Budget) -> StringTable:
    table = StringTable()
    table.set_window_memory(budget.window_memory(0))
    return table


def test_texts_that_left_are_found_and_given_out(tmp_path: Path) -> None:
    budget = Budget(1 << 20, tmp_path)
    table = table_in(budget)
    codes, _ = table.intern(MANY)
    budget.evict_between_steps()
    counts = budget.counts()
    assert counts["away"] > 3 << 20
    assert counts["may_leave"] < 1 << 18
    assert table.intern(MANY)[0].tolist() == codes.tolist()
    assert table.arrow(codes, EVERY, pa.string()).equals(MANY)
    assert table.freeze().subset(codes).data.tobytes() == "".join(MANY.to_pylist()).encode()
    assert table.live == len(MANY)


def test_what_is_asked_for_is_fetched_together_and_leaves_again(tmp_path: Path) -> None:
    """Texts are fetched by content, and by code; new texts fetch nothing."""
    budget = Budget(4 << 20, tmp_path)
    table = table_in(budget)
    table.intern(MANY)
    budget.size = 1 << 20
    budget.evict_between_steps()
    assert budget.counts()["fetched"] == 0
    table.intern(pa.array([f"new {number}" for number in range(1_000)]))
    assert budget.counts()["fetched"] == 0
    table.intern(MANY[5_000:5_010])
    few = budget.counts()["fetched"]
    assert 0 < few <= 16_384
    table.arrow(np.arange(1, 11), EVERY[:10], pa.string())
    assert few < budget.counts()["fetched"] <= 2 * few + 4_096
    budget.evict_between_steps()
    table.arrow(np.arange(1, len(MANY)), EVERY[1:], pa.string())
    budget.evict_between_steps()
    assert budget.counts()["fetched"] <= (budget.size - budget.counts()["stays"]) // 4 or budget.counts()["fetched"] == 0


def test_a_copy_lives_in_the_same_home(tmp_path: Path) -> None:
    """Such a copy is kept while an engine searches for the event on which it fails."""
    budget = Budget(1 << 20, tmp_path)
    table = table_in(budget)
    codes, _ = table.intern(MANY)
    budget.evict_between_steps()
    twin = copy.deepcopy(table)
    del table
    budget.evict_between_steps()
    assert twin.has_evicted
    assert twin.arrow(codes, EVERY, pa.string()).equals(MANY)


@tuning_override(Tuning(reserved_bytes=DEFAULT.small_bytes // 16))
def test_a_table_grows_where_the_system_gives_little_address_space(tmp_path: Path) -> None:
    """Evicted texts are copied to the larger space, and evicted again."""
    budget = Budget(1 << 19, tmp_path)
    table, codes = table_in(budget), []
    for begin in range(0, len(MANY), 1_000):
        codes.append(table.intern(MANY[begin : begin + 1_000])[0])
        budget.evict_between_steps()
    assert table.has_evicted
    assert table.arrow(np.concatenate(codes), EVERY, pa.string()).equals(MANY)


@tuning_override(Tuning(collect_bytes_min=4 << 20))
def test_texts_that_come_and_go_take_bounded_memory_disk_and_mappings(tmp_path: Path) -> None:
    """Each row gets another text at each step: many times as many as there are, and most are evicted before they are collected."""
    budget = Budget(4 << 20, tmp_path)
    pipeline = filled(budget, "{}" + 180 * "y")
    strings, most = pipeline._state.strings, {"away": 0, "count": 0, "maps": 0, "disk": 0}
    live = strings.bytes
    assert strings.has_evicted
    for step in range(100, 340):
        keys = np.random.default_rng(step).integers(0, 24_000, 2_000).tolist()
        put(pipeline, step, ("source", [f"P,N,{key},{step}-{key}{180 * 'z'},1" for key in keys]))
        maps = Path("/proc/self/maps").read_text().count(str(tmp_path))  # of the page file alone
        disk = 512 * os.fstat(strings._pages.leaving._file.number).st_blocks  # type: ignore[union-attr]
        now = {"away": budget.counts()["away"], "count": strings.count, "maps": maps, "disk": disk}
        most = {name: max(size, most[name]) for name, size in now.items()}
    assert strings.codes_assigned > 15 * 24_000
    assert most["count"] < 3 * 24_000
    assert most["away"] < 4 * live
    assert most["disk"] < 4 * live
    assert 0 < most["maps"] < 500
    del pipeline


@tuning_override(Tuning(collect_codes_min=1))
def test_rows_that_go_take_their_texts_along(tmp_path: Path) -> None:
    """Evicted texts, too: memory and room in the page file are released."""
    budget = Budget(4 << 20, tmp_path)
    pipeline = filled(budget, "{}" + 180 * "y")
    assert budget.counts()["away"] > 3 << 20
    for step in range(100, 108):
        keys = range((step - 100) * 3_000, (step - 99) * 3_000)
        put(pipeline, step, ("source", [f"D,N,{key},," for key in keys]))
    pipeline._state.collect_all_strings()
    put(pipeline, 200, ("source", ["P,N,1,last,1"]))
    assert pipeline._state.strings.live == 1
    assert budget.counts()["away"] == 0
    budget.size = 1 << 17
    budget.evict_between_steps()
    assert pipeline._state.strings.evictable_bytes <= 1 << 16
