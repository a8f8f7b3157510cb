"""The program of an aggregate as tables for its kernels: the components that a group keeps, and the results computed from them.

calls ──► components, each once ──► columns of a row of a group ──► results
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType

import numpy as np

from hotspare.expressions.aggregates import Aggregate, AggregateCall
from hotspare.expressions.arrays import ARRAY_TYPES
from hotspare.expressions.compiled import CompiledExpression
from hotspare.expressions.tree import ValueType
from hotspare.rows.chunk import Int64s
from hotspare.windows.aggregate.loops import components as k
from hotspare.windows.aggregate.loops import exact, values
from hotspare.windows.aggregate.loops import results as r
from hotspare.windows.aggregate.loops.inline_sets import INLINE_SET_WIDTH

_NARROW = MappingProxyType({int(k.SUM): 2, int(k.PRODUCT): 3, int(k.DOUBLE_SUM): 4, int(k.DOUBLE_PRODUCT): 5})
"""Words of a sum in a row of most groups, by kind. They suffice for whole numbers, and for doubles that differ by a factor of at
most 10**22; for products, 10**13.
"""
_WIDE = MappingProxyType({**_NARROW, int(k.DOUBLE_SUM): exact.DOUBLE_LIMBS, int(k.DOUBLE_PRODUCT): exact.PRODUCT_LIMBS})
_OF_DOUBLES = frozenset({int(k.DOUBLE_SUM), int(k.DOUBLE_PRODUCT)})
_OF_TEXTS = (int(k.LEAST_TEXT), int(k.GREATEST_TEXT))
_QUERIES = MappingProxyType({int(r.DISTINCT): values.PLACES, int(r.PERCENTILE): values.PLACES, int(r.MODE): values.MODES})
_NONE = -1
_CODED = (ValueType.STRING, ValueType.BLOB, *ARRAY_TYPES)
_NEWEST_MAX = 16
"""The row of a group keeps at most this many newest values, if input rows are never removed. For a larger lag all rows are kept, in
order of arrival.
"""


@dataclass(frozen=True, slots=True)
class _Component:
    """A planned component. `kind`: as in `loops.components`. `a`, `b`: numbers of arguments, or a constant; `period`: the number of
    its period. _NONE if unused.
    """

    kind: int
    a: int = _NONE
    b: int = _NONE
    period: int = _NONE


class InputRowsKept(Enum):
    """Whether all input rows remain in their groups as they are, or some may be removed or changed."""

    ALL = "all"
    SOME = "some"


@dataclass(frozen=True, slots=True)
class _Result:
    """A planned result. `result_kind`: as in `loops.results`. `first`, `second`, `counted`: numbers of components; _NONE is the
    count of the group's rows.

    For a result over a set, `first` is the number of the set, and `share` that of a percentile. For a result over rows in order of
    arrival, `first` is a position in `Planner.listed`, and `second` the steps from the first row, or the bytes of a separator.
    """

    result_kind: int
    first: int
    second: int = _NONE
    counted: int = _NONE
    share: float = 0.0
    offset: int = 0
    """The column that is read, counted from the first column of the component `first`."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The plan of a group's row. `program`: the arrays for the kernels; `width`: the number of columns of the row; `codes`: the
    indexes of its columns that hold codes of strings.
    """

    program: k.GroupProgram
    width: int
    codes: tuple[int, ...]


class Planner:
    """Plans the components and results of `calls`; calls that need the same component share it. `arguments`: the columns of events
    after the key of the group, in order.

    `keys`: the number of key fields of a group; `identity`: the number of key fields of an input row.
    """

    def __init__(self, keys: int, identity: int, calls: Sequence[AggregateCall], keeps: InputRowsKept) -> None:
        self._keys, self._identity = keys, identity
        self.keeps = keeps
        self.arguments: list[CompiledExpression] = []
        self._components: list[_Component] = []
        self._periods: list[int] = []
        self.sets: list[int] = []
        """Numbers of the arguments whose values are kept in order. The position in this list is the number of the set."""
        self.listed: list[int] = []
        """Numbers of the arguments that are kept for each row, in order of arrival."""
        self._results = [_RESULTS[call.aggregate](self, call) for call in calls]
        self._calls = tuple(calls)

    def tables(self, key_codes: Sequence[int], words: Mapping[int, int]) -> Tables:
        """Returns the kernel tables of a group's row. `words[kind]`: the count of 64-bit words of a sum of that component kind; 0
        if missing. `key_codes`: indexes of key columns that hold string codes.
        """
        rows = []
        at = self._keys + len(self._results) + 2
        for part in self._components:
            limbs = words.get(part.kind, 0)
            width = 1 if not limbs else limbs + (4 if part.kind in _OF_DOUBLES else 1)
            a, b = (_NONE if each < 0 else each + self._keys for each in (part.a, part.b))
            if part.kind == k.NEWEST:
                width = part.b
            if part.kind in (k.OPCODES, k.NTH):
                a, b = part.a if part.kind == k.OPCODES else a, max(part.b, 0)
            if part.kind in (k.LEAST, k.GREATEST):
                b = int(self.arguments[part.a].tree.type is ValueType.DOUBLE)
            rows.append((part.kind, at, width, a, b if b >= 0 else max(a, 0), limbs, part.period))
            at += width
        periods = [(at + i, length_us) for i, length_us in enumerate(self._periods)]
        few, width = self._inline_sets(at + len(periods))
        components = np.array(rows, np.int64).reshape(-1, k.COMPONENT_WIDTH)
        program = k.GroupProgram(
            np.arange(self._keys, dtype=np.int64),
            components,
            np.array([self._result(each, components) for each in self._results], np.int64).reshape(-1, r.RESULT_WIDTH),
            np.array(periods, np.int64).reshape(-1, 2),
            np.array([self._keys + at for at in self.sets], np.int64),
            np.array([each.share for each in self._results], np.float64),
            np.array([c for c, part in enumerate(self._components) if part.kind in _OF_TEXTS], np.int64),
            np.array(few, np.int64).reshape(-1, 2),
        )
        return Tables(program, width, (*key_codes, *self._codes(components)))

    def _inline_sets(self, begin: int) -> tuple[list[tuple[int, int]], int]:
        """Returns INLINE_AT and INLINE_DOUBLE of each set, and the width of a group's row. Sets of numbers have columns in the row,
        from `begin` on; sets of texts have none.
        """
        few, at = [], begin
        for kind in self.kinds.tolist():
            few.append((_NONE if kind == values.TEXT else at, int(kind == values.DOUBLE)))
            at += 0 if kind == values.TEXT else INLINE_SET_WIDTH
        return few, at

    def narrow(self, key_codes: Sequence[int]) -> Tables:
        return self.tables(key_codes, _NARROW)

    def wide(self, key_codes: Sequence[int]) -> Tables:
        return self.tables(key_codes, _WIDE)

    def _result(self, result: _Result, components: Int64s) -> tuple[int, ...]:
        if result.result_kind in (r.ARRIVAL, r.LISTED):
            return result.result_kind, self._identity + self._keys + result.first, result.second, 0, 0, 0, 0
        if result.result_kind >= r.LEAST_VALUE:
            return result.result_kind, result.first, 0, 0, 0, 0, 0
        rows_at = self._keys + len(self._results) + 1
        first, second, counted = (
            rows_at if at < 0 else int(components[at, k.AT]) for at in (result.first, result.second, result.counted)
        )
        of_first, of_second = (components[max(at, 0)] if len(components) else None for at in (result.first, result.second))
        if of_first is None or of_second is None:
            return result.result_kind, first, second, counted, 0, 0, 0
        first += result.offset
        bias = {int(k.DOUBLE_SUM): exact.DOUBLE_BIAS, int(k.DOUBLE_PRODUCT): 2 * exact.DOUBLE_BIAS}.get(int(of_first[k.KIND]), 0)
        return result.result_kind, first, second, counted, int(of_first[k.LIMBS]), int(of_second[k.LIMBS]), bias

    def _codes(self, components: Int64s) -> list[int]:
        """Returns the columns of a group's row, among results and components, that hold codes of strings."""
        of_results = [
            self._keys + i
            for i, call in enumerate(self._calls)
            if call.type in _CODED and call.aggregate is not Aggregate.IDENTIFIER
        ]
        of_values = (k.LAST, k.LAST_KEPT, k.NTH, k.NEWEST, *_OF_TEXTS)
        held = [c for c, part in enumerate(self._components) if part.kind in of_values and self._is_coded(part.a)]
        return of_results + [int(components[c, k.AT]) + j for c in held for j in range(int(components[c, k.WIDTH]))]

    def _is_coded(self, argument: int) -> bool:
        return self.arguments[argument].tree.type in _CODED

    @property
    def kinds(self) -> Int64s:
        """The kind of the values of each set: PLAIN, DOUBLE or TEXT of `loops.values`."""
        types = [self.arguments[at].tree.type for at in self.sets]
        found = [values.TEXT if t in _CODED else values.DOUBLE if t is ValueType.DOUBLE else values.PLAIN for t in types]
        return np.array(found, np.int64)

    @property
    def queries_by_set(self) -> Int64s:
        """The queries that each set answers: EXTREMES, PLACES or MODES of `loops.values`."""
        asked = np.full(len(self.sets), values.EXTREMES)
        for result in self._results:
            if r.LEAST_VALUE <= result.result_kind <= r.PERCENTILE:
                asked[result.first] = max(asked[result.first], _QUERIES.get(result.result_kind, values.EXTREMES))
        return asked

    @property
    def coded(self) -> tuple[int, ...]:
        """Numbers of the arguments that are kept as codes of strings."""
        return tuple(at for at in range(len(self.arguments)) if self._is_coded(at))

    @property
    def lists(self) -> list[int]:
        """Numbers of the results that list all rows of a group."""
        return [i for i, result in enumerate(self._results) if result.result_kind == r.LISTED]

    def register_set(self, argument: int) -> int:
        if argument not in self.sets:
            self.sets.append(argument)
        return self.sets.index(argument)

    def register_listed_argument(self, argument: int) -> int:
        """Registers an argument that is kept for each row. Returns its position in `listed`."""
        if argument not in self.listed:
            self.listed.append(argument)
        return self.listed.index(argument)

    def register_argument(self, expression: CompiledExpression) -> int:
        trees = [each.tree for each in self.arguments]
        if expression.tree not in trees:
            self.arguments.append(expression)
            return len(trees)
        return trees.index(expression.tree)

    def register_component(self, part: _Component) -> int:
        if part not in self._components:
            self._components.append(part)
        return self._components.index(part)

    def register_period(self, call: AggregateCall) -> int:
        (length_us,) = call.constants
        assert isinstance(length_us, int)
        if length_us not in self._periods:
            self._periods.append(length_us)
        return self._periods.index(length_us)


