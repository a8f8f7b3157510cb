"""The modules of Arrow as user code sees them: arrays, scalars and types, and those functions that work row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.code.python.words import words

_REFUSED = frozenset({"random", "assume_timezone", "local_timestamp"})
"""Functions that draw numbers, or ask the machine for its time zones."""


def arrow_members() -> Mapping[str, Any]:
    """The module `pyarrow.compute`: what works row by row."""
    names = [name for name in pc.list_functions() if pc.get_function(name).kind == "scalar" and name not in _REFUSED]
    found = {called: getattr(pc, called) for name in names for called in (name, f"{name}_") if hasattr(pc, called)}
    return found | {"cast": pc.cast, "scalar": pa.scalar, "if_else": pc.if_else, "strftime": _strftime}


def _strftime(timestamps: Any, /, format: str = "%Y-%m-%dT%H:%M:%S", locale: str = "C") -> Any:
    if locale != "C":
        raise ValueError(f"the locale {locale} cannot be used, because those of machines differ: use C")
    return pc.strftime(timestamps, format)


def arrow_types() -> Mapping[str, Any]:
    """The module `pyarrow`: arrays, scalars and types."""

    def timestamp(unit: str, tz: str | None = None) -> pa.DataType:
        if tz not in (None, "UTC"):
            raise ValueError(f"the time zone {tz} cannot be used, because those of machines differ: use UTC")
        return pa.timestamp(unit, tz)

    names = words(
        """
        array scalar bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 string binary date32 decimal128 null
        nulls repeat
        """
    )
    return {name: getattr(pa, name) for name in names} | {"timestamp": timestamp}
