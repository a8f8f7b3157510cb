"""Plane and sphere: distances and polygons, for whole arrays of positions, and the index that finds geometries by place.

Only sums, products, quotients and square roots are used, which give the same bits on every machine; sines are computed from their
series.

Positions are (x, y): on a sphere longitude and latitude in degrees, with distances in metres. To decide what is inside a polygon,
degrees are treated as a plane; a distance to an edge is measured on the plane that touches the sphere at the position.

The index is a grid of cells of many sizes. Each geometry is stored in the cells of one level, whose cells are as large as its
extent: in at most four of them. A position lies in one cell of each level, and is compared only with the geometries of these cells.
The geometries of each level are counted, and empty levels are skipped. A geometry larger than the largest cells, or around the
sphere, is in the one cell of the last level.

    key | level, x, y of the cell | x, y, radius | text of the polygon | description | arrival number of the geometry | others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from hotspare.model.events import Flag, Opcode
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Counters
from hotspare.table.relation import Shape

Doubles = npt.NDArray[np.float64]

EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of the earth in metres, which is the radius of the sphere."""
METRES_PER_DEGREE = EARTH_RADIUS_M * np.pi / 180
CORNERS_MAX = 1 << 16
_PAIRS_MAX = 1 << 20
"""The largest number of pairs of positions and edges that are computed in one step."""
_TERMS = 10
_ASIN_STEPS = 6
COORDINATE_MAX = 1e15
"""Limit for corners, centres and radiuses: squares of their differences are far below the largest double."""
KEY, LEVEL, CELL_X, CELL_Y, X, Y, RADIUS, DATA, DESCRIPTION, NUMBER = range(10)
WIDTH = 10
"""The number of columns that the row of every geometry has."""
LEVELS = 64
_FINEST = -40
"""Exponent of the size of the smallest cells, 2**_FINEST; each level has cells twice as large as the one before."""
_ALL = LEVELS - 1
"""The level of geometries that are compared with every position."""
_FAR = 2.0**62
_NO_BEATS: Int64s = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Polygon:
    """A polygon by its corners, in order; the last corner is joined with the first."""

    x: Doubles
    y: Doubles

    @property
    def centroid(self) -> tuple[float, float]:
        """The centroid (x, y) of the polygon's area, or of its corners if the area is 0."""
        x, y, x2, y2 = self.x, self.y, np.roll(self.x, -1), np.roll(self.y, -1)
        x0, y0 = float(x[0]), float(y[0])
        cross = (x - x0) * (y2 - y0) - (x2 - x0) * (y - y0)
        area = _sum(cross)
        if area == 0:
            return _sum(x) / len(x), _sum(y) / len(y)
        return x0 + _sum((x + x2 - 2 * x0) * cross) / (3 * area), y0 + _sum((y + y2 - 2 * y0) * cross) / (3 * area)


def _sum(values: Doubles) -> float:
    """Returns the sum, added in order. The order in which numpy's own sum adds depends on the length of the array."""
    return float(np.cumsum(values)[-1])


@lru_cache(maxsize=1024)
def polygon_of(text: str, separator: str) -> Polygon | None:
    """Parses `x y x y ...` into a polygon. Returns None for another text, or fewer than three corners."""
    corners = _corners(_words(text, separator))
    if corners is None:
        return None
    x, y = corners
    if x[0] == x[-1] and y[0] == y[-1]:
        x, y = x[:-1], y[:-1]
    return Polygon(x, y) if len(x) >= 3 else None


def centre_of(text: str, separator: str) -> tuple[float, float] | None:
    """Parses the centre of a circle, two numbers with `separator` between them. Returns None if the text is not a single point."""
    words = _words(text, separator, 2)
    corners = _corners(words) if len(words) == 2 else None
    return None if corners is None else (float(corners[0][0]), float(corners[1][0]))


def _words(text: str, separator: str, cuts: int = -1) -> list[str]:
    """Splits a text at `separator`, at most `cuts` times (-1: no limit); the last word is the rest of the text."""
    return text.split(None if separator.isspace() else separator, cuts)


