"""Inputs for the law Twin: kernels of relations whose groups keep their newest rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.loops import groups as k
from hotspare.table.loops import relation, slots
from hotspare.table.relation import GroupLists, Relation, Shape
from tests.laws.text_inputs import crowded_index

Args = tuple[Any, ...]
_SHAPE = Shape(3, (0,), (), (1, 2))


class _Tapped(GroupLists):
    """Lists that record the arguments of the kernel before each call."""

    taps: list[Args]

    def relate(self, out: Any, policy: Any, given: Any) -> Any:
        self._pages.record_moves()
        self._follow_pages()
        self.taps.append(copy.deepcopy((self._pages.rows, self._groups, out, policy, given)))
        return super().relate(out, policy, given)


def _chunk(random: np.random.Generator, count: int, *, inserts: int) -> tuple[Chunk, Timeline]:
    """Returns events that mostly have a group; with `inserts`, each has a new key, from this number on."""
    opcode = random.choice([1, 1, 2, 3, 3, 4, 5], count).astype(np.uint8)
    rank = np.arange(count) * 2
    for i in np.flatnonzero(random.random(count - 1) < 0.1).tolist():
        opcode[i], opcode[i + 1] = 6, 4
        rank[i + 1] = rank[i]
    key = random.integers(-6, 6, count)
    if inserts >= 0:
        opcode, rank, key = np.ones(count, np.uint8), np.arange(count) * 2, np.arange(inserts, inserts + count)
    lanes = np.column_stack([key, random.integers(0, 2, count), random.integers(0, 3, count)])
    valid = random.random((count, 3)) < 0.9
    lanes[~valid] = 0
    flags = random.choice([1, 2, 3], count).astype(np.uint8)
    return Chunk(rank, opcode, flags, lanes, valid), Timeline(np.zeros(2 * count, np.int64), np.empty(0, np.int64))


def _relations(new_keys: int, evicts_first: int = 0) -> Iterator[tuple[Relation, list[Args]]]:
    """Yields a relation after each of some chunks; in small pages, so that rows are moved."""
    random = np.random.default_rng(20_261_123)
    relation_ = Relation(_SHAPE, relation.Policy(relation.COUNT_OF_GROUP, 2, 1, 0, new_keys, 0, evicts_first))
    pages = relation_.pages
    pages.page_slots = 4
    pages.rows.state[[slots.PAGE_SLOTS, slots.SPARE]] = 4, 0
    lists = _Tapped(pages)
    relation_._groups, lists.taps = lists, []
    for batch in range(4):
        inserts = batch * 30 if new_keys and batch < 3 else -1
        chunk, timeline = _chunk(random, 30, inserts=inserts)
        if new_keys and inserts < 0:
            chunk.opcode[chunk.opcode == 1] = 3
        relation_.change(chunk, timeline, rows_max=12)
        while not relation_.is_done:
            relation_.continue_change(12)
        yield relation_, lists.taps
        lists.taps.clear()


def relate_groups() -> Iterator[Args]:
    for new_keys, evicts_first in ((0, 0), (0, 1), (1, 0)):
        for _, taps in _relations(new_keys, evicts_first):
            yield from taps


def fill_groups() -> Iterator[Args]:
    """Yields rows of new lists, and of lists without room."""
    for relation_, _ in _relations(0):
        lists = GroupLists(relation_.pages)
        lists._follow_pages()
        given = lists._groups.lists
        for index in (given.by_condition, crowded_index()):
            links = np.zeros((len(given.lanes), k.LINKS_WIDTH), np.int64)
            yield (
                copy.deepcopy(given._replace(by_condition=index, links=links)),
                relation_.pages.slots_in_arrival_order(),
                np.int64(0),
            )


def admit_groups() -> Iterator[Args]:
    """Yields rows that are admitted to filled lists: before the others, between them, after them, and too far from both ends; and
    lists whose index has no room."""
    random = np.random.default_rng(6)
    for count, groups in ((1, 1), (60, 1), (90, 3)):
        pages = Relation(_SHAPE, relation.Policy(relation.COUNT_OF_GROUP, 2, 1, 0, 0)).pages
        lists = GroupLists(pages)._groups.lists
        lanes = np.zeros((count, 3), np.int64)
        lanes[:, 1] = np.arange(count) % groups
        given = lists._replace(
            links=np.zeros((count, k.LINKS_WIDTH), np.int64),
            lanes=lanes,
            valid=np.ones((count, 3), np.bool_),
            order=random.permutation(count),
        )
        for index in (given.by_condition, crowded_index()):
            yield copy.deepcopy(given._replace(by_condition=index)), np.arange(count), np.int64(0)
