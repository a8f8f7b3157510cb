"""Believed append times: the rule against a plain form of it, and the cost of a wrong clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.merge import Merge
from hotspare.rows import partition_clock
from hotspare.rows.batch import RowKind, decoded_schema
from hotspare.rows.partition_clock import NO_TIME, Belief, PartitionClock
from hotspare.rows.tuning import SMALL, tuning_override
from tests.examples import examples

SKEW = 1000
CONFIRM = SKEW // partition_clock.CONFIRMED_BY
TICK = 50
UNTICKED = 6
SCHEMA = decoded_schema([])
Stamp = tuple[int, bool]
"""An append time, and whether it is a tick's."""


# --- the rule ------------------------------------------------------------------------------------------------------------


def believed(stamps: list[Stamp], belief: Belief) -> list[Belief]:
    """Applies the rule row by row: the belief after each row that is settled."""
    found: list[Belief] = []
    for i, (time, _) in enumerate(stamps):
        newest, clock = belief.time_us, belief.clock_us
        if newest == NO_TIME or time > newest + SKEW:
            verdict = next((k for k in range(i, len(stamps)) if _tells(stamps, i, k, newest)), None)
            if verdict is None:
                return found
            other = stamps[verdict][0]
            if not _refutes(stamps, i, verdict, newest):
                belief = Belief(time, time)
            elif newest == NO_TIME:
                belief = Belief(other, other)
        elif time < newest:
            step = (time >> 1) - (clock >> 1) if clock <= time <= clock + SKEW else 0
            belief = Belief(newest + step, time)
        else:
            belief = Belief(time, time)
        found.append(belief)
    return found


def _refutes(stamps: list[Stamp], i: int, k: int, newest: int) -> bool:
    time, leap = stamps[k][0], stamps[i][0]
    return time < leap - SKEW or (newest != NO_TIME and time <= newest + SKEW)


def _tells(stamps: list[Stamp], i: int, k: int, newest: int) -> bool:
    time, tick = stamps[k]
    if newest == NO_TIME and tick:
        return True
    if k == i:
        return False
    unticked = k - i >= UNTICKED and not any(each[1] for each in stamps[i : i + UNTICKED]) and time != stamps[i][0]
    return _refutes(stamps, i, k, newest) or (tick and time >= stamps[i][0] + CONFIRM) or unticked


def near(centre: int) -> st.SearchStrategy[int]:
    return st.integers(centre - CONFIRM - 5, centre + CONFIRM + 5)


TIMES = st.one_of(near(0), near(SKEW), near(-SKEW), near(2 * SKEW), near(50 * SKEW), st.sampled_from([-(2**63), 2**63 - 1]))
STAMPS = st.lists(st.tuples(TIMES, st.booleans()), max_size=40)


@pytest.fixture(autouse=True)
def _few_rows() -> Iterator[None]:
    with tuning_override(SMALL):
        yield


def taken(clock: PartitionClock, stamps: list[Stamp]) -> list[Belief]:
    times, ticks = np.array([t for t, _ in stamps], np.int64), np.array([tick for _, tick in stamps], np.bool_)
    return [Belief(int(time), int(at)) for time, at in zip(*clock.settle_rows(times, ticks), strict=True)]


@examples(7)
@given(STAMPS, st.lists(st.integers(0, 40), max_size=5), st.integers(0, 40))
def test_the_rule_however_it_is_cut_and_after_a_restore(stamps: list[Stamp], places: list[int], restart: int) -> None:
    """SPEC D12, F5, Z13."""
    far = partition_clock._FAR
    expected = believed([(min(max(time, -far), far), tick) for time, tick in stamps], Belief())
    edges = sorted({0, len(stamps), *(place % (len(stamps) + 1) for place in places)})
    clock, found = PartitionClock(SKEW, Belief(), UNTICKED), list[Belief]()
    for begin, end in pairwise(edges):
        found += taken(clock, stamps[begin:end])
    assert found == expected
    assert [a.time_us for a in found] == sorted(a.time_us for a in found)
    at = restart % (len(found) + 1)
    again = PartitionClock(SKEW, found[at - 1] if at else Belief(), UNTICKED)
    assert found[:at] + taken(again, stamps[at:]) == expected


