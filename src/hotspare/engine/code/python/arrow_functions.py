"""What of Arrow people's code finds: arrays, scalars and types, and those functions that work row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.engine.code.python.guards import Guards
from hotspare.engine.code.python.words import words

_NOT_BY_ROW = frozenset({"random"})


def arrow_members() -> Mapping[str, Any]:
    """The module `pyarrow.compute`: what works row by row."""
    names = [name for name in pc.list_functions() if pc.get_function(name).kind == "scalar" and name not in _NOT_BY_ROW]
    found = {called: getattr(pc, called) for name in names for called in (name, f"{name}_") if hasattr(pc, called)}
    return found | {"cast": pc.cast, "scalar": pa.scalar, "if_else": pc.if_else}


def arrow_types(guards: Guards) -> Mapping[str, Any]:
    """The module `pyarrow`: arrays, scalars and types."""

    def nulls(size: int, type: Any = None) -> pa.Array:
        guards.meter.charge(size)
        return pa.nulls(size, type)

    def repeat(value: Any, size: int) -> pa.Array:
        guards.meter.charge(size)
        return pa.repeat(value, size)

    names = words(
        """
        array scalar bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 string binary date32
        timestamp decimal128 null
        """
    )
    return {name: getattr(pa, name) for name in names} | {"nulls": nulls, "repeat": repeat}
