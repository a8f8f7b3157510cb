"""Array fields in expressions (SPEC A7): how many elements, one of them, and whether two arrays are equal.

As in Spark elements count from 1, or from the end with negative numbers. Arrays are equal where their elements are, null being
equal to null, NaN to NaN and -0.0 to 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import INT32, INT64, Fallibility, Function, Rule, Signature, TypeMismatch, converts, eager
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.arrays import packed
from hotspare.rows.elementwise import true_rows

ELEMENT: dict[ValueType, ValueType] = {
    ValueType.INT32_ARRAY: ValueType.INT32,
    ValueType.INT64_ARRAY: ValueType.INT64,
    ValueType.DOUBLE_ARRAY: ValueType.DOUBLE,
}
"""Of the types of arrays that of their elements."""
ARRAYS = frozenset(ELEMENT)


def comparable(value: Value) -> Value:
    """Bytes that are equal where the arrays are."""
    if isinstance(value, pa.Scalar):
        return comparable(pa.array([value.as_py()], value.type))[0]
    if pa.types.is_floating(value.type.value_type):
        value = _with_plain_doubles(value)
    return packed(value)


def _with_plain_doubles(arrays: pa.Array) -> pa.Array:
    elements = arrays.flatten()
    plain = pc.if_else(pc.equal(elements, 0.0), 0.0, pc.if_else(pc.is_nan(elements), float("nan"), elements))
    offsets = np.concatenate(([0], np.cumsum(pc.list_value_length(arrays).fill_null(0).to_numpy()))).astype(np.int32)
    mask = None if not arrays.null_count else arrays.is_null()
    return pa.ListArray.from_arrays(pa.array(offsets), plain, mask=mask)


def _array_rule(result: ValueType | None, *more: ValueType) -> Rule:
    """An array, and arguments of these types; the result is of `result`, or of the type of the elements."""

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        if len(types) != 1 + len(more):
            raise TypeMismatch(f"{len(types)} arguments given, {1 + len(more)} wanted", "give as many as it takes")
        if types[0] not in ARRAYS:
            raise TypeMismatch(f"{types[0].value} is no array", "name an array field")
        for have, want in zip(types[1:], more, strict=True):
            if not converts(have, want, dialect):
                raise TypeMismatch(f"argument 2 is {have.value}, {want.value} is wanted", f"cast it to {want.value}")
        return Signature((types[0], *more), result or ELEMENT[types[0]])

    return rule


def _size(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    return pc.list_value_length(arguments[0])


def _place(frame: Frame, arguments: list[Value]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """The arrays; from 0, which element of each is asked for, null where there is no such one; and whether that is so although
    neither array nor number is null."""
    arrays, number = frame.array(arguments[0]), frame.array(arguments[1])
    length = pc.list_value_length(arrays).cast(pa.int64())
    far = pc.max_element_wise(pc.min_element_wise(number, 2**32), -(2**32))  # differences of these are no overflow
    place = pc.if_else(pc.greater(number, 0), pc.subtract(far, 1), pc.add(length, far))
    there = pc.and_(pc.and_(pc.not_equal(number, 0), pc.greater_equal(place, 0)), pc.less(place, length))
    return arrays, pc.if_else(there, place, pa.scalar(None, pa.int64())), pc.invert(there)


def _taken(arrays: pa.Array, place: pa.Array) -> pa.Array:
    starts = np.concatenate(([0], np.cumsum(pc.list_value_length(arrays).fill_null(0).to_numpy())))[:-1]
    elements = arrays.flatten()
    if not len(elements):
        return pa.nulls(len(arrays), arrays.type.value_type)
    return elements.take(pc.add(place, pa.array(starts.astype(np.int64))))


def _element_at(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    arrays, place, missing = _place(frame, arguments)
    frame.fail(true_rows(missing), "the array has no such element")
    return _taken(arrays, place)


def _try_element_at(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    arrays, place, _ = _place(frame, arguments)
    return _taken(arrays, place)


FUNCTIONS: tuple[Function, ...] = (
    Function("size", _array_rule(INT32), eager(_size), "how many elements an array has", ("size", "cardinality")),
    Function(
        "element_at",
        _array_rule(None, INT64),
        eager(_element_at),
        "the element of an array with this number, from 1, or from the end with negative ones",
        ("element_at",),
        fallibility=Fallibility.ROW,
    ),
    Function(
        "try_element_at",
        _array_rule(None, INT64),
        eager(_try_element_at),
        "the same; null where there is none",
        ("try_element_at",),
    ),
)
