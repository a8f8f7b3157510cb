"""Calculate window with the algorithm Summary (SPEC A39): each row that is inserted or updated is one observation.

Retention deletes and other deletes pass with the values that were emitted for their row, and do not change the observations. The
new values of an update are a new observation. Published events are resolved against an index of input rows first. Without an index
(pi_EMPTY) a window observes inserts only: it could not repeat the values emitted for a deleted row. No rows are kept either if
every row is an insert with a unique key.

An output is converted to its field's type by dropping the fraction. A value that does not fit is null, and a bad event reports it.

Definitions, which an independent program can follow bit for bit in IEEE double arithmetic, without fused operations:

- The window of an observation is it and the `length - 1` observations before it. A null or NaN observation occupies a place in the
  window, but counts only in nMissOut.
- Without a length, sumOut and ussOut add the values, or their squares, from the oldest to the newest, beginning with 0, and cssOut
  follows from Welford's recurrence, which updates a mean m and a sum c by a value v as the count becomes n: d = v - m, m += d / n,
  c += d * (v - m).
- With a length, observations are counted in blocks of `length` from the first one on, missing ones too. A window that ends within a
  block is the beginning of that block, preceded by an end of the block before. sumOut and ussOut of the beginning are added from
  its oldest value to its newest, those of the end from its newest to its oldest, each beginning with 0; then end + beginning. c of
  each follows from the same recurrence, in the same directions; cssOut is c of the end + c of the beginning + d * d *
  (e * b / (e + b)), where e and b are the counts of values of end and beginning, and d is m of the beginning - m of the end; if one
  has no values it is c of the other.
- meanOut = sumOut / nOut; varOut = cssOut / (nOut - 1); stdOut = sqrt(varOut); stderrOut = stdOut / sqrt(nOut);
  cvOut = 100 * stdOut / meanOut. A value that is not defined (no observation, nOut - 1 = 0, a mean of 0, infinities that cancel)
  is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

import numpy as np

from hotspare.base.errors import SnapshotDamaged
from hotspare.model.project import IndexType
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType
from hotspare.rows.changelog import Keys, Opcodes
from hotspare.rows.chunk import Bools, Chunk, Int64s, Timeline
from hotspare.rows.refusals import NO_BAD_EVENTS, BadEvents, Refusals
from hotspare.table.loops.columns import certain_rows, pick_columns
from hotspare.table.memory import PinnedPart
from hotspare.table.pages import Column, Columns, Page, require_column
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.calculate import loops as k
from hotspare.windows.calculate.algorithms import SUMMARY_INPUT, SUMMARY_OUTPUTS, SUMMARY_WINDOW_LENGTH
from hotspare.windows.calculate.declaration import CalculateWindow
from hotspare.windows.calculate.loops import Float64s, observed_doubles, observed_whole, write_doubles, write_whole
from hotspare.windows.shared.contract import BadReason, Operator, OperatorInput, OperatorResult
from hotspare.windows.shared.keyed import bad_events, refusals, relation_of, resolved_events
from hotspare.windows.shared.rowwise import GIVEN, ROWS, clear_partial_flags, needs_index_error, unresolved_input_error

_OF_DIFFERENCES = frozenset({"cssOut", "varOut", "stdOut", "stderrOut", "cvOut"})
_OF_EXTREMES = frozenset({"minOut", "maxOut"})


_LIMIT: dict[FieldType, tuple[np.float64, np.float64]] = {
    FieldType.INT32: (np.float64(-(2.0**31) - 1.0), np.float64(2.0**31)),
    FieldType.INT64: (np.nextafter(-(2.0**63), -np.inf), np.float64(2.0**63)),
}
"""Limits by type: a double between them, both excluded, fits the type without its fraction. Types that are not listed take every
double.
"""


class CalculateOperator(Operator):
    """Computes the Summary statistics of a window. Fields without a mapped output pass through by name."""

    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        super().__init__(window, inputs)
        declared = cast(CalculateWindow, window.window)
        self._entry = entry = self.inputs[0].schema
        given = self.inputs[0].changelog
        if declared.index is IndexType.EMPTY and given.opcodes is Opcodes.PUBLISHED:
            raise unresolved_input_error(window)
        if declared.index is IndexType.EMPTY and given.opcodes is Opcodes.RESOLVED:
            raise needs_index_error(window, "computes statistics", "read inserts only")
        self._resolves = given.opcodes is Opcodes.PUBLISHED
        self._resolved = given.computed_from()
        self._is_keyed = declared.index is not IndexType.EMPTY
        self._keeps = self._is_keyed and not given.is_distinct
        self.output_changelog = given.indexed() if self._is_keyed else given
        self._observed = entry.index[dict(declared.input_map)[SUMMARY_INPUT]]
        self._observes_double = entry.fields[self._observed].type is FieldType.DOUBLE
        places = [(output, self.schema.index[name]) for output, name in declared.output_map]
        self._outputs = tuple((output, column, _LIMIT.get(self.schema.fields[column].type)) for output, column in places)
        computed = {column for _, column in places}
        picks = [-1 if i in computed else entry.index[f.name] for i, f in enumerate(self.schema.fields)]
        self._picks = np.array(picks, np.int64)
        self._given_keys = np.array([picks[i] for i in self.schema.key_indexes], np.int64)
        length = dict(declared.parameters).get(SUMMARY_WINDOW_LENGTH)
        self._length = int(length) if length is not None else 0

    def open(self) -> Page:
        statistics = [output for output, _, _ in self._outputs]
        page = Page({"observations": NewestObservations(self._length, statistics) if self._length else AllObservations()})
        if self._keeps:
            page.parts[ROWS] = relation_of(self.schema, given=self._resolved)
        if self._resolves:
            page.parts[GIVEN] = relation_of(self._entry)
        return page

    def process_chunks(self, page: Page, inputs: Sequence[Chunk], timeline: Timeline, strings: StringTable) -> OperatorResult:
        (given,) = inputs
        bad = NO_BAD_EVENTS
        if self._resolves:
            given, bad = resolved_events(page.parts[GIVEN], given, timeline, self._entry, strings)
        observations = cast("NewestObservations | AllObservations", page.parts["observations"])
        chunk = self._laid_out(given)
        if not self._keeps:
            rows = np.arange(len(given))
            bad += self._write(self._observe(observations, given, rows), chunk.lanes, chunk.valid, rows, rows, given, strings)
            return OperatorResult(clear_partial_flags(chunk) if self._is_keyed else chunk, bad)
        relation = cast(Relation, page.parts[ROWS])
        certain = self._certain(given)
        if certain is not None:
            basis = self._observe(observations, given, certain)
            written = self._write(basis, chunk.lanes, chunk.valid, certain, certain, given, strings)
            change = relation.change(chunk, timeline)
            bad += refusals(change, given, self._entry, strings) + written
            return OperatorResult(change.chunk, bad.by_rank())
        resolution = relation.resolve_chunk(chunk, timeline)
        rows, slots = resolution.arrived_rows()
        bad += refusals(resolution, given, self._entry, strings)
        if len(rows):
            basis = self._observe(observations, given, rows)
            bad += self._write(basis, relation.lanes, relation.valid, slots, rows, given, strings)
        return OperatorResult(relation.settle(resolution), bad.by_rank())

    def _certain(self, given: Chunk) -> Int64s | None:
        """Returns the rows that are certain to be accepted, if that is known without a lookup in the index; else None."""
        if self._resolved.keys is Keys.ANY:
            return None
        rows = np.empty(len(given), np.int64)
        count = int(certain_rows(given.opcode, given.valid, self._given_keys, rows))
        return rows[:count] if count >= 0 else None

    def _laid_out(self, given: Chunk) -> Chunk:
        lanes = np.empty((len(given), len(self.schema)), np.int64)
        valid = np.empty((len(given), len(self.schema)), np.bool_)
        pick_columns(given.lanes, given.valid, self._picks, lanes, valid)
        return Chunk(given.rank, given.opcode, given.flags, lanes, valid, given.is_whole)

    def _observe(self, observations: NewestObservations | AllObservations, given: Chunk, rows: Int64s) -> _Basis:
        values, here = np.empty(len(rows), np.float64), np.empty(len(rows), np.bool_)
        if self._observes_double:
            observed_doubles(given.lanes.view(np.float64), given.valid, rows, self._observed, values, here)
        else:
            observed_whole(given.lanes, given.valid, rows, self._observed, values, here)
        return observations.observe(values, here)

    def _write(
        self, basis: _Basis, lanes: Int64s, valid: Bools, at: Int64s, rows: Int64s, given: Chunk, strings: StringTable
    ) -> BadEvents:
        """Writes the mapped statistics to `lanes[at]` and `valid[at]`. Returns bad events, at `rows` of `given`, for statistics
        that do not fit their field, which is then null.
        """
        bad = NO_BAD_EVENTS
        for output, column, limit in self._outputs:
            values = basis.statistic(output)
            if limit is None:
                write_doubles(values, at, column, lanes.view(np.float64), valid)
                continue
            unfit = np.empty(len(at), np.int64)
            count = int(write_whole(values, *limit, at, column, lanes, valid, unfit))
            if count:
                message = f"{output} does not fit the field {self.schema.fields[column].name}, which is null instead"
                refused = Refusals.from_causes(rows[unfit[:count]], np.zeros(count, np.int64), [(BadReason.NUMBER_RANGE, message)])
                bad += bad_events(refused, given, self._entry, strings)
        return bad


class NewestObservations(PinnedPart):
    """The newest `length` observations, as a part of a page. `statistics`: names of the SUMMARY_OUTPUTS to compute of them."""

    def __init__(self, length: int, statistics: Iterable[str] = SUMMARY_OUTPUTS) -> None:
        self.length = length
        self.statistics = tuple(statistics)
        self._shape = _Shape.for_statistics(self.statistics)
        ends = self._shape.allocate_ends(length + 1, PreviousBlock.KEPT)
        ends.least[:], ends.greatest[:] = np.inf, -np.inf
        values, valid, place = np.zeros(length), np.zeros(length, np.bool_), np.zeros(2, np.int64)
        self._window = k.SlidingWindow(values, valid, place, ends, _no_observation(), np.zeros(2, np.int64))

    @property
    def pinned_bytes(self) -> int:
        arrays = (*self._window.ends, *(each for each in self._window if isinstance(each, np.ndarray)))
        return sum(each.nbytes for each in arrays)

    def observe(self, values: Float64s, valid: Bools) -> _Basis:
        """Adds observations, and returns the basis of the statistics after each of them. `values` must be 0.0 where `valid` is
        False.
        """
        count = len(values)
        out, missed = self._shape.allocate_ends(count, PreviousBlock.NONE), np.empty(count, np.int64)
        k.slide(values, valid, self._window, out, missed)
        return _Basis(out.counted, missed, out.sums, out.squares, out.differences, out.least, out.greatest)

    def _newest(self) -> tuple[Float64s, Bools]:
        """Returns the last `length - 1` observations, oldest first, or all if there are fewer: values, and which of them count."""
        at, window = self._at, self._window
        before = slice(at + 1, self.length) if window.place[k.HAS_BEFORE] else slice(0, 0)
        values: Float64s = np.concatenate((window.values[before], window.values[:at]))
        valid: Bools = np.concatenate((window.valid[before], window.valid[:at]))
        return values, valid

    @property
    def _at(self) -> int:
        return int(self._window.place[k.NEXT])

    def freeze(self) -> NewestObservations:
        twin = NewestObservations.__new__(NewestObservations)
        twin.length, twin.statistics, twin._shape = self.length, self.statistics, self._shape
        window = self._window
        twin._window = window._replace(values=window.values.copy(), valid=window.valid.copy(), place=window.place.copy())
        return twin

    def columns(self) -> Columns:
        values, valid = self._newest()
        return {"values": Column(values), "valid": Column(valid), "place": Column(np.array([self._at]))}

    def load(self, columns: Columns) -> None:
        values = require_column(columns, "values", np.dtype(np.float64), (-1,)).array
        count = len(values)
        if count >= self.length:
            raise SnapshotDamaged("a page holds more observations than its window is long")
        valid = require_column(columns, "valid", np.dtype(np.bool_), (count,)).array
        at = int(require_column(columns, "place", np.dtype(np.int64), (1,)).array[0])
        if not 0 <= at <= count or at < count < self.length - 1:
            raise SnapshotDamaged("a page holds observations without a place in their window")
        window = self._window
        if at < count:
            window.values[at + 1 :], window.valid[at + 1 :] = values[: count - at], valid[: count - at]
            k.complete_block(window)
        self.observe(values[count - at :], valid[count - at :])


class AllObservations:
    """The running state over all observations since the beginning, as a part of a page."""

    def __init__(self) -> None:
        self.state = _no_observation()
        self.counts: Int64s = np.zeros(2, np.int64)

    def observe(self, values: Float64s, valid: Bools) -> _Basis:
        """Adds observations, and returns the basis of the statistics after each of them. `values` must be 0.0 where `valid` is
        False.
        """
        out = np.empty((len(values), k.RUNNING_WIDTH))
        counts = np.empty((len(values), 2), np.int64)
        k.accumulate_statistics(values, valid, self.state, self.counts, out, counts)
        return _Basis(
            counted=counts[:, k.COUNTED],
            missed=counts[:, k.MISSED],
            sums=out[:, k.SUM],
            squares=out[:, k.SQUARES],
            differences=out[:, k.DIFFERENCES],
            least=out[:, k.LEAST],
            greatest=out[:, k.GREATEST],
        )

    def freeze(self) -> AllObservations:
        twin = AllObservations()
        twin.state, twin.counts = self.state.copy(), self.counts.copy()
        return twin

    def columns(self) -> Columns:
        return {"state": Column(self.state), "counts": Column(self.counts)}

    def load(self, columns: Columns) -> None:
        self.state = require_column(columns, "state", np.dtype(np.float64), (k.RUNNING_WIDTH,)).array.copy()
        self.counts = require_column(columns, "counts", np.dtype(np.int64), (2,)).array.copy()


class PreviousBlock(Enum):
    """Whether arrays are for a previous block, which needs means, or for results, which do not."""

    KEPT = "kept"
    NONE = "none"


_NONE: Float64s = np.empty(0)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The statistics of `windows.calculate.loops.Ends` that are requested: 1 if arrays have entries for it, else 0."""

    squares: int
    differences: int
    extremes: int

    @classmethod
    def for_statistics(cls, statistics: Iterable[str]) -> _Shape:
        asked = frozenset(statistics)
        return cls(int("ussOut" in asked), int(bool(asked & _OF_DIFFERENCES)), int(bool(asked & _OF_EXTREMES)))

    def allocate_ends(self, count: int, before: PreviousBlock) -> k.Ends:
        """Allocates `count` entries for the counts and for each statistic that the outputs need, and none for the others."""
        means = self.differences if before is PreviousBlock.KEPT else 0
        asked = (1, self.squares, means, self.differences, self.extremes, self.extremes)
        return k.Ends(np.zeros(count, np.int64), *(np.zeros(count) if each else _NONE for each in asked))


