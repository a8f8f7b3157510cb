"""The operators of all window types, by class of window: one line per type."""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.model.resolved import ResolvedWindow
from hotspare.windows.aggregate.declaration import AggregateWindow
from hotspare.windows.aggregate.operator import AggregateOperator
from hotspare.windows.calculate.declaration import CalculateWindow
from hotspare.windows.calculate.operator import CalculateOperator
from hotspare.windows.compute.declaration import ComputeWindow
from hotspare.windows.compute.operator import ComputeOperator
from hotspare.windows.copy.declaration import CopyWindow
from hotspare.windows.copy.operator import CopyOperator
from hotspare.windows.counter.declaration import CounterWindow
from hotspare.windows.counter.operator import CounterOperator
from hotspare.windows.custom.declaration import CustomWindow
from hotspare.windows.custom.operator import CustomOperator
from hotspare.windows.filter.declaration import FilterWindow
from hotspare.windows.filter.operator import FilterOperator
from hotspare.windows.functional.declaration import FunctionalWindow
from hotspare.windows.functional.operator import FunctionalOperator
from hotspare.windows.geofence.declaration import GeofenceWindow
from hotspare.windows.geofence.operator import GeofenceOperator
from hotspare.windows.join.declaration import JoinWindow
from hotspare.windows.join.operator import JoinOperator
from hotspare.windows.lua.declaration import LuaWindow
from hotspare.windows.lua.operator import LuaOperator
from hotspare.windows.pattern.declaration import PatternWindow
from hotspare.windows.pattern.operator import PatternOperator
from hotspare.windows.python.declaration import PythonWindow
from hotspare.windows.python.operator import PythonOperator
from hotspare.windows.python_columns.declaration import PythonColumnsWindow
from hotspare.windows.python_columns.operator import PythonColumnsOperator
from hotspare.windows.remove_state.declaration import RemoveStateWindow
from hotspare.windows.remove_state.operator import RemoveStateOperator
from hotspare.windows.shared.contract import Input, Operator
from hotspare.windows.source.declaration import SourceWindow
from hotspare.windows.source.operator import SourceOperator
from hotspare.windows.statedb_reader.declaration import StatedbReaderWindow
from hotspare.windows.statedb_reader.operator import StatedbReaderOperator
from hotspare.windows.statedb_writer.declaration import StatedbWriterWindow
from hotspare.windows.statedb_writer.operator import StatedbWriterOperator
from hotspare.windows.transpose.declaration import TransposeWindow
from hotspare.windows.transpose.operator import TransposeOperator
from hotspare.windows.union.declaration import UnionWindow
from hotspare.windows.union.operator import UnionOperator

OPERATORS: dict[type, type[Operator]] = {
    SourceWindow: SourceOperator,
    CopyWindow: CopyOperator,
    ComputeWindow: ComputeOperator,
    FilterWindow: FilterOperator,
    FunctionalWindow: FunctionalOperator,
    CalculateWindow: CalculateOperator,
    UnionWindow: UnionOperator,
    JoinWindow: JoinOperator,
    LuaWindow: LuaOperator,
    PythonWindow: PythonOperator,
    PythonColumnsWindow: PythonColumnsOperator,
    CustomWindow: CustomOperator,
    RemoveStateWindow: RemoveStateOperator,
    CounterWindow: CounterOperator,
    TransposeWindow: TransposeOperator,
    PatternWindow: PatternOperator,
    GeofenceWindow: GeofenceOperator,
    AggregateWindow: AggregateOperator,
    StatedbWriterWindow: StatedbWriterOperator,
    StatedbReaderWindow: StatedbReaderOperator,
}


def build_operator(window: ResolvedWindow, inputs: Sequence[Input]) -> Operator:
    """The operator of a window; ProjectError with the mistakes that only compiling shows."""
    return OPERATORS[type(window.window)](window, inputs)
