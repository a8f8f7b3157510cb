"""Variables of SAS code that hold arrays: elements numbered from 1, which code reads, sets, and allocates (SPEC A24).

An array is an immutable value: setting an element makes another array. So code over columns and code row by row give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from hotspare.expressions.arrays import ELEMENT
from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import (
    INT64,
    LIST,
    STRING,
    Fallibility,
    Function,
    Rule,
    Signature,
    TypeMismatch,
    eager,
    fixed_rule,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.chunk import Bools, Int64s

ARRAY_LENGTH_MAX = 1_000
"""The maximum number of elements of an array variable. The limit is low because setting one element copies all."""
ELEMENT_BYTES_MAX = 4_096
"""The maximum length of an element that is a text, in bytes."""
ELEMENT_OF = MappingProxyType(ELEMENT | {LIST: STRING})
"""The element type, by the type of an array variable. A list of strings is such an array too."""
ARRAY_OF = MappingProxyType({element.value: array.value for array, element in ELEMENT_OF.items()})
"""The name of an array type, by the name of its element type."""
_NO_ELEMENT = "the array has no such element"


def _same(array: ValueType) -> ValueType:
    return array


def _element(array: ValueType) -> ValueType:
    return ELEMENT_OF[array]


def _rule(result: Callable[[ValueType], ValueType], *arguments: Callable[[ValueType], ValueType]) -> Rule:
    """Returns a rule for an array and further arguments. `result` and `arguments` compute each type from the type of the array."""

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        if not types or types[0] not in ELEMENT_OF:
            raise TypeMismatch("the first argument is not an array", "declare an array, such as integer array a")
        return fixed_rule(result(types[0]), types[0], *(each(types[0]) for each in arguments))(types, dialect)

    return rule


def _number(_array: ValueType) -> ValueType:
    return INT64


def _begins(arrays: pa.Array) -> tuple[Int64s, Int64s]:
    """Returns, for each array, the index of its first element in the flattened column, and its length. A null array has
    length 0.
    """
    lengths = np.diff(arrays.offsets.to_numpy().astype(np.int64)) * arrays.is_valid().to_numpy(zero_copy_only=False)
    return np.cumsum(lengths) - lengths, lengths


def _places(frame: Frame, arguments: Sequence[Value]) -> tuple[pa.Array, Int64s, Bools]:
    """Returns the flattened elements; the index of each row's requested element among them; and whether that element exists. The
    index is 0 if it does not.
    """
    arrays, number = frame.array(arguments[0]), frame.array(arguments[1]).fill_null(0).to_numpy()
    begins, lengths = _begins(arrays)
    there: Bools = (number >= 1) & (number <= lengths)
    return arrays.flatten(), np.where(there, begins + number - 1, 0), there


def _item(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    elements, places, there = _places(frame, arguments)
    if not len(elements):
        return pa.nulls(frame.length, call.type.arrow)
    return elements.take(pa.array(places, mask=~there))


def _with_item(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    elements, places, there = _places(frame, arguments)
    arrays, value = frame.array(arguments[0]), frame.array(arguments[2])
    frame.fail(np.flatnonzero(~there), _NO_ELEMENT)
    if call.type is LIST:
        sizes = [0 if text is None else len(text.encode()) for text in value.to_pylist()]
        beyond = np.array(sizes, np.int64) > ELEMENT_BYTES_MAX
        frame.fail(np.flatnonzero(beyond), f"an element has more than {ELEMENT_BYTES_MAX} bytes")
        there = there & ~beyond
    source = np.arange(len(elements))
    source[places[there]] = len(elements) + np.flatnonzero(there)
    _, lengths = _begins(arrays)
    return _arrays(pa.concat_arrays([elements, value]).take(pa.array(source)), lengths, ~there)


def _resized(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    arrays, wanted = frame.array(arguments[0]), frame.array(arguments[1])
    length = wanted.fill_null(-1).to_numpy()
    wrong = (length < 0) | (length > ARRAY_LENGTH_MAX)
    frame.fail(np.flatnonzero(wrong), f"an array has 0 to {ARRAY_LENGTH_MAX} elements")
    length = np.where(wrong, 0, length)
    begins, lengths = _begins(arrays)
    row = np.repeat(np.arange(len(length)), length)
    within = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
    kept, elements = within < lengths[row], arrays.flatten()
    if not len(elements):
        made = pa.nulls(len(row), ELEMENT_OF[call.type].arrow)
    else:
        made = elements.take(pa.array(np.where(kept, begins[row] + within, 0), mask=~kept))
    return _arrays(made, length, wrong)


def _arrays(elements: pa.Array, lengths: Int64s, is_null: Bools) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=pa.array(is_null) if is_null.any() else None)


FUNCTIONS: tuple[Function, ...] = (
    Function("array_item", _rule(_element, _number), eager(_item), "the element of an array; null if there is none"),
    Function(
        "array_with",
        _rule(_same, _number, _element),
        eager(_with_item),
        "the array with another element",
        fallibility=Fallibility.ROW,
    ),
    Function(
        "array_resized",
        _rule(_same, _number),
        eager(_resized),
        "the array with this count of elements",
        fallibility=Fallibility.ROW,
    ),
)
