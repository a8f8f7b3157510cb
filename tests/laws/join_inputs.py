"""Inputs of the kernels of a join for the law Twin: random changelogs of both sides, over stores that hold something already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hotspare.engine.kernels import join as k
from hotspare.engine.kernels.multi_index import Store
from hotspare.engine.state.multi_index import MultiIndex
from hotspare.engine.state.relation import Shape
from hotspare.model.events import Opcode

Args = tuple[Any, ...]
SHAPE = Shape(3, (0,), ())


def _events(random: np.random.Generator, held: dict[int, tuple[list[int], list[bool]]], count: int, first: int) -> k.Events:
    """Inserts, update blocks and deletes that can be, of keys 0 to 5; `held` is what is there, and follows."""
    rows: list[tuple[int, int, list[int], list[bool]]] = []
    for rank in range(first, first + count):
        key = int(random.integers(0, 6))
        new = [key, *random.integers(0, 3, 2).tolist()], [True, *(random.random(2) < 0.8).tolist()]
        if key not in held:
            rows.append((rank, Opcode.INSERT, *new))
            held[key] = new
        elif random.random() < 0.6:
            rows += [(rank, Opcode.UPDATE_BLOCK, *new), (rank, Opcode.DELETE, *held[key])]
            held[key] = new
        else:
            rows.append((rank, Opcode.DELETE, *held.pop(key)))
    rank, opcode, lanes, valid = zip(*rows, strict=True)
    flags = random.integers(1, 8, len(rows)).astype(np.uint8)
    known = np.array(valid, np.bool_)
    return k.Events(np.array(rank), np.array(opcode, np.uint8), flags, np.array(lanes) * known, known, np.array([1]))


def _rules(keeps: tuple[int, int], key: int, once: int) -> np.ndarray:
    rules = np.zeros((2, k.RULES_WIDTH), np.int64)
    for side in (0, 1):
        is_fact = once and side == key
        rules[side] = keeps[side], keeps[1 - side], side == key, not is_fact, is_fact, once and not is_fact
    return rules


def _meetings() -> Iterator[tuple[Store, Store, np.ndarray, k.Events, k.Events, np.ndarray, np.ndarray]]:
    """Stores, rules, events of both sides, and their order."""
    random = np.random.default_rng(20_261_122)
    for keeps, key, once in (((0, 0), -1, 0), ((1, 0), 0, 0), ((1, 1), -1, 0), ((0, 1), 1, 0), ((1, 0), 0, 1)):
        sides: list[dict[int, Any]] = [{}, {}]
        indexes = [MultiIndex(SHAPE, (1,)), MultiIndex(SHAPE, (1,))]
        for first in (0, 10):
            lefts, rights = (_events(random, held, 10, first) for held in sides)
            for index, events in zip(indexes, (lefts, rights), strict=True):
                index.reserve(len(events.rank))
            ranks = np.concatenate((lefts.rank, rights.rank))
            order = np.argsort(ranks, kind="stable")
            side = np.repeat([0, 1], [len(lefts.rank), len(rights.rank)])[order]
            row = np.concatenate((np.arange(len(lefts.rank)), np.arange(len(rights.rank))))[order]
            yield indexes[0].store, indexes[1].store, _rules(keeps, key, once), lefts, rights, side, row
            for index in indexes:
                index.settle()


def join() -> Iterator[Args]:
    """With room for all, and with so little that it has to go on several times."""
    for left, right, rules, lefts, rights, side, row in _meetings():
        counts = np.zeros(k.COUNTS_WIDTH, np.int64)
        while counts[k.AT] < len(row):
            counts[[k.MADE, k.ROOM]] = 0, 4 if counts[k.AT] else 3
            yield left, right, k.Meeting(np.zeros((6, k.MADE_WIDTH), np.int64), counts), rules, lefts, rights, side, row


def gather_met() -> Iterator[Args]:
    for left, right, rules, lefts, rights, side, row in _meetings():
        out = k.Meeting(np.zeros((500, k.MADE_WIDTH), np.int64), np.zeros(k.COUNTS_WIDTH, np.int64))
        out.counts[k.ROOM] = 498
        k.join(left, right, out, rules, lefts, rights, side, row)
        made = out.made[: int(out.counts[k.MADE])]
        columns, otherwise = np.array([0, 5, -1, 4]), np.array([3, -1, -1, 1])
        lanes, valid = np.ones((len(made), 4), np.int64), np.ones((len(made), 4), np.bool_)
        yield made, lefts, rights, left, right, columns, otherwise, lanes, valid


def fill_store() -> Iterator[Args]:
    random = np.random.default_rng(7)
    for count in (0, 1, 20):
        store = MultiIndex(SHAPE, (1,))._fresh(count)
        store.lanes[:count] = random.integers(0, 3, (count, 3))
        store.lanes[:count, 0] = np.arange(count)
        store.valid[:count] = random.random((count, 3)) < 0.8
        yield store, np.int64(count)