def _kind(call: AggregateCall, whole: np.int64, double: np.int64) -> int:
    return int(double if call.arguments[0].tree.type is ValueType.DOUBLE else whole)


def _sum_of(planner: Planner, call: AggregateCall, period: int = _NONE) -> tuple[int, int]:
    """Registers the components for the sum of the call's first argument and for the count of its values. Returns their numbers."""
    at = planner.register_argument(call.arguments[0])
    counted = planner.register_component(_Component(int(k.COUNT), at, period=period))
    return planner.register_component(_Component(_kind(call, k.SUM, k.DOUBLE_SUM), at, period=period)), counted


def _summed(planner: Planner, call: AggregateCall, period: int = _NONE) -> _Result:
    total, counted = _sum_of(planner, call, period)
    how = {ValueType.DOUBLE: r.NEAREST, ValueType.MONEY: r.MONEY_SUM}.get(call.type, r.WHOLE_SUM)
    return _Result(int(how), total, counted=counted)


def _averaged(planner: Planner, call: AggregateCall, period: int = _NONE) -> _Result:
    total, counted = _sum_of(planner, call, period)
    return _Result(int(r.MEAN), total, counted=counted)


def _counted(planner: Planner, call: AggregateCall, period: int = _NONE) -> _Result:
    if not call.arguments:
        return _Result(int(r.AS_IT_IS), planner.register_component(_Component(int(k.COUNT), period=period)))
    return _Result(
        int(r.AS_IT_IS), planner.register_component(_Component(int(k.COUNT), planner.register_argument(call.arguments[0])))
    )


