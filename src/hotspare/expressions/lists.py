"""Lists and maps of strings: what properties of a functional window hold. Columns at once: a list column is offsets and values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import BOOLEAN, INT32, INT64, LIST, MAP, STRING, Function, eager, fixed, plain
from hotspare.expressions.patterns import item_of
from hotspare.expressions.tree import TypedCall
from hotspare.rows.chunk import Int64s


def _split(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """An empty text is an empty list."""
    text, separator = frame.array(arguments[0]), arguments[1].as_py()
    if not separator:
        return pa.scalar(None, call.type.arrow)
    some = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    parts = pc.split_pattern(some, separator)
    parts = _trimmed(parts)
    empty = pa.scalar([], call.type.arrow)
    return pc.if_else(pc.fill_null(pc.equal(text, ""), fill_value=False), empty, parts)


def _trimmed(lists: Value) -> Value:
    """Each item without blanks around it."""
    values = pc.utf8_trim_whitespace(lists.values)
    mask = None if not lists.null_count else lists.is_null()
    return pa.ListArray.from_arrays(lists.offsets, values, mask=mask)


def _split_map(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Entries without the inner separator are left out."""
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
    """Of each item in all lists: its row, and its place among the values."""
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
    """Of a key that stands there twice the first value; null where it does not stand there."""
    maps, wanted = frame.array(arguments[0]), frame.array(arguments[1])
    rows, places = _parents(maps)
    at = pa.array(places)
    same = pc.equal(maps.keys.take(at), wanted.take(pa.array(rows))).fill_null(False)  # noqa: FBT003
    hits = np.flatnonzero(same.to_numpy(zero_copy_only=False))
    first = np.full(len(maps), -1, np.int64)
    first[rows[hits][::-1]] = places[hits][::-1]
    return maps.items.take(pa.array(first, mask=first < 0))


def _item(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    return item_of(frame.array(arguments[0]), frame.array(arguments[1]))


def _size(lists: Value) -> Value:
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
    Function(
        "list_of",
        fixed(LIST, STRING, STRING),
        eager(_split),
        "listOf(text, separator): its parts, without blanks around them",
        esp=("listof",),
        literals=(1,),
    ),
    Function(
        "map_of",
        fixed(MAP, STRING, STRING, STRING),
        eager(_split_map),
        "mapOf(text, outer, inner): pairs of a key and a value, with `inner` between the two and `outer` between pairs",
        esp=("mapof",),
        literals=(1, 2),
    ),
    Function(
        "list_item",
        fixed(STRING, LIST, INT64),
        eager(_item),
        "the item of a list at an index from 0; null if there is none",
        esp=("listitem",),
    ),
    Function("list_size", fixed(INT32, LIST), plain(_size), "how many items a list or set has", esp=("listsize", "setsize")),
    Function(
        "list_index",
        fixed(INT32, LIST, STRING),
        eager(_index),
        "first index from 0 of a text in a list; -1 if absent",
        esp=("listindex",),
    ),
    Function(
        "list_joined",
        fixed(STRING, LIST, STRING),
        eager(_joined),
        "listString(list, separator): all items as one text",
        esp=("liststring",),
        literals=(1,),
    ),
    Function(
        "set_contains",
        fixed(BOOLEAN, LIST, STRING),
        eager(_contains),
        "whether a set or list has a text",
        esp=("setcontains", "listcontains"),
    ),
    Function(
        "map_value", fixed(STRING, MAP, STRING), eager(_map_value), "the value of a key; null if it is absent", esp=("mapvalue",)
    ),
    Function("map_size", fixed(INT32, MAP), eager(_map_size), "how many keys a map has", esp=("mapsize",)),
)
