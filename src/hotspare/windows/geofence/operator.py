"""Geofence window (SPEC A39): positions are emitted with the geometries that they meet on arrival.

A circle is met by positions at most its radius and the lookup distance away from its centre. A polygon is met by positions inside,
and with proximity also by positions within that distance of its edge. A position is emitted with the closest of these, or with all,
a row for each; without any it is emitted alone. Later changes of the geometries do not affect it: a position is compared when it is
inserted or updated. A delete carries the values that were emitted for its position.

    geometries: input rows ─► cells: by place          positions ─► results: counts ─► rows: output rows

Events of both inputs are processed in order. Geometries are always kept; positions, and the rows emitted for them, only if they may
change. A row of the geometry input that is not a geometry is kept and never met; a bad event reports it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from hotspare.model.events import Flag, Opcode
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows.changelog import RELATION, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline, UInt8s
from hotspare.rows.ordering import merged_order
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.lanes import CODED, coded_columns, to_arrow
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Counters, Page, Pending
from hotspare.table.relation import Relation, Shape
from hotspare.table.strings import StringTable
from hotspare.table.unloaded import LoadMode
from hotspare.windows.geofence import geometry as g
from hotspare.windows.geofence.declaration import (
    Coordinates,
    DistanceTo,
    GeofenceWindow,
    Inside,
    Order,
    Proximity,
    Results,
    inputs_of,
)
from hotspare.windows.geofence.geometry import (
    COORDINATE_MAX,
    METRES_PER_DEGREE,
    Doubles,
    Polygon,
    centre_of,
    edge_distance,
    is_inside_by_crossing,
    is_inside_by_winding,
    plane_distance,
    polygon_of,
    sine,
    sphere_distance,
)
from hotspare.windows.shared.contract import BadReason, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import bad_events, refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import GIVEN, ROWS, needs_index_error, unresolved_input_error

GEOMETRIES, CELLS, LEVELS, COUNTS, PENDING = "geometries", "cells", "levels", "results", "pending"
"""Parts of the page, in addition to the indexes of positions and of output rows: rows of geometries, their cells, counts per level,
counts of results, and work in progress.
"""
POSITIONS_MAX = 1024
"""The most rows of one input that are processed in one step."""
_MARGIN = 1.0 + 1e-9
"""Factor that makes extents a little larger than distances, so that rounding never misses a geometry."""


@dataclass(slots=True)
class _PendingBatch:
    """A batch in progress. `chunks`: the events of positions and of geometries. `numbers`, `rows`: the common order, as the input
    and the row of each event; the first `at` of them are processed. `unemitted_rows`: outputs that are not emitted yet.
    """

    chunks: tuple[Chunk, Chunk]
    numbers: Int64s
    rows: Int64s
    at: int
    unemitted_rows: Chunk


@dataclass(frozen=True, slots=True)
class GeometryHits:
    """Geometries that positions meet, in the order of output: number of the position, slot of the geometry, and distance."""

    position: Int64s
    slot: Int64s
    distance: Doubles


class GeofenceOperator(Operator):
    non_row_parts = frozenset({GEOMETRIES, CELLS})

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        self._declared = declared = cast(GeofenceWindow, window.window)
        self._at = inputs_of([each.role for each in self.inputs])
        self._position, self._geometry = (self.inputs[number] for number in self._at)
        changes = self._position.changelog
        self._is_keyed = declared.index is not IndexType.EMPTY
        self._is_numbered = bool(declared.result_fields.number)
        is_published = changes.opcodes is Opcodes.PUBLISHED
        if not self._is_keyed and (changes.needs_rows or (is_published and self._is_numbered)):
            raise unresolved_input_error(window)
        if not self._is_keyed and changes.opcodes is Opcodes.RESOLVED:
            raise needs_index_error(window, "compares positions when they arrive", "read inserts only")
        self._resolves = self._is_keyed and is_published
        self._keeps = self._is_keyed and not changes.is_distinct
        self.output_changelog = RELATION if self._keeps else changes
        self._passed = len(self._position.schema)
        self._fence = Comparison(declared, self._position.schema, self._geometry.schema)

    def open(self) -> Page:
        index = g.geometry_index(self._fence.coded, self._fence.others)
        page = Page({PENDING: Pending[_PendingBatch](), GEOMETRIES: relation_of(self._geometry.schema), CELLS: index})
        page.parts[LEVELS] = g.level_counts()
        if self._resolves:
            page.parts[GIVEN] = relation_of(self._position.schema)
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema)
        if self._keeps and self._is_numbered:
            keys = self._position.schema.key_indexes
            coded = tuple(i for i, at in enumerate(keys) if at in coded_columns(self._position.schema))
            page.parts[COUNTS] = Relation(Shape(len(keys) + 1, tuple(range(len(keys))), coded), reading=LoadMode.AT_USE)
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        pending = cast("Pending[_PendingBatch]", page.parts[PENDING])
        work, bad = pending.work, NO_BAD_EVENTS
        if work is None:
            work, bad = self._start_batch(page, inputs, timeline, strings)
        room = sum(map(len, inputs)) + timeline.extra_rows_max
        made = work.unemitted_rows
        while work.at < len(work.rows) and len(made) < room:
            some, refused = self._next(page, work, timeline, strings)
            made, bad = some if not len(made) else made.joined(some) if len(some) else made, bad + refused
        end = _whole_blocks(made, room)
        work.unemitted_rows = made.since(end)
        until: int | None = None
        if len(work.unemitted_rows):
            until = int(work.unemitted_rows.rank[0])
        elif work.at < len(work.rows):
            until = int(work.chunks[int(work.numbers[work.at])].rank[work.rows[work.at]])
        pending.work = None if until is None else work
        return OperatorResult(made.between(0, end), bad.by_rank(), until)

    def _start_batch(
        self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable
    ) -> tuple[_PendingBatch, BadEvents]:
        """Resolves the events of both inputs. Returns them as a batch with their common order, and the bad events."""
        position, geometry = (inputs[number] for number in self._at)
        bad = NO_BAD_EVENTS
        if self._resolves and len(position):
            position, bad = resolved_events(page.parts[GIVEN], position, timeline, self._position.schema, strings)
        if len(geometry):
            geometry, refused = resolved_events(page.parts[GEOMETRIES], geometry, timeline, self._geometry.schema, strings)
            bad += refused
        numbers, rows = merged_order(
            [chunk.rank for chunk in ((position, geometry) if self._at == (0, 1) else (geometry, position))]
        )
        numbers = numbers if self._at == (0, 1) else 1 - numbers
        return _PendingBatch((position, geometry), numbers, rows, 0, Chunk.empty(len(self.schema))), bad

    def _next(self, page: Page, work: _PendingBatch, timeline: Timeline, strings: StringTable) -> tuple[Chunk, BadEvents]:
        """Processes the next events of one input. Returns the output rows for positions, and the bad events."""
        number = int(work.numbers[work.at])
        others = np.flatnonzero(work.numbers[work.at : work.at + POSITIONS_MAX] != number)
        end = work.at + (int(others[0]) if len(others) else min(POSITIONS_MAX, len(work.rows) - work.at))
        chunk = work.chunks[number]
        if chunk.opcode[work.rows[end - 1]] == Opcode.UPDATE_BLOCK:  # an update block is never split
            end = end + 1 if end == work.at + 1 else end - 1
        begin, work.at = work.at, end
        some = chunk.between(int(work.rows[begin]), int(work.rows[end - 1]) + 1)
        if number == 1:
            return Chunk.empty(len(self.schema)), self._change_cells(page, some, timeline, strings)
        return self._compare_positions(page, some, timeline, strings)

    def _change_cells(self, page: Page, chunk: Chunk, timeline: Timeline, strings: StringTable) -> BadEvents:
        """Changes the cells by events of geometries. Returns bad events for rows that are not geometries."""
        counts = cast(Counters, page.parts[LEVELS]).values
        given, unfit = self._fence.geometries(chunk, counts, strings)
        g.change_geometries(cast(MultiIndex, page.parts[CELLS]), counts, given, timeline)
        why = [(str(BadReason.GEOMETRY), BadReason.GEOMETRY.sentence)]
        return bad_events(Refusals.from_causes(unfit, np.zeros(len(unfit), np.int64), why), chunk, self._geometry.schema, strings)

    def _compare_positions(self, page: Page, chunk: Chunk, timeline: Timeline, strings: StringTable) -> tuple[Chunk, BadEvents]:
        """Compares inserted and updated positions with the geometries. Returns the output rows, deletes included, and the bad
        events.
        """
        is_old = np.concatenate(([False], chunk.opcode[:-1] == Opcode.UPDATE_BLOCK))
        gone = np.isin(chunk.opcode, (Opcode.DELETE, Opcode.SAFE_DELETE))
        came = np.flatnonzero(~gone & ~is_old)
        index = cast(MultiIndex, page.parts[CELLS])
        met = self._fence.find_hits(index, cast(Counters, page.parts[LEVELS]).values, chunk.copied_rows(came), strings)
        if not self._keeps:
            return self._rows(chunk.copied_rows(came), met, index, strings, chunk.opcode[came]), NO_BAD_EVENTS
        events = np.flatnonzero(~is_old)
        some = chunk.copied_rows(events)
        opcode = some.opcode.copy()
        opcode[opcode == Opcode.UPDATE_BLOCK] = Opcode.UPSERT
        opcode[opcode == Opcode.DELETE] = Opcode.SAFE_DELETE
        some = Chunk(some.rank, opcode, some.flags, some.lanes, some.valid)
        rows = self._rows(chunk.copied_rows(came), met, index, strings, opcode[np.isin(events, came)])
        starts = np.searchsorted(met.position, np.arange(len(came)))
        results = np.maximum(np.searchsorted(met.position, np.arange(len(came)), "right") - starts, 1)
        asked, source, bad = self._index_changes(page, some, rows, results, timeline, strings)
        change = cast(Relation, page.parts[ROWS]).change(asked, timeline)
        refused = some.copied_rows(source)
        return change.chunk, bad + refusals(change, refused, self._position.schema, strings)

    def _rows(self, chunk: Chunk, met: GeometryHits, index: MultiIndex, strings: StringTable, opcode: UInt8s) -> Chunk:
        """Returns one row for each result of a position, or one row without a result; `opcode` has the opcode of each position."""
        some = np.bincount(met.position, minlength=len(chunk))
        position = np.repeat(np.arange(len(chunk)), np.maximum(some, 1))
        begins = np.cumsum(np.maximum(some, 1)) - np.maximum(some, 1)
        has = np.repeat(some > 0, np.maximum(some, 1))
        width = len(self.schema)
        lanes, valid = np.zeros((len(position), width), np.int64), np.zeros((len(position), width), np.bool_)
        lanes[:, : self._passed], valid[:, : self._passed] = chunk.lanes[position], chunk.valid[position]
        column = self._passed
        if self._is_numbered:
            lanes[:, column], valid[:, column] = np.arange(len(position)) - begins[position] + 1, True
            column += 1
        if len(met.slot):
            for values, known in self._fence.output_columns(index, met, strings):
                lanes[has, column], valid[has, column] = np.where(known, values, 0), known
                column += 1
        flags = chunk.flags[position] & np.uint8(~Flag.PARTIAL & 0xFF)
        flags = np.where(flags == 0, np.uint8(Flag.NORMAL), flags)
        return Chunk(chunk.rank[position], opcode[position], flags, lanes, valid, is_whole=True)

    def _index_changes(
        self, page: Page, events: Chunk, rows: Chunk, results: Int64s, timeline: Timeline, strings: StringTable
    ) -> tuple[Chunk, Int64s, BadEvents]:
        """Returns the changes for the index of output rows, the event of each, and bad events. `rows`: the output rows of the
        events that are not deletes; `results`: the number of these rows per event.
        """
        is_delete = events.opcode == Opcode.SAFE_DELETE
        news = np.zeros(len(events), np.int64)
        news[~is_delete] = results
        olds, bad = is_delete.astype(np.int64), NO_BAD_EVENTS
        if self._is_numbered:
            news, olds, bad = self._result_counts(page, events, news, timeline, strings)
        total = news + np.maximum(olds - news, 0)
        event = np.repeat(np.arange(len(events)), total)
        number = np.arange(len(event)) - (np.cumsum(total) - total)[event] + 1
        is_new = number <= news[event]
        first = np.zeros(len(events), np.int64)
        first[~is_delete] = np.cumsum(results) - results
        made = events.copied_rows(event)
        lanes, valid = np.zeros((len(event), rows.lanes.shape[1]), np.int64), np.zeros((len(event), rows.lanes.shape[1]), np.bool_)
        lanes[:, : self._passed], valid[:, : self._passed] = made.lanes, made.valid
        if self._is_numbered:
            lanes[:, self._passed], valid[:, self._passed] = number, True
        source = (first[event] + number - 1)[is_new]
        lanes[is_new], valid[is_new] = rows.lanes[source], rows.valid[source]
        opcode = np.where(is_new, Opcode.UPSERT if self._is_numbered else made.opcode, Opcode.SAFE_DELETE).astype(np.uint8)
        return Chunk(made.rank, opcode, made.flags, lanes, valid), event, bad

    def _result_counts(
        self, page: Page, events: Chunk, news: Int64s, timeline: Timeline, strings: StringTable
    ) -> tuple[Int64s, Int64s, BadEvents]:
        """Stores the count of results, `news`, of each event. Returns the count of each event now and before, and bad events; both
        counts of a refused event are 0.
        """
        keys = list(self._position.schema.key_indexes)
        lanes = np.column_stack([events.lanes[:, keys], news])
        valid = np.column_stack([events.valid[:, keys], np.ones(len(events), np.bool_)])
        rank = np.arange(len(events))
        change = cast(Relation, page.parts[COUNTS]).change(Chunk(rank, events.opcode, events.flags, lanes, valid), timeline)
        made, olds, counts = change.chunk, np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
        is_gone = made.opcode == Opcode.DELETE
        olds[made.rank[is_gone]] = made.lanes[is_gone, -1]
        counts[made.rank[~is_gone]] = made.lanes[~is_gone, -1]
        return counts, olds, refusals(change, events, self._position.schema, strings)


def _whole_blocks(chunk: Chunk, room: int) -> int:
    """Returns the number of rows to emit now: at most `room`, or 2 if that is less. An update block is never split."""
    end = min(len(chunk), max(room, 2))
    return end - 1 if 0 < end < len(chunk) and chunk.opcode[end - 1] == Opcode.UPDATE_BLOCK else end


class Comparison:
    """Compares positions with geometries by the options of the project."""

    def __init__(self, declared: GeofenceWindow, position: Schema, geometry: Schema) -> None:
        shapes, index = declared.shapes, geometry.index
        self._declared = declared
        self._key = geometry.key_indexes[0]
        self._fields = [index.get(name, -1) for name in (shapes.x, shapes.y, shapes.radius_field, shapes.data, shapes.description)]
        self._is_sphere = declared.coordinates is Coordinates.GEOGRAPHIC
        key = (g.KEY,) if geometry.fields[self._key].type in CODED else ()
        self._included = [index[name] for name in declared.result_fields.include]
        self.others = len(self._included)
        texts = (g.WIDTH + i for i, at in enumerate(self._included) if geometry.fields[at].type in CODED)
        self.coded: tuple[int, ...] = (*key, g.DATA, g.DESCRIPTION, *texts)
        self._lookup = declared.positions.lookup
        self._lookup_at = position.index.get(declared.positions.lookup_field, -1)
        self._xy = [position.index[name] for name in (declared.positions.x, declared.positions.y)]

    def geometries(self, chunk: Chunk, counts: Int64s, strings: StringTable) -> tuple[g.Geometries, Int64s]:
        """Returns the changes of geometries, an update as delete and insert, and the indexes of new rows that are invalid."""
        is_gone = chunk.opcode == Opcode.DELETE
        shape = (len(chunk), g.WIDTH + self.others)
        lanes, valid = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
        columns = ((g.X, 0), (g.Y, 1), (g.RADIUS, 2), (g.DATA, 3), (g.DESCRIPTION, 4))
        picked = [(g.KEY, self._key), *((to, self._fields[at]) for to, at in columns if self._fields[at] >= 0)]
        picked += [(g.WIDTH + i, at) for i, at in enumerate(self._included)]
        for to, at in picked:
            lanes[:, to], valid[:, to] = chunk.lanes[:, at], chunk.valid[:, at]
        doubles = lanes.view(np.float64)
        doubles[~valid[:, g.RADIUS], g.RADIUS] = self._declared.shapes.radius
        valid[:, g.RADIUS] = True
        self._place_circles(doubles, lanes, valid, strings)
        extents, fits = self._extents(doubles, lanes, valid, strings)
        number = np.cumsum(~is_gone & fits)
        lanes[:, g.NUMBER], valid[:, g.NUMBER] = counts[g.LEVELS] + number, True
        counts[g.LEVELS] += number[-1]
        order = np.arange(len(chunk))
        blocks = np.flatnonzero(chunk.opcode == Opcode.UPDATE_BLOCK)
        order[blocks], order[blocks + 1] = blocks + 1, blocks  # the old row is deleted before the new one is inserted
        order = order[fits[order]]
        opcode = np.where(is_gone[order], Opcode.SAFE_DELETE, Opcode.INSERT).astype(np.uint8)
        some = g.Extents(*(values[order] for values in extents))
        return g.Geometries(chunk.rank[order], opcode, lanes[order], valid[order], some), np.flatnonzero(~fits & ~is_gone)

    def _place_circles(self, doubles: Doubles, lanes: Int64s, valid: Bools, strings: StringTable) -> None:
        """Makes rows whose data are a single point circles with that point as centre."""
        for code, text in self._data(lanes[valid[:, g.DATA], g.DATA], strings):
            centre = centre_of(text, self._declared.shapes.separator)
            if centre is not None:
                mine = valid[:, g.DATA] & (lanes[:, g.DATA] == code)
                doubles[mine, g.X], doubles[mine, g.Y] = centre
                valid[mine, g.X], valid[mine, g.Y], valid[mine, g.DATA], lanes[mine, g.DATA] = True, True, False, 0

    def _extents(self, doubles: Doubles, lanes: Int64s, valid: Bools, strings: StringTable) -> tuple[tuple[Doubles, ...], Bools]:
        """Returns the box in which each row may be met, as smallest x and y and largest x and y; and which rows are geometries."""
        is_polygon = valid[:, g.DATA]
        x, y, radius = doubles[:, g.X], doubles[:, g.Y], doubles[:, g.RADIUS]
        box = [x.copy(), y.copy(), x.copy(), y.copy()]
        fits = ~is_polygon & valid[:, g.X] & valid[:, g.Y]
        for code, polygon in self._polygons(lanes[is_polygon, g.DATA], strings):
            mine = is_polygon & (lanes[:, g.DATA] == code)
            if polygon is not None:
                for i, value in enumerate((polygon.x.min(), polygon.y.min(), polygon.x.max(), polygon.y.max())):
                    box[i][mine] = value
                fits |= mine
        with np.errstate(invalid="ignore"):
            fits &= (radius >= 0) & (radius <= COORDINATE_MAX)
            for values in box:
                fits &= np.abs(values) <= COORDINATE_MAX
        box = [np.where(fits, values, 0.0) for values in box]
        far = radius + self._lookup if self._lookup_at < 0 else np.inf  # each position has its own lookup distance
        reach = np.where(fits & (~is_polygon | (self._declared.proximity is Proximity.ON)), far, 0.0) * _MARGIN
        if self._is_sphere:
            return self._on_sphere(box, reach), fits
        return (box[0] - reach, box[1] - reach, box[2] + reach, box[3] + reach), fits

    def _on_sphere(self, box: Sequence[Doubles], reach: Doubles) -> tuple[Doubles, ...]:
        """Returns the boxes `box`, in degrees, enlarged by `reach` metres. They are infinite near a pole or the meridian of 180
        degrees.
        """
        high = reach / METRES_PER_DEGREE * _MARGIN
        farthest = np.maximum(np.abs(box[1]), np.abs(box[3])) + high
        is_near_pole = farthest >= 89.0
        wide = high / sine(90.0 - np.where(is_near_pole, 0.0, farthest)) * _MARGIN
        found = (box[0] - wide, box[1] - high, box[2] + wide, box[3] + high)
        everywhere = is_near_pole | (found[0] < -180.0) | (found[2] > 180.0)
        limits = (-np.inf, -np.inf, np.inf, np.inf)
        return tuple(np.where(everywhere, limit, values) for limit, values in zip(limits, found, strict=True))

    def _polygons(self, codes: Int64s, strings: StringTable) -> list[tuple[int, Polygon | None]]:
        separator = self._declared.shapes.separator
        return [(code, polygon_of(text, separator)) for code, text in self._data(codes, strings)]

    def _data(self, codes: Int64s, strings: StringTable) -> list[tuple[int, str]]:
        """Returns each distinct code once, with its text."""
        used = np.unique(codes)
        texts = to_arrow(used, np.ones(len(used), np.bool_), FieldType.STRING, strings).to_pylist()
        return list(zip(used.tolist(), texts, strict=True))

    def find_hits(self, index: MultiIndex, counts: Int64s, chunk: Chunk, strings: StringTable) -> GeometryHits:
        """Returns the geometries that the positions of a chunk meet, in the order of output."""
        x, y, has = self._coordinates(chunk)
        position, slot = g.find_near_geometries(index, counts, x[has], y[has])
        position = np.flatnonzero(has)[position]
        lanes, valid = index.rows.lanes[slot], index.rows.valid[slot]
        doubles = lanes.view(np.float64)
        px, py, lookup = x[position], y[position], self._lookups(chunk)[position]
        distance = self._distance(px, py, doubles[:, g.X], doubles[:, g.Y])
        reach = doubles[:, g.RADIUS] + lookup
        hits = distance <= reach
        is_polygon = valid[:, g.DATA]
        for code, polygon in self._polygons(lanes[is_polygon, g.DATA], strings):
            mine = np.flatnonzero(is_polygon & (lanes[:, g.DATA] == code))
            if polygon is not None:
                hits[mine], distance[mine] = self._polygon_hits(polygon, px[mine], py[mine], reach[mine])
        some = np.flatnonzero(hits)
        position, slot, distance, number = position[some], slot[some], distance[some], lanes[some, g.NUMBER]
        is_by_distance = self._declared.results is Results.ONE or self._declared.order is Order.DISTANCE
        order = np.lexsort((number, distance, position) if is_by_distance else (number, position))
        if self._declared.results is Results.ONE:
            order = order[np.flatnonzero(np.diff(position[order], prepend=-1))]
        return GeometryHits(position[order], slot[order], distance[order])

    def _coordinates(self, chunk: Chunk) -> tuple[Doubles, Doubles, Bools]:
        x, y = (np.ascontiguousarray(chunk.lanes.view(np.float64)[:, column]) for column in self._xy)
        has = chunk.valid[:, self._xy].all(axis=1)
        with np.errstate(invalid="ignore"):
            return x, y, has & (np.abs(x) <= COORDINATE_MAX) & (np.abs(y) <= COORDINATE_MAX)

    def _lookups(self, chunk: Chunk) -> Doubles:
        """Returns the lookup distance of each position: that of its field, or the default if null. A negative one or NaN is 0."""
        if self._lookup_at < 0:
            return np.full(len(chunk), self._lookup)
        said = np.ascontiguousarray(chunk.lanes.view(np.float64)[:, self._lookup_at])
        with np.errstate(invalid="ignore"):
            lengths: Doubles = np.where(said > 0, said, 0.0)
        return np.where(chunk.valid[:, self._lookup_at], lengths, self._lookup)

    def _distance(self, x: Doubles, y: Doubles, to_x: Doubles, to_y: Doubles) -> Doubles:
        return sphere_distance(x, y, to_x, to_y) if self._is_sphere else plane_distance(x, y, to_x, to_y)

    def _polygon_hits(self, polygon: Polygon, x: Doubles, y: Doubles, reach: Doubles) -> tuple[Bools, Doubles]:
        declared = self._declared
        hits = is_inside_by_winding(polygon, x, y) if declared.inside is Inside.WINDING else is_inside_by_crossing(polygon, x, y)
        to_edge = np.zeros(len(x))
        if declared.proximity is Proximity.ON or declared.distance_to is DistanceTo.SEGMENT:
            scale_x = METRES_PER_DEGREE * sine(90.0 - y) if self._is_sphere else np.ones(len(x))
            to_edge = edge_distance(polygon, x, y, scale_x, METRES_PER_DEGREE if self._is_sphere else 1.0)
        if declared.proximity is Proximity.ON:
            hits = hits | (to_edge <= reach)
        if declared.distance_to is DistanceTo.SEGMENT:
            return hits, to_edge
        centroid = polygon.centroid
        return hits, self._distance(x, y, np.full(len(x), centroid[0]), np.full(len(x), centroid[1]))

    def output_columns(self, index: MultiIndex, met: GeometryHits, strings: StringTable) -> list[tuple[Int64s, Bools]]:
        """Returns lanes and validity of the requested result fields, one entry per hit, in the order of the schema."""
        told, lanes, valid = self._declared.result_fields, index.rows.lanes[met.slot], index.rows.valid[met.slot]
        kinds, _ = strings.intern(_KINDS)
        every = np.ones(len(met.slot), np.bool_)
        fields = (
            (told.id, lanes[:, g.KEY], every),
            (told.type, kinds[valid[:, g.DATA].astype(np.int64)], every),
            (told.description, lanes[:, g.DESCRIPTION], valid[:, g.DESCRIPTION]),
            (told.distance, met.distance.view(np.int64), every),
        )
        others = [(lanes[:, at], valid[:, at]) for at in range(g.WIDTH, g.WIDTH + self.others)]
        return [(values, known) for name, values, known in fields if name] + others


_KINDS = pa.array(["circle", "polygon"], pa.string())
