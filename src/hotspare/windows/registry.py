"""The table of all window types. To add a type, add its declaration here; `windows.shared.contract.build_operator` finds its
operator.

Projects of their examples warm up an engine, and the laws run them.
"""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent
from typing import Any

from hotspare.model.window_type import WindowType
from hotspare.windows.aggregate.declaration import AggregateType
from hotspare.windows.calculate.declaration import CalculateType
from hotspare.windows.compute.declaration import ComputeType
from hotspare.windows.copy.declaration import CopyType
from hotspare.windows.counter.declaration import CounterType
from hotspare.windows.custom.declaration import CustomType
from hotspare.windows.filter.declaration import FilterType
from hotspare.windows.functional.declaration import FunctionalType
from hotspare.windows.geofence.declaration import GeofenceType
from hotspare.windows.join.declaration import JoinType
from hotspare.windows.lua.declaration import LuaType
from hotspare.windows.pattern.declaration import PatternType
from hotspare.windows.python.declaration import PythonType
from hotspare.windows.python_columns.declaration import PythonColumnsType
from hotspare.windows.remove_state.declaration import RemoveStateType
from hotspare.windows.source.declaration import SourceType
from hotspare.windows.statedb_reader.declaration import StatedbReaderType
from hotspare.windows.statedb_writer.declaration import StatedbWriterType
from hotspare.windows.transpose.declaration import TransposeType
from hotspare.windows.union.declaration import UnionType

WINDOW_TYPES: dict[str, WindowType[Any]] = {
    each.name: each
    for each in (
        SourceType(),
        CopyType(),
        FilterType(),
        ComputeType(),
        FunctionalType(),
        CalculateType(),
        UnionType(),
        JoinType(),
        LuaType(),
        PythonType(),
        PythonColumnsType(),
        CustomType(),
        RemoveStateType(),
        CounterType(),
        TransposeType(),
        PatternType(),
        GeofenceType(),
        AggregateType(),
        StatedbWriterType(),
        StatedbReaderType(),
    )
}
"""The window types by name, in the order in which commands list them to users."""


def example_project(name: str) -> str:
    """Returns the YAML of a project whose one query is the example of the window type `name`."""
    return f"project: example\nqueries:\n{_query(name)}"


def examples_project(types: Iterable[str]) -> str:
    """Returns the YAML of a project with one query for each of these types; a query has the name of its type."""
    return "project: examples\nqueries:\n" + "".join(map(_query, types))


def _query(name: str) -> str:
    return f"  {name}:\n{indent(WINDOW_TYPES[name].example.strip(), '    ')}\n"
