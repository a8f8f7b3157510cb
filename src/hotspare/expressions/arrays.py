"""Values of several elements: array fields (SPEC A7), and lists and maps of strings, which properties of functional windows hold.

As in Spark elements of arrays count from 1, or from the end with negative numbers. Arrays are equal if their elements are, null
being equal to null, NaN to NaN and -0.0 to 0.0. Items of lists count from 0. Functions process whole columns: a list column is
offsets and values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import (
    BOOLEAN,
    INT32,
    INT64,
    LIST,
    MAP,
    STRING,
    Fallibility,
    Function,
    Rule,
    Signature,
    TypeMismatch,
    can_convert,
    eager,
    fixed_rule,
    infallible,
)
from hotspare.expressions.patterns import item_at_index
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.arrays import packed
from hotspare.rows.chunk import Int64s
from hotspare.rows.elementwise import true_rows

ELEMENT: dict[ValueType, ValueType] = {
    ValueType.INT32_ARRAY: ValueType.INT32,
    ValueType.INT64_ARRAY: ValueType.INT64,
    ValueType.DOUBLE_ARRAY: ValueType.DOUBLE,
}
"""The element type, by the type of an array field."""
ARRAY_TYPES = frozenset(ELEMENT)


def comparison_bytes(value: Value) -> Value:
    """Returns bytes for each array: two arrays have equal bytes if and only if the arrays are equal."""
    if isinstance(value, pa.Scalar):
        return comparison_bytes(pa.array([value.as_py()], value.type))[0]
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
    """Returns a rule for an array and arguments of the types `more`. The result type is `result`, or the element type if `result`
    is None.
    """

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        if len(types) != 1 + len(more):
            raise TypeMismatch(f"{len(types)} arguments given, not {1 + len(more)}", "give as many as it takes")
        if types[0] not in ARRAY_TYPES:
            raise TypeMismatch(f"{types[0].value} is not an array", "name an array field")
        for have, want in zip(types[1:], more, strict=True):
            if not can_convert(have, want, dialect):
                raise TypeMismatch(f"argument 2 has type {have.value}, not {want.value}", f"cast it to {want.value}")
        return Signature((types[0], *more), result or ELEMENT[types[0]])

    return rule


def _size(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    return pc.list_value_length(arguments[0])


def _place(frame: Frame, arguments: list[Value]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Returns, for each row, the array; the index from 0 of the requested element, null if that does not exist; and whether the
    index is out of range. The third is null if the array or the number is null.
    """
    arrays, number = frame.array(arguments[0]), frame.array(arguments[1])
    length = pc.list_value_length(arrays).cast(pa.int64())
    far = pc.max_element_wise(pc.min_element_wise(number, 2**32), -(2**32))  # differences of these do not overflow
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


def _split(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Returns the list of the parts of each text between separators, trimmed of white space. An empty text gives an empty list. A
    null or empty separator gives null.
    """
    text, separator = frame.array(arguments[0]), arguments[1].as_py()
    if not separator:
        return pa.scalar(None, call.type.arrow)
    some = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    parts = pc.split_pattern(some, separator)
    parts = _trimmed(parts)
    empty = pa.scalar([], call.type.arrow)
    return pc.if_else(pc.fill_null(pc.equal(text, ""), fill_value=False), empty, parts)


def _trimmed(lists: Value) -> Value:
    """Returns the lists with white space removed around each item."""
    values = pc.utf8_trim_whitespace(lists.values)
    mask = None if not lists.null_count else lists.is_null()
    return pa.ListArray.from_arrays(lists.offsets, values, mask=mask)


def _split_map(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Returns a map from each text: entries are divided by the outer separator, key and value by the inner one, both trimmed.
    Entries without the inner separator are dropped. An empty separator gives null.
    """
    text = frame.array(arguments[0])
    outer, inner = (argument.as_py() for argument in arguments[1:])
    if not outer or not inner:
        return pa.scalar(None, call.type.arrow)
    entries = pc.split_pattern(text, outer)
    parts = pc.split_pattern(entries.values, inner, max_splits=1)
    lengths = pc.list_value_length(parts).fill_null(0).to_numpy()
    kept = np.flatnonzero(lengths == 2)
    begins = parts.offsets.to_numpy()[:-1].astype(np.int64)[kept]
    keys, values = (pc.utf8_trim_whitespace(parts.values.take(pa.array(begins + i))) for i in (0, 1))
    ends = np.searchsorted(kept, entries.offsets.to_numpy().astype(np.int64)).astype(np.int32)
    absent = np.append(text.is_null().to_numpy(zero_copy_only=False), np.False_)
    return pa.MapArray.from_arrays(pa.array(ends, mask=absent), keys, values)


def _parents(lists: Value) -> tuple[Int64s, Int64s]:
    """Returns two arrays with one entry per item of all lists: the row of the item's list, and the item's index in
    `lists.values`.
    """
    offsets = lists.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets) * lists.is_valid().to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(lists)), lengths)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return rows, offsets[:-1][rows] + within


