"""Python window over columns (SPEC A36): elementwise, so it does its work in the head or in the core alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.code_windows import copied_fields
from hotspare.model.resolved import ResolvedWindow
from hotspare.scripting.contract import Calls, ProgramText
from hotspare.scripting.programs import compile_program
from hotspare.scripting.python.instance import place_of_line
from hotspare.scripting.python.program import CallFailure
from hotspare.windows.python_columns.columns import ColumnFunction
from hotspare.windows.python_columns.declaration import PythonColumnsWindow
from hotspare.windows.shared.contract import Input
from hotspare.windows.shared.rowwise import RowWindow

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
