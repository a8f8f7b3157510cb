"""Geometries by where they are, as a part of a page: a grid of cells of many sizes.

Each geometry stands in the cells of one level, whose cells are as large as its extent: four of them at most. A position lies in one
cell of each level, so it is compared with what stands there alone. Which levels are in use is counted. What is larger than
the largest cells, or goes around the sphere, stands in one cell of a level for all.

    key | level, x, y of the cell | x, y, radius | text of the polygon | description | number, by which geometries arrived | others
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hotspare.model.events import Flag, Opcode
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Counters
from hotspare.table.relation import Shape

Doubles = npt.NDArray[np.float64]

KEY, LEVEL, CELL_X, CELL_Y, X, Y, RADIUS, DATA, DESCRIPTION, NUMBER = range(10)
WIDTH = 10
"""Of what every geometry has."""
LEVELS = 64
_FINEST = -40
"""Power of two of the smallest cells; that of the largest is `LEVELS - 2` more."""
_ALL = LEVELS - 1
"""The level of what stands everywhere."""
_FAR = 2.0**62


@dataclass(frozen=True, slots=True)
class Extents:
    """Of each geometry the smallest and the largest x and y at which it may be met; an infinite one is everywhere."""

    x1: Doubles
    y1: Doubles
    x2: Doubles
    y2: Doubles


@dataclass(frozen=True, slots=True)
class Geometries:
    """Rows of geometries, whose cells are not known yet, and what is done with each: `opcode` is INSERT or SAFE_DELETE."""

    rank: Int64s
    opcode: npt.NDArray[np.uint8]
    lanes: Int64s
    valid: Bools
    extents: Extents


def geometry_index(coded: tuple[int, ...], others: int = 0) -> MultiIndex:
    """Without a geometry. `coded`: which columns are codes of the string table; `others`: how many columns there are beside."""
    return MultiIndex(Shape(WIDTH + others, (KEY, LEVEL, CELL_X, CELL_Y), coded, (LEVEL, CELL_X, CELL_Y)))


def level_counts() -> Counters:
    """How many geometries stand on each level, and how many ever came."""
    return Counters(LEVELS + 1)


def change(index: MultiIndex, counts: Int64s, given: Geometries, timeline: Timeline) -> None:
    """Geometries come and go, in order. One that goes has the values with which it came."""
    extents = given.extents
    size = np.maximum(extents.x2 - extents.x1, extents.y2 - extents.y1)
    power = np.frexp(np.where(np.isfinite(size), size, 0.0))[1]
    level = np.clip(power - _FINEST, 0, _ALL).astype(np.int64)
    level[~np.isfinite(size)] = _ALL
    signs = np.where(given.opcode == Opcode.INSERT, 1, -1)
    np.add.at(counts, level, signs)
    x1, y1, x2, y2 = (_cells(values, level) for values in (extents.x1, extents.y1, extents.x2, extents.y2))
    rows, corners = [], ((x1, y1), (x2, y1), (x1, y2), (x2, y2))
    for number, (x, y) in enumerate(corners):
        is_new = np.ones(len(level), np.bool_)
        for other_x, other_y in corners[:number]:
            is_new &= (x != other_x) | (y != other_y)
        some = np.flatnonzero(is_new)
        rows.append(np.column_stack([some, x[some], y[some]]))
    placed = np.concatenate(rows)
    placed = placed[np.argsort(placed[:, 0], kind="stable")]
    row = placed[:, 0]
    lanes, valid = given.lanes[row], given.valid[row]
    lanes[:, LEVEL], lanes[:, CELL_X], lanes[:, CELL_Y] = level[row], placed[:, 1], placed[:, 2]
    valid[:, [LEVEL, CELL_X, CELL_Y]] = True
    flags = np.full(len(row), Flag.NORMAL, np.uint8)
    index.change(Chunk(given.rank[row], given.opcode[row], flags, lanes, valid), Timeline(timeline.time_us, _NO_BEATS))


def near(index: MultiIndex, counts: Int64s, x: Doubles, y: Doubles) -> tuple[Int64s, Int64s]:
    """(position, slot of `index.rows`) of each geometry whose cell a position lies in."""
    levels = np.flatnonzero(counts[:LEVELS] > 0)
    if not len(levels) or not len(x):
        return _NO_BEATS, _NO_BEATS
    level = np.repeat(levels, len(x))
    probes = np.column_stack([level, _cells(np.tile(x, len(levels)), level), _cells(np.tile(y, len(levels)), level)])
    probe, slot = index.found(np.ascontiguousarray(probes))
    return probe % len(x), slot


def _cells(values: Doubles, level: Int64s) -> Int64s:
    cells = np.floor(np.ldexp(np.where(np.isfinite(values), values, 0.0), -(level + _FINEST).astype(np.int32)))
    return np.where(level == _ALL, 0, np.clip(cells, -_FAR, _FAR).astype(np.int64))


_NO_BEATS: Int64s = np.empty(0, np.int64)
