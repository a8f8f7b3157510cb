"""Which languages people's code may be written in: one line each."""

from __future__ import annotations

from collections.abc import Callable

from hotspare.engine.code.contract import Program, ProgramText
from hotspare.engine.code.lua.program import LuaProgram
from hotspare.engine.code.python.instance import PythonProgram
from hotspare.errors import Mistake, ProjectError
from hotspare.model.code import Language

_PROGRAMS: dict[Language, Callable[[ProgramText], Program]] = {Language.LUA: LuaProgram, Language.PYTHON: PythonProgram}


def compile_program(text: ProgramText) -> Program:
    """ProjectError where it cannot be loaded, or does not define the functions that are called."""
    program = _PROGRAMS[text.script.language](text)
    mistakes = [
        Mistake(
            text.script.code.place,
            f"the code of window {text.name} defines no function {function}",
            f"define the function {function}, or name another one",
        )
        for function in (text.script.function, text.script.init)
        if function and not program.defines(function)
    ]
    if mistakes:
        raise ProjectError(text.name, mistakes)
    return program