# --- what a wrong clock costs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    partition: int
    true_us: int
    time_us: int
    tick: bool


@dataclass(frozen=True)
class Release:
    """The release of a row: by a true clock, how long it had waited, and the system time then."""

    partition: int
    offset: int
    waited_us: int
    system_us: int


def released(rows: list[Row], partitions: int) -> list[Release]:
    """Gives rows to a merge as they arrive. Returns the released ones, in order."""
    merge = Merge([(0, p) for p in range(partitions)], {}, SKEW)
    offsets, came_us = [0] * partitions, dict[tuple[int, int], int]()
    found: list[Release] = []
    system_us = NO_TIME
    for row in sorted(rows, key=lambda row: row.true_us):
        key = row.partition, offsets[row.partition]
        came_us[key] = row.true_us
        values = [0, *key, 0, row.time_us, RowKind.TICK if row.tick else RowKind.EVENT, 1, 1]
        merge.push(pa.record_batch([*([value] for value in values), [None]], SCHEMA))
        offsets[row.partition] += 1
        for partition, offset, time_us in merged(merge):
            system_us = max(system_us, time_us)
            found.append(Release(partition, offset, row.true_us - came_us[partition, offset], system_us))
    return found


def merged(merge: Merge) -> Iterator[tuple[int, int, int]]:
    for batch in merge.pull():
        yield from zip(*(batch.column(name).tolist() for name in ("partition", "offset", "time_us")), strict=True)


@st.composite
def live(draw: st.DrawFn, partitions: int, begin_us: int = 0, end_us: int = 4 * SKEW) -> list[Row]:
    """Returns events at any time, and ticks, as an engine writes them, in all partitions."""
    rows = [Row(p, us, us, tick=True) for us in range(begin_us, end_us, TICK) for p in range(partitions)]
    for _ in range(draw(st.integers(1, 25))):
        us = draw(st.integers(begin_us + CONFIRM + 2 * TICK, end_us - CONFIRM - 3 * TICK))
        rows.append(Row(draw(st.integers(0, partitions - 1)), us, us, tick=False))
    return sorted(rows, key=lambda row: (row.true_us, row.partition, not row.tick))


@examples(0.7)
@given(st.data(), st.integers(1, 3))
def test_one_wrong_time_of_any_size_delays_nothing_for_long(data: st.DataObject, partitions: int) -> None:
    rows = data.draw(live(partitions))
    at = data.draw(st.integers(partitions, len(rows) - 1))
    wrong = data.draw(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3 * SKEW, 8 * SKEW)))
    rows[at] = Row(rows[at].partition, rows[at].true_us, wrong, rows[at].tick)
    found = released(rows, partitions)
    bound = CONFIRM + max(CONFIRM, min(SKEW, abs(wrong - rows[at].true_us))) + 3 * TICK
    assert max(each.waited_us for each in found) <= bound
    last_us = max(row.true_us for row in rows)
    assert len(found) >= sum(row.true_us <= last_us - bound for row in rows)
    assert last_us - SKEW - TICK <= found[-1].system_us <= last_us + SKEW


@examples(0.4)
@given(st.data(), st.integers(1, 3), st.integers(0, CONFIRM - TICK), st.sampled_from([2 * SKEW, 30 * SKEW, 10**9 * SKEW]))
def test_a_clock_that_is_wrong_for_less_than_it_takes_to_confirm(
    data: st.DataObject, partitions: int, lasts_us: int, ahead_us: int
) -> None:
    """Thirty times the bound for a moment: nothing waits longer than that moment and the ticks around it."""
    begin = data.draw(st.integers(CONFIRM + 2 * TICK, 2 * SKEW))
    where = data.draw(st.sets(st.integers(0, partitions - 1), min_size=1))
    rows = [
        Row(row.partition, row.true_us, row.time_us + ahead_us, row.tick)
        if row.partition in where and begin <= row.true_us <= begin + lasts_us
        else row
        for row in data.draw(live(partitions))
    ]
    found = released(rows, partitions)
    assert max(each.waited_us for each in found) <= max(CONFIRM, lasts_us) + 2 * TICK
    assert len(found) >= sum(row.true_us <= 3 * SKEW for row in rows)


