"""The modules of Arrow as user code sees them: arrays, scalars and types, and those functions that work row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.scripting.python.row_by_row import RowByRow
from hotspare.scripting.python.words import words

_REFUSED = frozenset({"random", "assume_timezone", "local_timestamp"})
"""Functions that draw numbers, or ask the machine for its time zones."""


OVER_ROWS = tuple(name for name in pc.list_functions() if pc.get_function(name).kind != "scalar" and hasattr(pc, name))
"""Functions that look from one row at another."""


def arrow_members(rows: RowByRow) -> Mapping[str, Any]:
    """The module `pyarrow.compute`: what works row by row."""
    arities = {name: pc.get_function(name).arity for name in pc.list_functions() if pc.get_function(name).kind == "scalar"}
    called = {each: name for name in arities.keys() - _REFUSED for each in (name, f"{name}_") if hasattr(pc, each)}
    found = {each: rows.function(getattr(pc, each), arities[called[each]]) for each in sorted(called)}
    return found | {"cast": rows.function(pc.cast, 1), "strftime": rows.function(_strftime, 1), "scalar": pa.scalar}


def _strftime(timestamps: Any, /, format: str = "%Y-%m-%dT%H:%M:%S", locale: str = "C") -> Any:
    if locale != "C":
        raise ValueError(f"the locale {locale} cannot be used, because those of machines differ: use C")
    return pc.strftime(timestamps, format)


def arrow_types(rows: RowByRow) -> Mapping[str, Any]:
    """The module `pyarrow`: arrays, scalars and types."""

    def timestamp(unit: str, tz: str | None = None) -> pa.DataType:
        if tz not in (None, "UTC"):
            raise ValueError(f"the time zone {tz} cannot be used, because those of machines differ: use UTC")
        return pa.timestamp(unit, tz)

    names = words(
        """
        scalar bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 string binary date32 decimal128 null
        """
    )
    return {name: getattr(pa, name) for name in names} | {"array": rows.array, "timestamp": timestamp}