def _nulls(planner: Planner, call: AggregateCall) -> _Result:
    return _Result(
        int(r.NULLS),
        _NONE,
        counted=planner.register_component(_Component(int(k.COUNT), planner.register_argument(call.arguments[0]))),
    )


def _opcodes(planner: Planner, call: AggregateCall) -> _Result:
    (opcode,) = call.constants
    assert isinstance(opcode, int)
    return _Result(int(r.AS_IT_IS), planner.register_component(_Component(int(k.OPCODES), opcode)))


def _value(kind: np.int64) -> Callable[[Planner, AggregateCall], _Result]:
    def result(planner: Planner, call: AggregateCall) -> _Result:
        at = planner.register_argument(call.arguments[0]) if call.arguments else _NONE
        return _Result(int(r.AS_IT_IS), planner.register_component(_Component(int(kind), at)))

    return result


def _squares_of(planner: Planner, call: AggregateCall) -> int:
    at = planner.register_argument(call.arguments[0])
    return planner.register_component(_Component(_kind(call, k.PRODUCT, k.DOUBLE_PRODUCT), at, at))


def _squares(planner: Planner, call: AggregateCall) -> _Result:
    _, counted = _sum_of(planner, call)
    return _Result(int(r.NEAREST), _squares_of(planner, call), counted=counted)


