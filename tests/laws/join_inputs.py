"""Inputs of the kernels of a join for the law Twin: random changelogs of both sides, over existing rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hotspare.model.events import Opcode
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.loops import multi_index, relation, slots
from hotspare.table.loops.multi_index import Lists
from hotspare.table.multi_index import MultiIndex
from hotspare.table.relation import Shape
from hotspare.windows.join import loops as k

Args = tuple[Any, ...]


def _index() -> MultiIndex:
    """Returns an index in small pages, so that rows are moved."""
    index = MultiIndex(Shape(3, (0,), (), (1,)))
    index.rows.pages.page_slots = 2
    index.rows.pages.rows.state[[slots.PAGE_SLOTS, slots.SPARE]] = 2, 0
    return index


def _events(random: np.random.Generator, index: MultiIndex, count: int, first: int) -> k.SideEvents:
    """Returns upserts and deletes of keys 0 to 5, resolved."""
    opcode = random.choice(np.array([Opcode.UPSERT, Opcode.UPSERT, Opcode.SAFE_DELETE], np.uint8), count)
    lanes = np.column_stack([random.integers(0, 6, count), random.integers(0, 3, (count, 2))])
    valid = np.column_stack([np.ones(count, np.bool_), random.random((count, 2)) < 0.8])
    flags = random.integers(1, 2, count).astype(np.uint8)
    chunk = Chunk(np.arange(first, first + count), opcode, flags, lanes * valid, valid)
    made = index.resolve_chunk(chunk, Timeline(np.zeros(first + count, np.int64), np.empty(0, np.int64))).output_records
    rank, slot = made[:, relation.RANK].copy(), made[:, relation.SLOT].copy()
    opcodes, whole = (made[:, column].astype(np.uint8) for column in (relation.OPCODE, relation.FLAGS))
    return k.SideEvents(rank, opcodes, whole, slot, index.rows.lanes, index.rows.valid, np.array([1]))


def _rules(keeps: tuple[int, int], key: int, once: int) -> np.ndarray:
    rules = np.zeros((2, k.RULES_WIDTH), np.int64)
    for side in (0, 1):
        is_fact = once and side == key
        rules[side] = keeps[side], keeps[1 - side], side == key, not is_fact, is_fact, once and not is_fact
    return rules


def _meetings() -> Iterator[tuple[Lists, Lists, np.ndarray, k.SideEvents, k.SideEvents, np.ndarray, np.ndarray]]:
    """Yields lists, rules, events of both sides, and their order."""
    random = np.random.default_rng(20_261_122)
    for keeps, key, once in (((0, 0), -1, 0), ((1, 0), 0, 0), ((1, 1), -1, 0), ((0, 1), 1, 0), ((1, 0), 0, 1)):
        indexes = [_index(), _index()]
        for first in (0, 20):
            lefts, rights = (_events(random, index, 20, first) for index in indexes)
            order = np.argsort(np.concatenate((lefts.rank, rights.rank)), kind="stable")
            side = np.repeat([0, 1], [len(lefts.rank), len(rights.rank)])[order]
            row = np.concatenate((np.arange(len(lefts.rank)), np.arange(len(rights.rank))))[order]
            yield indexes[0].lists, indexes[1].lists, _rules(keeps, key, once), lefts, rights, side, row
            for index in indexes:
                index.settle()


def join() -> Iterator[Args]:
    """Yields arguments with room for all outputs, and with so little that the kernel is called several times."""
    for left, right, rules, lefts, rights, side, row in _meetings():
        counts = np.zeros(k.COUNTS_WIDTH, np.int64)
        while counts[k.AT] < len(row):
            counts[[k.MADE, k.ROOM]] = 0, 4 if counts[k.AT] else 3
            yield left, right, k.JoinOutputs(np.zeros((6, k.OUTPUT_WIDTH), np.int64), counts), rules, lefts, rights, side, row


def gather_matched() -> Iterator[Args]:
    for left, right, rules, lefts, rights, side, row in _meetings():
        out = k.JoinOutputs(np.zeros((900, k.OUTPUT_WIDTH), np.int64), np.zeros(k.COUNTS_WIDTH, np.int64))
        out.counts[k.ROOM] = 898
        k.run_join(left, right, out, rules, lefts, rights, side, row)
        made = out.join_rows[: int(out.counts[k.MADE])]
        columns, otherwise = np.array([0, 5, -1, 4]), np.array([3, -1, -1, 1])
        lanes, valid = np.ones((len(made), 4), np.int64), np.ones((len(made), 4), np.bool_)
        yield made, lefts, rights, columns, otherwise, lanes, valid


def _facts() -> Iterator[tuple[Lists, k.SideEvents, np.ndarray, np.ndarray]]:
    """Yields the rows of the other side, resolved facts, and room for the rows that each of them meets."""
    random, index = np.random.default_rng(20_261_123), _index()
    _events(random, index, 20, 0)
    index.settle()
    for count in (1, 40):
        lanes, valid = random.integers(0, 4, (count, 3)), random.random((count, 3)) < 0.9
        ones = np.ones(count, np.uint8)
        facts = k.SideEvents(np.arange(count), ones, ones, np.arange(count), lanes * valid, valid, np.array([2]))
        yield index.lists, facts, np.zeros(count, np.int64), np.zeros(count, np.int64)


def match_inserts() -> Iterator[Args]:
    for others, facts, event, met in _facts():
        for keeps_own in (0, 1):
            yield others, facts, np.int64(keeps_own), event, met


def gather_matched_inserts() -> Iterator[Args]:
    for others, facts, event, met in _facts():
        count = int(k.match_inserts(others, facts, np.int64(1), event, met))
        for begin in (0, 3):
            lanes, valid = np.ones((count, 4), np.int64), np.ones((count, 4), np.bool_)
            yield event[:count], met[:count], facts, others, np.array([0, 5, -1, 4]), np.int64(begin), lanes, valid


def fill_lists() -> Iterator[Args]:
    random = np.random.default_rng(7)
    for count in (1, 20):
        index = _index()
        _events(random, index, count, 0)
        yield index.lists, index.rows.pages.slots_in_arrival_order(), np.int64(0)


def follow_all() -> Iterator[Args]:
    random = np.random.default_rng(8)
    index = _index()
    for first in (0, 20):
        events = _events(random, index, 20, first)
        yield index.lists, events.opcode, events.row, np.int64(0)
        index.settle()


def find_lists() -> Iterator[Args]:
    random = np.random.default_rng(9)
    index = _index()
    events = _events(random, index, 20, 0)
    multi_index.follow_all(index.lists, events.opcode, events.row, np.int64(0))
    yield index.lists, np.arange(5).reshape(-1, 1), np.array([0]), np.zeros(5, np.int64)


def follow_moves() -> Iterator[Args]:
    """Yields the rows of one list, all of which are moved, and some of them again."""
    for slots_moved in ((), (1,), (0, 1, 2)):
        index = MultiIndex(Shape(3, (0,), (), (1,)))
        lists = index.lists._replace(links=np.zeros((8, 3), np.int64), lanes=np.zeros((8, 3), np.int64))
        lists = lists._replace(valid=np.ones((8, 3), np.bool_), counts=np.array([0, len(slots_moved)]))
        multi_index.fill_lists(lists, np.arange(3), np.int64(0))
        moved = [(slot, 4 + at, 2 * at) for at, slot in enumerate(slots_moved)]
        lists = lists._replace(moved=np.array(moved, np.int64).reshape(-1, 3))
        yield lists, np.int64(2)


def _rows_of_a_list(count: int) -> Lists:
    """Returns rows that are not yet in their list; their numbers of arrival are in no order. Every ninth has a null."""
    lists, ones = MultiIndex(Shape(3, (0,), (), (1,))).lists, np.ones((count, 3), np.bool_)
    ones[::9, 1] = False
    order = np.random.default_rng(5).permutation(count)
    return lists._replace(links=np.zeros((count, 3), np.int64), lanes=np.zeros((count, 3), np.int64), valid=ones, order=order)


def admit_all() -> Iterator[Args]:
    """Yields rows to admit before all others, between them, after them, and too far from both ends."""
    for count in (1, 3, 60):
        yield _rows_of_a_list(count), np.arange(count), np.int64(0)


def first_in_order() -> Iterator[Args]:
    """Yields lists that are in order, and some that are not."""
    for count in (3, 60, 128):
        lists = _rows_of_a_list(count)
        multi_index.admit_all(lists, np.arange(count), np.int64(0))
        yield lists, np.zeros((1, 1), np.int64), np.ones((1, 1), np.bool_), np.int64(0), np.array([0])