def _corners(words: Sequence[str]) -> tuple[Doubles, Doubles] | None:
    if len(words) % 2 or not 2 <= len(words) <= 2 * CORNERS_MAX:
        return None
    try:
        numbers = np.array([float(word) for word in words], np.float64)
    except ValueError:
        return None
    if not np.isfinite(numbers).all() or (np.abs(numbers) > COORDINATE_MAX).any():
        return None
    return numbers[0::2], numbers[1::2]


def plane_distance(x: Doubles, y: Doubles, to_x: Doubles, to_y: Doubles) -> Doubles:
    found: Doubles = np.sqrt((x - to_x) * (x - to_x) + (y - to_y) * (y - to_y))
    return found


def sphere_distance(x: Doubles, y: Doubles, to_x: Doubles, to_y: Doubles) -> Doubles:
    """Returns the distance along the great circle, in metres, between positions in degrees."""
    half_y, half_x = sine((to_y - y) / 2), sine((to_x - x) / 2)
    h = half_y * half_y + sine(90.0 - y) * sine(90.0 - to_y) * half_x * half_x
    return 2 * EARTH_RADIUS_M * _arcsine(np.sqrt(np.clip(h, 0.0, 1.0)))


def sine(degrees: Doubles) -> Doubles:
    """Returns the sine of each angle, which is in degrees."""
    turned = np.abs(degrees - 360.0 * np.floor(degrees / 360.0 + 0.5))
    sign = np.where(degrees - 360.0 * np.floor(degrees / 360.0 + 0.5) < 0, -1.0, 1.0)
    return sign * _series(np.minimum(turned, 180.0 - turned) * (np.pi / 180))


def _series(angle: Doubles) -> Doubles:
    """Returns the sine of angles in radians, from 0 to a quarter turn."""
    square, total = angle * angle, np.ones_like(angle)
    for term in range(_TERMS, 0, -1):
        total = 1.0 - square / (2 * term * (2 * term + 1)) * total
    return angle * total


def _arcsine(value: Doubles) -> Doubles:
    """Returns the arcsine in radians, for values from 0 to 1. Uses Newton's steps; near 1, where the sine is flat, the angle is
    computed from half the angle.
    """
    is_flat = value > 0.7
    sought = np.where(is_flat, np.sqrt((1.0 - value) / 2), value)
    angle = sought.copy()
    for _ in range(_ASIN_STEPS):
        angle = angle - (_series(angle) - sought) / _series(np.pi / 2 - angle)
    return np.where(is_flat, np.pi / 2 - 2 * angle, angle)


def is_inside_by_crossing(polygon: Polygon, x: Doubles, y: Doubles) -> npt.NDArray[np.bool_]:
    """Returns for each position whether a ray from it to the right crosses the edge an odd number of times."""
    ups, downs = _passes(polygon, x, y)
    odd: npt.NDArray[np.bool_] = (ups + downs) % 2 == 1
    return odd


def is_inside_by_winding(polygon: Polygon, x: Doubles, y: Doubles) -> npt.NDArray[np.bool_]:
    """Returns for each position whether the edge of the polygon winds around it."""
    ups, downs = _passes(polygon, x, y)
    around: npt.NDArray[np.bool_] = ups != downs
    return around


