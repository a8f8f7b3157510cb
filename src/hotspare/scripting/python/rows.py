"""Events as dicts for people's Python code, and back: the loop over fields is written out once for each schema.

A loop over the fields of each event costs more than most people's functions. So a schema becomes the text of two Python functions,
which name its fields one by one; field names get in as literals alone.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.model.types import TIME_TYPES, FieldType, Schema
from hotspare.rows.batch import ARROW_TYPE
from hotspare.scripting.contract import NO_OPCODE, OPCODE_KEY, CodeFailure, opcode_of
from hotspare.scripting.fields import ColumnBuilder, Unfit, kind_of, plain_values
from hotspare.scripting.python.kept import KeptDict, SeenEvent
from hotspare.scripting.python.plain_values import plain_value

DICTS = frozenset({dict, KeptDict, SeenEvent, defaultdict, OrderedDict})
"""What counts as an event where code returns it."""

_FITS = {
    FieldType.INT32: "type({v}) is int and -2147483648 <= {v} <= 2147483647",
    FieldType.INT64: "type({v}) is int and -9223372036854775808 <= {v} <= 9223372036854775807",
    FieldType.DATE: "type({v}) is int and -9223372036854775808 <= {v} <= 9223372036854775807",
    FieldType.STAMP: "type({v}) is int and -9223372036854775808 <= {v} <= 9223372036854775807",
    FieldType.DOUBLE: "type({v}) is float",
    FieldType.STRING: "type({v}) is str and {v}.isascii()",
    FieldType.BLOB: "type({v}) is bytes",
}
"""What a field takes as it is."""


def event_rows(schema: Schema, columns: Sequence[pa.Array], count: int) -> list[dict[str, Any]]:
    """One dict per event; a null is not in it, and reads as None."""
    if not columns:
        return [{} for _ in range(count)]
    rows = _row_maker(schema.names)(*(plain_values(column, f.type) for column, f in zip(columns, schema.fields, strict=True)))
    if any(column.null_count for column in columns):
        some = np.zeros(count, np.bool_)
        for column in columns:
            if column.null_count:
                some |= column.is_null().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(some).tolist():
            rows[row] = SeenEvent({name: value for name, value in rows[row].items() if value is not None})
    return rows


@lru_cache(maxsize=256)
def _row_maker(names: tuple[str, ...]) -> Callable[..., list[dict[str, Any]]]:
    variables = [f"v{i}" for i in range(len(names))]
    pairs = ", ".join(f"{name!r}: {v}" for name, v in zip(names, variables, strict=True))
    lists = ", ".join(f"a{i}" for i in range(len(names)))
    walked = f"for {', '.join(variables)}, in zip({lists}, strict=True)"
    return _made(f"def make({lists}):\n    return [{{{pairs}}} {walked}]\n", {})


class EventReader:
    """Reads events of a schema from what code returns: a tuple of an opcode and a value per field for each."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._read = _reader(schema)

    def read(self, returned: Any) -> list[tuple[Any, ...]]:
        """CodeFailure where it is no event, list of events or nothing, which False is, too."""
        if type(returned) in DICTS:
            return [self._read(returned)]
        if returned is None or returned is False:
            return []
        if not isinstance(returned, list | tuple):
            raise CodeFailure(f"returns {kind_of(returned)}, not an event, a list of events, or nothing")
        for event in returned:
            if type(event) not in DICTS:
                raise CodeFailure(f"returns {kind_of(event)} in a list, not an event, a list of events, or nothing")
        return [self._read(event) for event in returned]


class MadeColumns:
    """Events that were read, parted by fields."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._opcodes: list[int] = []
        self._values: list[list[Any]] = [[] for _ in schema.fields]

    def add(self, events: Sequence[tuple[Any, ...]]) -> None:
        """What `EventReader.read` returned, not very many at a time: parting them is fastest while they are fresh, and what is not
        kept the garbage collector does not look through."""
        if events:
            for values, more in zip((self._opcodes, *self._values), zip(*events, strict=True), strict=True):
                values.extend(more)

    def arrays(self) -> tuple[np.ndarray[Any, Any], list[pa.Array]]:
        """Opcodes uint8[n], and an Arrow array per field."""
        arrays = [_array(values, field.type) for values, field in zip(self._values, self._schema.fields, strict=True)]
        return np.array(self._opcodes, np.uint8), arrays


def _array(values: Sequence[Any], type_: FieldType) -> pa.Array:
    return pa.array(values, pa.int64()).cast(ARROW_TYPE[type_]) if type_ in TIME_TYPES else pa.array(values, ARROW_TYPE[type_])


@lru_cache(maxsize=256)
def _reader(schema: Schema) -> Callable[[Any], tuple[Any, ...]]:
    lines = ["def make(event):", f"    o = get(event, {OPCODE_KEY!r})", f"    o = {NO_OPCODE} if o is None else opcode_of(o)"]
    for i, field in enumerate(schema.fields):
        fits = _FITS.get(field.type, "False").format(v=f"v{i}")
        lines += [
            f"    v{i} = get(event, {field.name!r})",
            f"    if not ({fits}) and v{i} is not None:",
            f"        v{i} = fit{i}(v{i})",
        ]
    lines.append(f"    return (o, {', '.join(f'v{i}' for i in range(len(schema)))},)")
    names: dict[str, Any] = {f"fit{i}": _fitting(f.name, f.type) for i, f in enumerate(schema.fields)}
    return _made("\n".join(lines), names | {"get": dict.get, "opcode_of": opcode_of})


def _fitting(name: str, type_: FieldType) -> Callable[[Any], Any]:
    column = ColumnBuilder(type_)

    def fit(value: Any) -> Any:
        try:
            return column.fitted(plain_value(value))
        except Unfit as unfit:
            raise CodeFailure(f"field {name}: {unfit}", reason=unfit.reason) from unfit

    return fit


def _made(text: str, names: dict[str, Any]) -> Callable[..., Any]:
    exec(text, names)  # noqa: S102 our own text, in which names of fields are literals
    made: Callable[..., Any] = names["make"]
    return made
