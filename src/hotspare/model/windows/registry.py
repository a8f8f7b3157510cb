"""Which window types there are: one line per type. Nothing else in the model names one."""

from __future__ import annotations

from typing import Any

from hotspare.model.project import Window
from hotspare.model.windows.aggregate import AggregateType
from hotspare.model.windows.calculate import CalculateType
from hotspare.model.windows.compute import ComputeType
from hotspare.model.windows.contract import WindowType
from hotspare.model.windows.copy import CopyType
from hotspare.model.windows.counter import CounterType
from hotspare.model.windows.custom import CustomType
from hotspare.model.windows.filter import FilterType
from hotspare.model.windows.functional import FunctionalType
from hotspare.model.windows.geofence import GeofenceType
from hotspare.model.windows.join import JoinType
from hotspare.model.windows.lua import LuaType
from hotspare.model.windows.pattern import PatternType
from hotspare.model.windows.python import PythonType
from hotspare.model.windows.python_columns import PythonColumnsType
from hotspare.model.windows.remove_state import RemoveStateType
from hotspare.model.windows.source import SourceType
from hotspare.model.windows.statedb_reader import StatedbReaderType
from hotspare.model.windows.statedb_writer import StatedbWriterType
from hotspare.model.windows.transpose import TransposeType
from hotspare.model.windows.union import UnionType

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
"""By name, in the order in which people are told of them."""

_BY_CLASS: dict[type[Window], WindowType[Any]] = {each.declared: each for each in WINDOW_TYPES.values()}


def type_of(window: Window) -> WindowType[Any]:
    return _BY_CLASS[type(window)]