@examples(0.4)
@given(st.data(), st.integers(2, 3))
def test_honest_skew_keeps_the_order_and_costs_the_skew(data: st.DataObject, partitions: int) -> None:
    skews = [0] + [data.draw(st.integers(-SKEW, SKEW)) for _ in range(partitions - 1)]
    rows = [Row(r.partition, r.true_us, r.time_us + skews[r.partition], r.tick) for r in data.draw(live(partitions))]
    found = released(rows, partitions)
    waits = [each.waited_us for each in found]
    assert max(waits, default=0) <= max(skews) - min(skews) + TICK
    expected = sorted((row.time_us, row.partition, offset) for row, offset in zip(rows, offsets_of(rows), strict=True))
    assert [(each.partition, each.offset) for each in found] == [each[1:] for each in expected][: len(found)]


@examples(0.4)
@given(st.data(), st.integers(1, 3), st.integers(2 * SKEW, 100_000 * SKEW))
def test_a_clock_that_is_set_right_does_not_stop_time(data: st.DataObject, partitions: int, ahead_us: int) -> None:
    """The clocks of all partitions were ahead for long, as if their machine started with a wrong one, then fall back."""
    middle, end = 2 * SKEW, 6 * SKEW
    rows = [
        Row(r.partition, r.true_us, r.time_us + (ahead_us if r.true_us < middle else 0), r.tick)
        for r in data.draw(live(partitions, end_us=end))
    ]
    found = released(rows, partitions)
    assert max(each.waited_us for each in found) <= 4 * TICK
    assert found[-1].system_us >= min(middle + ahead_us + (end - middle) // 2, end) - 4 * TICK


@examples(0.4)
@given(st.data(), st.integers(1, 3), st.integers(2 * SKEW, 10_000 * SKEW))
def test_a_gap_keeps_its_length(data: st.DataObject, partitions: int, gap_us: int) -> None:
    """The input pauses for long: later rows have their own times, not the old one."""
    first, second = data.draw(live(partitions)), data.draw(live(partitions, 4 * SKEW + gap_us, 8 * SKEW + gap_us))
    rows = first + second
    found = released(rows, partitions)
    order = list(zip(rows, offsets_of(rows), strict=True))[: len(found)]
    assert [(each.partition, each.offset) for each in found] == [(row.partition, offset) for row, offset in order]
    assert [each.system_us for each in found] == [row.time_us for row, _ in order]
    assert max(each.waited_us for each in found[len(first) :]) <= CONFIRM + 2 * TICK


def offsets_of(rows: list[Row]) -> list[int]:
    counts: dict[int, int] = {}
    offsets = []
    for row in rows:
        offsets.append(counts.get(row.partition, 0))
        counts[row.partition] = offsets[-1] + 1
    return offsets


def test_old_input_without_ticks_goes_on() -> None:
    """A source that sent one event an hour before there was an engine."""
    stamps = [(hour * 3600 * SKEW, False) for hour in range(30)]
    found = taken(PartitionClock(SKEW, Belief(), UNTICKED), stamps)
    assert [each.time_us for each in found] == [time for time, _ in stamps[: 30 - UNTICKED]]


def test_without_a_bound_every_time_is_believed() -> None:
    clock = PartitionClock(None, Belief())
    assert [each.time_us for each in taken(clock, [(5, False), (10**15, False), (7, True)])] == [5, 10**15, 10**15]