def _spread(how: np.int64) -> Callable[[Planner, AggregateCall], _Result]:
    def result(planner: Planner, call: AggregateCall) -> _Result:
        total, counted = _sum_of(planner, call)
        return _Result(int(how), total, _squares_of(planner, call), counted)

    return result


def _weighted(planner: Planner, call: AggregateCall) -> _Result:
    weights, values = (planner.register_argument(each) for each in call.arguments)
    total, counted = _sum_of(planner, replace(call, arguments=call.arguments[:1]))
    products = planner.register_component(_Component(_kind(call, k.PRODUCT, k.DOUBLE_PRODUCT), values, weights))
    return _Result(int(r.WEIGHTED), products, total, counted)


def _timed(of: Callable[[Planner, AggregateCall, int], _Result]) -> Callable[[Planner, AggregateCall], _Result]:
    return lambda planner, call: of(planner, call, planner.register_period(call))


def _extreme(kind: np.int64, of_texts: np.int64) -> Callable[[Planner, AggregateCall, int], _Result]:
    def result(planner: Planner, call: AggregateCall, period: int) -> _Result:
        of_type = of_texts if call.type in _CODED else kind
        part = _Component(int(of_type), planner.register_argument(call.arguments[0]), period=period)
        return _Result(int(r.AS_IT_IS), planner.register_component(part))

    return result


def _ordered(how: np.int64, running: np.int64 | None = None) -> Callable[[Planner, AggregateCall], _Result]:
    """Returns a function that plans a result of kind `how` over the ordered values of an argument. It plans the component `running`
    instead if rows are never removed and the values are numbers; None: never.
    """

    def result(planner: Planner, call: AggregateCall) -> _Result:
        at = planner.register_argument(call.arguments[0])
        if running is not None and planner.keeps is InputRowsKept.ALL and call.type not in _CODED:
            return _Result(int(r.AS_IT_IS), planner.register_component(_Component(int(running), at)))
        (share,) = call.constants or (0.5,)
        assert isinstance(share, float)
        return _Result(int(how), planner.register_set(at), share=share)

    return result


