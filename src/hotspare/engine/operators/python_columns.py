"""Python window over columns (SPEC A36): elementwise, so it does its work in the head or in the core alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.engine.code.contract import Calls, ProgramText
from hotspare.engine.code.programs import compile_program
from hotspare.engine.code.python.columns import ColumnFunction
from hotspare.engine.code.python.instance import place_of_line
from hotspare.engine.code.python.program import CallFailure
from hotspare.engine.operators.contract import Input
from hotspare.engine.operators.rowwise import RowWindow
from hotspare.errors import Mistake, ProjectError
from hotspare.model.code_windows import copied_fields
from hotspare.model.resolve import ResolvedWindow
from hotspare.model.windows.python_columns import PythonColumnsWindow

_HINT = "see docs/windows/python.md#over-columns; a window of the type python takes one event at a time, and may do more"


class PythonColumnsOperator(RowWindow):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[Input]) -> None:
        declared = cast(PythonColumnsWindow, window.window)
        text = ProgramText(str(window.id), declared.script, modules=window.modules, calls=Calls.WITH_COLUMNS)
        compile_program(text)
        given = inputs[0].schema
        copied = frozenset(copied_fields(declared, given, window.schema))
        function = ColumnFunction.of(text, given, window.schema, copied)
        try:
            function.check()
        except CallFailure as failure:
            place = place_of_line(declared.script.code.place, failure.line)
            message = f"function {declared.script.function} of {text.owner} fails for any events: {failure.text}"
            raise ProjectError(text.name, [Mistake(place, message, _HINT)]) from failure
        super().__init__(window, inputs, function)
