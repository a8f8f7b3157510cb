"""Which operator runs which window type: one line per type."""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.engine.operators.aggregate import AggregateOperator
from hotspare.engine.operators.calculate import CalculateOperator
from hotspare.engine.operators.compute import ComputeOperator
from hotspare.engine.operators.contract import Input, Operator
from hotspare.engine.operators.copy import CopyOperator
from hotspare.engine.operators.counter import CounterOperator
from hotspare.engine.operators.custom import CustomOperator
from hotspare.engine.operators.filter import FilterOperator
from hotspare.engine.operators.functional import FunctionalOperator
from hotspare.engine.operators.geofence import GeofenceOperator
from hotspare.engine.operators.join import JoinOperator
from hotspare.engine.operators.lua import LuaOperator
from hotspare.engine.operators.pattern import PatternOperator
from hotspare.engine.operators.python import PythonOperator
from hotspare.engine.operators.python_columns import PythonColumnsOperator
from hotspare.engine.operators.remove_state import RemoveStateOperator
from hotspare.engine.operators.source import SourceOperator
from hotspare.engine.operators.statedb_reader import StatedbReaderOperator
from hotspare.engine.operators.statedb_writer import StatedbWriterOperator
from hotspare.engine.operators.transpose import TransposeOperator
from hotspare.engine.operators.union import UnionOperator
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.windows.aggregate import AggregateWindow
from hotspare.model.windows.calculate import CalculateWindow
from hotspare.model.windows.compute import ComputeWindow
from hotspare.model.windows.copy import CopyWindow
from hotspare.model.windows.counter import CounterWindow
from hotspare.model.windows.custom import CustomWindow
from hotspare.model.windows.filter import FilterWindow
from hotspare.model.windows.functional import FunctionalWindow
from hotspare.model.windows.geofence import GeofenceWindow
from hotspare.model.windows.join import JoinWindow
from hotspare.model.windows.lua import LuaWindow
from hotspare.model.windows.pattern import PatternWindow
from hotspare.model.windows.python import PythonWindow
from hotspare.model.windows.python_columns import PythonColumnsWindow
from hotspare.model.windows.remove_state import RemoveStateWindow
from hotspare.model.windows.source import SourceWindow
from hotspare.model.windows.statedb_reader import StatedbReaderWindow
from hotspare.model.windows.statedb_writer import StatedbWriterWindow
from hotspare.model.windows.transpose import TransposeWindow
from hotspare.model.windows.union import UnionWindow

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