def _nth(planner: Planner, call: AggregateCall) -> _Result:
    """Plans the value of the n-th row in order of arrival, counted from 1; n is the constant of the call, or 1."""
    (number,) = call.constants or (1,)
    assert isinstance(number, int)
    at = planner.register_argument(call.arguments[0])
    if planner.keeps is InputRowsKept.ALL:
        return _Result(int(r.AS_IT_IS), planner.register_component(_Component(int(k.NTH), at, number)))
    return _Result(int(r.ARRIVAL), planner.register_listed_argument(at), number - 1)


def _lag(planner: Planner, call: AggregateCall) -> _Result:
    """Plans the value of the row that is a constant number of rows before the last one."""
    (behind,) = call.constants
    assert isinstance(behind, int)
    at = planner.register_argument(call.arguments[0])
    if planner.keeps is InputRowsKept.ALL and behind < _NEWEST_MAX:
        return _Result(int(r.AS_IT_IS), planner.register_component(_Component(int(k.NEWEST), at, behind + 1)), offset=behind)
    return _Result(int(r.ARRIVAL), planner.register_listed_argument(at), -1 - behind)


def _listed(planner: Planner, call: AggregateCall) -> _Result:
    between = len(str(call.constants[0]).encode()) if call.constants else 1
    return _Result(int(r.LISTED), planner.register_listed_argument(planner.register_argument(call.arguments[0])), between)


_RESULTS: Mapping[Aggregate, Callable[[Planner, AggregateCall], _Result]] = MappingProxyType(
    {
        Aggregate.SUM: _summed,
        Aggregate.AVERAGE: _averaged,
        Aggregate.COUNT: _counted,
        Aggregate.COUNT_NON_NULL: _counted,
        Aggregate.COUNT_NULL: _nulls,
        Aggregate.COUNT_OPCODES: _opcodes,
        Aggregate.LAST: _value(k.LAST),
        Aggregate.LAST_NON_DELETE: _value(k.LAST_KEPT),
        Aggregate.LAST_OPCODE: _value(k.LAST_OPCODE),
        Aggregate.DEVIATION: _spread(r.DEVIATION),
        Aggregate.VARIANCE: _spread(r.VARIANCE),
        Aggregate.SPREAD: _spread(r.SPREAD),
        Aggregate.SQUARES: _squares,
        Aggregate.VARIATION: _spread(r.VARIATION),
        Aggregate.WEIGHTED: _weighted,
        Aggregate.IDENTIFIER: _value(k.EVENTS),
        Aggregate.SUM_TIMED: _timed(_summed),
        Aggregate.AVERAGE_TIMED: _timed(_averaged),
        Aggregate.COUNT_TIMED: _timed(_counted),
        Aggregate.MIN_TIMED: _timed(_extreme(k.LEAST, k.LEAST_TEXT)),
        Aggregate.MAX_TIMED: _timed(_extreme(k.GREATEST, k.GREATEST_TEXT)),
        Aggregate.MIN: _ordered(r.LEAST_VALUE, k.LEAST),
        Aggregate.MAX: _ordered(r.GREATEST_VALUE, k.GREATEST),
        Aggregate.COUNT_DISTINCT: _ordered(r.DISTINCT),
        Aggregate.MODE: _ordered(r.MODE),
        Aggregate.MEDIAN: _ordered(r.PERCENTILE),
        Aggregate.PERCENTILE: _ordered(r.PERCENTILE),
        Aggregate.FIRST: _nth,
        Aggregate.NTH: _nth,
        Aggregate.LAG: _lag,
        Aggregate.CONCATENATION: _listed,
        Aggregate.COLLECTION: _listed,
    }
)