def _no_observation() -> Float64s:
    """Returns the running state before the first observation: extremes are infinite, all else is 0."""
    state = np.zeros(k.RUNNING_WIDTH)
    state[k.LEAST], state[k.GREATEST] = np.inf, -np.inf
    return state


@dataclass(slots=True)
class _Basis:
    """The values from which the statistics of each of n observations are computed. Arrays that are not requested are empty."""

    counted: Int64s
    missed: Int64s
    sums: Float64s
    squares: Float64s
    differences: Float64s
    least: Float64s
    greatest: Float64s
    computed_statistics: dict[str, Float64s] = field(default_factory=dict)

    def statistic(self, name: str) -> Float64s:
        """Returns the output `name` of SUMMARY_OUTPUTS for each observation; NaN if it is not defined. Results are cached."""
        if name not in self.computed_statistics:
            with np.errstate(all="ignore"):  # infinities may cancel to NaN, which becomes null
                self.computed_statistics[name] = _STATISTICS[name](self)
        return self.computed_statistics[name]


def _where(defined: Bools, values: Float64s) -> Float64s:
    return np.where(defined, values, np.nan)


def _mean(b: _Basis) -> Float64s:
    return _where(b.counted > 0, b.sums / np.maximum(b.counted, 1))


def _var(b: _Basis) -> Float64s:
    return _where(b.counted > 1, b.statistic("cssOut") / np.maximum(b.counted - 1, 1))


def _cv(b: _Basis) -> Float64s:
    mean = b.statistic("meanOut")
    return _where(mean != 0.0, 100.0 * b.statistic("stdOut") / np.where(mean == 0.0, 1.0, mean))


_STATISTICS: dict[str, Callable[[_Basis], Float64s]] = {
    "nOut": lambda b: b.counted.astype(np.float64),
    "nMissOut": lambda b: b.missed.astype(np.float64),
    "minOut": lambda b: _where(b.counted > 0, b.least),
    "maxOut": lambda b: _where(b.counted > 0, b.greatest),
    "sumOut": lambda b: _where(b.counted > 0, b.sums),
    "meanOut": _mean,
    "stdOut": lambda b: np.sqrt(b.statistic("varOut")),
    "varOut": _var,
    "stderrOut": lambda b: b.statistic("stdOut") / np.sqrt(np.maximum(b.counted, 1)),
    "cvOut": _cv,
    "ussOut": lambda b: _where(b.counted > 0, b.squares),
    "cssOut": lambda b: _where(b.counted > 0, b.differences),
}
