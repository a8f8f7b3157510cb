"""Values of array fields (SPEC A7): Arrow lists of numbers, their text, and their bytes.

The text of an array is `[a;b;c]`, with `null` for a null element; `[]` is an array without elements. An empty element is parsed as
null, too. The string table stores an array as bytes: for each element one byte (1 if the element is not null) and the 8 bytes of
its value. So equal arrays have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.model.types import FieldType
from hotspare.rows.elementwise import Rows, either, true_mask, true_rows, with_nulls

ELEMENT: dict[FieldType, FieldType] = {
    FieldType.INT32_ARRAY: FieldType.INT32,
    FieldType.INT64_ARRAY: FieldType.INT64,
    FieldType.DOUBLE_ARRAY: FieldType.DOUBLE,
}
"""The type of the elements, by type of the array."""
_PACKED = np.dtype([("valid", "u1"), ("value", "<i8")])
_NULL_TEXT = "null"


def texts_of(arrays: pa.Array, text_of: Callable[[pa.Array], pa.Array], separator: str = ";") -> pa.Array:
    """Returns the text of each array, null for a null array. `text_of` converts an array of elements to texts, null for null
    elements; `separator` separates the elements."""
    elements = text_of(arrays.flatten()).fill_null(_NULL_TEXT)
    inner = pc.binary_join(pa.ListArray.from_arrays(_offsets(arrays), elements), separator)
    return with_nulls(pc.binary_join_element_wise("[", inner, "]", ""), np.flatnonzero(~_validity(arrays)))


def parse_arrays(texts: pa.Array, type_: pa.DataType, parse: Callable[[pa.Array], tuple[pa.Array, Rows]]) -> tuple[pa.Array, Rows]:
    """Parses texts such as `[a;b;c]`. Returns arrays of the list type `type_`, and the rows with invalid text (null there). `parse`
    converts texts of elements in the same way: it returns values, and the indexes of invalid texts."""
    trimmed = pc.utf8_trim_whitespace(texts)
    shapeless = true_rows(pc.invert(pc.match_substring_regex(trimmed, r"(?s)^\[[^\[\]]*\]$")))
    inner = pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(with_nulls(trimmed, shapeless), 1, -1))
    split = pc.split_pattern(inner, ";")
    counts = np.where(true_mask(pc.equal(inner, "")), 0, pc.list_value_length(split).fill_null(0).to_numpy())
    parts = pc.utf8_trim_whitespace(split.filter(pa.array(counts > 0)).flatten())
    nothing = pc.or_(pc.equal(parts, ""), pc.equal(pc.utf8_lower(parts), _NULL_TEXT))
    values, bad = parse(with_nulls(parts, true_rows(nothing)))
    owner = np.repeat(np.arange(len(texts)), counts)
    wrong = either(len(texts), shapeless, owner[bad])
    is_null = ~true_mask(texts.is_valid())
    is_null[wrong] = True
    return _listed(values, counts, is_null, type_), wrong


def packed(arrays: pa.Array) -> pa.Array:
    """Returns the bytes of each array, as an Arrow binary array; null for a null array. Raises ArrowInvalid if all together take 2
    GiB or more."""
    elements, offsets = arrays.flatten(), _offsets(arrays).to_numpy().astype(np.int64) * _PACKED.itemsize
    room = np.zeros(len(elements), _PACKED)
    room["valid"] = true_mask(elements.is_valid())
    numbers = elements.fill_null(0).to_numpy(zero_copy_only=False)
    room["value"] = numbers.view(np.int64) if numbers.dtype == np.float64 else numbers
    if offsets[-1] >= 2**31:
        raise pa.ArrowInvalid("the arrays of all rows together are more than one array holds")
    buffers = [_mask(arrays), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(room.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(arrays), buffers)


def unpacked(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Returns the arrays of the list type `type_` from the bytes that `packed` returned; null for null."""
    lengths = pc.binary_length(values).fill_null(0).to_numpy()
    data = np.frombuffer(b"".join(value for value in values.to_pylist() if value), _PACKED)
    numbers = np.ascontiguousarray(data["value"])
    is_double = pa.types.is_floating(type_.value_type)
    elements = pa.array(numbers.view(np.float64) if is_double else numbers).cast(type_.value_type)
    elements = with_nulls(elements, np.flatnonzero(data["valid"] == 0))
    return _listed(elements, lengths // _PACKED.itemsize, ~true_mask(values.is_valid()), type_)


def _listed(elements: pa.Array, counts: np.ndarray, is_null: np.ndarray, type_: pa.DataType) -> pa.Array:
    """Returns lists of type `type_`: list i has the next `counts[i]` of `elements`. A list is null if `is_null`; its elements are
    dropped."""
    if (counts[is_null] > 0).any():
        elements = elements.filter(pa.array(np.repeat(~is_null, counts)))
        counts = np.where(is_null, 0, counts)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), elements.cast(type_.value_type), mask=pa.array(is_null))
    return lists.cast(type_)


def _offsets(arrays: pa.Array) -> pa.Array:
    """Returns the offsets of each array's elements in `arrays.flatten()`, which omits the elements of null arrays."""
    counts = pc.list_value_length(arrays).fill_null(0).to_numpy()
    return pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))


def _validity(arrays: pa.Array) -> np.ndarray:
    return true_mask(arrays.is_valid())


def _mask(arrays: pa.Array) -> pa.Buffer | None:
    valid = _validity(arrays)
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