def _passes(polygon: Polygon, x: Doubles, y: Doubles) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns how often the edge passes to the right of each position, upwards and downwards."""
    x1, y1, x2, y2 = polygon.x, polygon.y, np.roll(polygon.x, -1), np.roll(polygon.y, -1)
    ups, downs = np.zeros(len(x), np.int64), np.zeros(len(x), np.int64)
    block = max(1, _PAIRS_MAX // len(x1))
    for begin in range(0, len(x), block):
        px, py = x[begin : begin + block, None], y[begin : begin + block, None]
        left = (x2 - x1) * (py - y1) - (px - x1) * (y2 - y1)
        up, down = (y1 <= py) & (y2 > py) & (left > 0), (y1 > py) & (y2 <= py) & (left < 0)
        ups[begin : begin + block], downs[begin : begin + block] = up.sum(axis=1), down.sum(axis=1)
    return ups, downs


def edge_distance(polygon: Polygon, x: Doubles, y: Doubles, scale_x: Doubles, scale_y: float) -> Doubles:
    """Returns the distance of each position to the closest segment of the edge. Lengths along x are multiplied by the `scale_x` of
    the position, lengths along y by `scale_y`.
    """
    x1, y1, x2, y2 = polygon.x, polygon.y, np.roll(polygon.x, -1), np.roll(polygon.y, -1)
    found = np.empty(len(x))
    block = max(1, _PAIRS_MAX // len(x1))
    for begin in range(0, len(x), block):
        rows = slice(begin, begin + block)
        scale = scale_x[rows, None]
        ax, ay = (x1 - x[rows, None]) * scale, (y1 - y[rows, None]) * scale_y
        dx, dy = (x2 - x1) * scale, np.broadcast_to((y2 - y1) * scale_y, ax.shape)
        length = dx * dx + dy * dy
        along = np.clip(np.divide(-(ax * dx + ay * dy), length, out=np.zeros(ax.shape), where=length > 0), 0.0, 1.0)
        nearest_x, nearest_y = ax + along * dx, ay + along * dy
        found[rows] = np.sqrt((nearest_x * nearest_x + nearest_y * nearest_y).min(axis=1))
    return found


@dataclass(frozen=True, slots=True)
class Extents:
    """The box in which a position may meet a geometry, for each geometry: x from `x1` to `x2`, y from `y1` to `y2`. The box is
    infinite if any position may meet the geometry.
    """

    x1: Doubles
    y1: Doubles
    x2: Doubles
    y2: Doubles


@dataclass(frozen=True, slots=True)
class Geometries:
    """Changes of geometries, whose cells are not computed yet. `opcode` is INSERT or SAFE_DELETE; `lanes` int64[., WIDTH or more]
    has the columns KEY to the last one of the index; `extents` has a box per change.
    """

    rank: Int64s
    opcode: npt.NDArray[np.uint8]
    lanes: Int64s
    valid: Bools
    extents: Extents


def geometry_index(coded: tuple[int, ...], others: int = 0) -> MultiIndex:
    """Returns an empty index of geometries by cell. `coded`: columns with codes of strings; `others`: the number of columns after
    the first WIDTH.
    """
    return MultiIndex(Shape(WIDTH + others, (KEY, LEVEL, CELL_X, CELL_Y), coded, (LEVEL, CELL_X, CELL_Y)))


def level_counts() -> Counters:
    """Returns counters for the geometries of each level, and, at LEVELS, for all that ever arrived."""
    return Counters(LEVELS + 1)


def change_geometries(index: MultiIndex, counts: Int64s, given: Geometries, timeline: Timeline) -> None:
    """Inserts and deletes geometries in order, in `index` and in `counts`. A delete must have the values that were inserted."""
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


def find_near_geometries(index: MultiIndex, counts: Int64s, x: Doubles, y: Doubles) -> tuple[Int64s, Int64s]:
    """Returns candidates: (position, slot of `index.rows`) for each geometry in a cell that contains a position."""
    levels = np.flatnonzero(counts[:LEVELS] > 0)
    if not len(levels) or not len(x):
        return _NO_BEATS, _NO_BEATS
    level = np.repeat(levels, len(x))
    probes = np.column_stack([level, _cells(np.tile(x, len(levels)), level), _cells(np.tile(y, len(levels)), level)])
    probe, slot = index.find_matches(np.ascontiguousarray(probes))
    return probe % len(x), slot


def _cells(values: Doubles, level: Int64s) -> Int64s:
    cells = np.floor(np.ldexp(np.where(np.isfinite(values), values, 0.0), -(level + _FINEST).astype(np.int32)))
    return np.where(level == _ALL, 0, np.clip(cells, -_FAR, _FAR).astype(np.int64))
