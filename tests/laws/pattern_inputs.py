"""Inputs of the kernels of a pattern window for the law Twin: random events of two sources, over open matches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa

from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.loops import slots
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Counters, Page
from hotspare.table.strings import StringTable
from hotspare.windows.pattern.columns import OrderedEvents
from hotspare.windows.pattern.loops import pattern
from hotspare.windows.pattern.loops import pattern_logic as k
from hotspare.windows.pattern.operator import KEPT, MATCHES, PatternOperator, PatternWork
from tests.laws.test_patterns import SECOND, Shape, Windows

Args = tuple[Any, ...]
LOGICS = (
    ("fby{2 seconds}(bind, more)", "k", ("bind", "more")),
    ("fby(one, seen:2{3 seconds}(any), notoccur{2 seconds}(one))", "", ("one", "any")),
    ("and(bind, or{2 seconds}(is:2(more), notoccur(one)), twice)", "k", ("bind", "twice")),
    ("fby{2 seconds}(not(not(real)), and(other, notoccur(least)))", "", ("real", "other")),
    ("fby(bind, or(apart, not(more)))", "k y", ("bind", "apart")),
    ("or(not(one), fby(any, one))", "", ("any", "one")),
    ("fby(any, seen:2(any))", "k", ("any", "any"), True),
)


def _operators() -> Iterator[PatternOperator]:
    shapes = [Shape(*each) for each in LOGICS]
    for by_event in (False, True):
        for each in ([shape] for shape in shapes):
            yield _operator(Windows(tuple(each), by_event))
        yield _operator(Windows(tuple(shapes[:3]), by_event))


def _operator(windows: Windows) -> PatternOperator:
    return cast(PatternOperator, next(node.operator for node in windows.plan.nodes if isinstance(node.operator, PatternOperator)))


def _chunk(random: np.random.Generator, first: int, count: int) -> Chunk:
    """Texts are codes 1 to 3 of the table that has them."""
    z = np.array([0.0, -0.0, 1.5, -2.0, np.nan])[random.integers(0, 5, count)].view(np.int64)
    rank = np.arange(first, first + 2 * count, 2)
    at = (rank - random.integers(0, 3, count)) * SECOND // 3
    columns = (rank, random.integers(1, 3, count), random.integers(0, 4, count), random.integers(1, 3, count), z, at)
    lanes = np.column_stack(columns).astype(np.int64)
    valid = random.random(lanes.shape) < 0.95
    valid[:, [0, 5]] = True
    lanes[~valid] = 0
    return Chunk(rank, np.full(count, 1, np.uint8), np.full(count, 1, np.uint8), lanes, valid)


def _work(operator: PatternOperator) -> Iterator[tuple[Page, OrderedEvents, PatternWork, StringTable]]:
    """Yields two batches in small pages, so that matches are moved."""
    random, strings = np.random.default_rng(20_261_123), StringTable()
    strings.intern(pa.array(["a", "b", "c"]))
    page = operator.open()
    matches = cast(MultiIndex, page.parts[MATCHES])
    matches.rows.pages.page_slots = 2
    matches.rows.pages.rows.state[[slots.PAGE_SLOTS, slots.SPARE]] = 2, 0
    pending = PatternWork()
    for _ in range(2):
        inputs = [_chunk(random, first, 12) for first in (0, 1)]
        time = np.arange(10, 36) * SECOND // 3
        beats = np.column_stack((np.array([8, 25]), time[[8, 25]])) if not operator._by_event else np.empty((0, 2), np.int64)
        taking, _ = operator._columns.evaluate_batch(inputs, Timeline(time, np.empty(0, np.int64)), strings)
        taking.events = taking.events._replace(beats=beats)
        pending.work = operator._allocate_work(cast(Counters, page.parts[KEPT]).values, pending.work)
        matches.begin_in_kernel()
        yield page, taking, pending, strings
        matches.settle()


_NO_TIME = Timeline(np.empty(0, np.int64), np.empty(0, np.int64))
"""A timeline that is not read: only user code needs it."""


def _is_done(taking: OrderedEvents, work: k.MatchWork) -> bool:
    counts = work.counts
    events, beats = len(taking.events.rank), len(taking.events.beats)
    return bool(counts[k.PHASE] == k.NEXT and counts[k.EVENTS_TAKEN] == events and counts[k.BEAT] == beats)


def _out(operator: PatternOperator, work: k.MatchWork, room: int) -> k.MatchOutputs:
    width = len(operator.schema)
    work.counts[k.MADE], work.counts[k.ROOM] = 0, room
    return k.MatchOutputs(np.zeros(room, np.int64), np.zeros((room, width), np.int64), np.zeros((room, width), np.bool_))


def run() -> Iterator[Args]:
    """Yields arguments with little room, so that the kernel is called several times."""
    for operator in _operators():
        for page, taking, pending, strings in _work(operator):
            matches = cast(MultiIndex, page.parts[MATCHES])
            while pending.work is not None and not _is_done(taking, pending.work):
                matches.make_more_room()
                out = _out(operator, pending.work, 3)
                yield matches.rows.pages.rows, matches.lists, operator._plan.program, taking.events, out, pending.work
                if pending.work.counts[k.PHASE] == k.OPEN and operator._plan.residuals:
                    pending.work = operator._evaluate_matches(page, taking, pending.work, pending, _NO_TIME, strings)


def collect_waiting_matches() -> Iterator[Args]:
    for operator in _operators():
        program = operator._plan.program
        for page, taking, pending, strings in _work(operator):
            matches, asked = cast(MultiIndex, page.parts[MATCHES]), 0
            while pending.work is not None and operator._plan.residuals and not _is_done(taking, pending.work):
                matches.make_more_room()
                out = _out(operator, pending.work, 3)
                state = pattern.run_pattern(matches.rows.pages.rows, matches.lists, program, taking.events, out, pending.work)
                if state == k.NEEDS_TRUTH:
                    asked += 1
                    room = np.zeros(asked % 3, np.int64)
                    yield matches.rows.pages.rows, matches.lists, program, taking.events, pending.work, room
                    pending.work = operator._evaluate_matches(page, taking, pending.work, pending, _NO_TIME, strings)


def collect_awaited_events() -> Iterator[Args]:
    """Yields each open match, and one that begins."""
    for operator in _operators():
        program = operator._plan.program
        for page, taking, pending, _strings in _work(operator):
            matches = cast(MultiIndex, page.parts[MATCHES])
            matches.make_more_room()
            assert pending.work is not None
            out = _out(operator, pending.work, 3)
            pattern.run_pattern(matches.rows.pages.rows, matches.lists, program, taking.events, out, pending.work)
            rows = matches.rows.pages.rows
            alive = matches.rows.pages.alive_slots()
            for p in range(len(program.patterns)):
                slots_of = np.append(alive[rows.lanes[alive, k.PATTERN] == p], k.NONE)
                yield rows, program, np.int64(p), slots_of, pending.work, np.zeros(len(slots_of), np.int64)
