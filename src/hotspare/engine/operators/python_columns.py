"""Python window over columns (SPEC A36): elementwise, so it does its work in the head or in the core alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.engine.code.contract import ProgramText
from hotspare.engine.code.programs import compile_program
from hotspare.engine.code.python.columns import ColumnFunction
from hotspare.engine.operators.contract import Input
from hotspare.engine.operators.rowwise import RowWindow
from hotspare.model.code_windows import copied_fields
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.windows.python_columns import PythonColumnsWindow


class PythonColumnsOperator(RowWindow):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        declared = cast(PythonColumnsWindow, window.window)
        text = ProgramText(str(window.id), declared.script, modules=window.modules)
        compile_program(text)
        given = inputs[0].schema
        copied = frozenset(copied_fields(declared, given, window.schema))
        super().__init__(window, inputs, ColumnFunction.of(text, given, window.schema, copied))