def _contains(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    lists, wanted = arguments[0], frame.array(arguments[1])
    if isinstance(lists, pa.Scalar):
        if not lists.is_valid:
            return pa.scalar(None, pa.bool_())
        return pc.if_else(wanted.is_valid(), pc.is_in(wanted, lists.values), pa.scalar(None, pa.bool_()))
    rows, places = _parents(lists)
    same = pc.equal(lists.values.take(pa.array(places)), wanted.take(pa.array(rows))).fill_null(False)  # noqa: FBT003
    found = np.bincount(rows[same.to_numpy(zero_copy_only=False)], minlength=len(lists)) > 0
    return pc.if_else(pc.and_(lists.is_valid(), wanted.is_valid()), pa.array(found), pa.scalar(None, pa.bool_()))


def _map_value(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    """Returns, for each map, the value of the first entry with the key; null if the map lacks the key."""
    maps, wanted = frame.array(arguments[0]), frame.array(arguments[1])
    rows, places = _parents(maps)
    at = pa.array(places)
    same = pc.equal(maps.keys.take(at), wanted.take(pa.array(rows))).fill_null(False)  # noqa: FBT003
    hits = np.flatnonzero(same.to_numpy(zero_copy_only=False))
    first = np.full(len(maps), -1, np.int64)
    first[rows[hits][::-1]] = places[hits][::-1]
    return maps.items.take(pa.array(first, mask=first < 0))


def _item(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    return item_at_index(frame.array(arguments[0]), frame.array(arguments[1]))


def _list_size(lists: Value) -> Value:
    return pc.list_value_length(lists)


def _map_size(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    maps = frame.array(arguments[0])
    sizes = np.diff(maps.offsets.to_numpy())
    return pc.if_else(maps.is_valid(), pa.array(sizes.astype(np.int32)), pa.scalar(None, pa.int32()))


def _index(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    lists, wanted = frame.array(arguments[0]), frame.array(arguments[1])
    rows, places = _parents(lists)
    same = pc.equal(lists.values.take(pa.array(places)), wanted.take(pa.array(rows))).fill_null(False)  # noqa: FBT003
    hits = np.flatnonzero(same.to_numpy(zero_copy_only=False))
    first = np.full(len(lists), -1, np.int64)
    begins = lists.offsets.to_numpy().astype(np.int64)[:-1]
    first[rows[hits][::-1]] = (places[hits] - begins[rows[hits]])[::-1]
    known = pc.and_(lists.is_valid(), wanted.is_valid())
    return pc.if_else(known, pa.array(first.astype(np.int32)), pa.scalar(None, pa.int32()))


def _joined(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    separator = arguments[1].as_py()
    return pa.scalar(None, pa.string()) if separator is None else pc.binary_join(frame.array(arguments[0]), separator)


FUNCTIONS: tuple[Function, ...] = (
    Function("size", _array_rule(INT32), eager(_size), "the count of elements of an array", ("size", "cardinality")),
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
        "the same; null if there is none",
        ("try_element_at",),
    ),
    Function(
        "list_of",
        fixed_rule(LIST, STRING, STRING),
        eager(_split),
        "listOf(text, separator): its parts, without blanks around them",
        esp_names=("listof",),
        literal_arguments=(1,),
    ),
    Function(
        "map_of",
        fixed_rule(MAP, STRING, STRING, STRING),
        eager(_split_map),
        "mapOf(text, outer, inner): pairs of a key and a value, with `inner` between the two and `outer` between pairs",
        esp_names=("mapof",),
        literal_arguments=(1, 2),
    ),
    Function(
        "list_item",
        fixed_rule(STRING, LIST, INT64),
        eager(_item),
        "the item of a list at an index from 0; null if there is none",
        esp_names=("listitem",),
    ),
    Function(
        "list_size",
        fixed_rule(INT32, LIST),
        infallible(_list_size),
        "the count of items of a list or set",
        esp_names=("listsize", "setsize"),
    ),
    Function(
        "list_index",
        fixed_rule(INT32, LIST, STRING),
        eager(_index),
        "first index from 0 of a text in a list; -1 if absent",
        esp_names=("listindex",),
    ),
    Function(
        "list_joined",
        fixed_rule(STRING, LIST, STRING),
        eager(_joined),
        "listString(list, separator): all items as one text",
        esp_names=("liststring",),
        literal_arguments=(1,),
    ),
    Function(
        "set_contains",
        fixed_rule(BOOLEAN, LIST, STRING),
        eager(_contains),
        "whether a set or list has a text",
        esp_names=("setcontains", "listcontains"),
    ),
    Function(
        "map_value",
        fixed_rule(STRING, MAP, STRING),
        eager(_map_value),
        "the value of a key; null if it is absent",
        esp_names=("mapvalue",),
    ),
    Function("map_size", fixed_rule(INT32, MAP), eager(_map_size), "the count of keys of a map", esp_names=("mapsize",)),
)
