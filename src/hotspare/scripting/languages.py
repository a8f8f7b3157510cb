"""Compiles user code in either language, and the state that the code of a project shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.code import Language, Module, ModuleUse, Script
from hotspare.model.code_imports import may_share_state
from hotspare.scripting.contract import Program, ProgramText
from hotspare.scripting.shared import InitialSharedState, Properties


def compile_user_code(text: ProgramText) -> Program:
    """Returns the compiled program. Raises ProjectError if the code cannot be loaded, or lacks a function that the window calls."""
    program = _program(text)
    _check(text, program)
    return program


def _program(text: ProgramText) -> Program:
    """Returns the compiled program. Imports only the interpreter of its language: few projects have code, and fewer in both
    languages.
    """
    if text.script.language is Language.LUA:
        from hotspare.scripting.lua.program import LuaProgram

        return LuaProgram(text)
    from hotspare.scripting.python.instance import PythonProgram

    return PythonProgram(text)


def _check(text: ProgramText, program: Program) -> None:
    mistakes = [
        Mistake(
            text.script.code.place,
            f"the code of {text.display_name} defines no function {function}",
            f"define the function {function}, or name another one",
        )
        for function in (text.script.function, text.script.init)
        if function and not program.has_function(function)
    ]
    if mistakes:
        raise ProjectError(text.name, mistakes)


def compile_shared(scripts: Mapping[Script, Sequence[Module]]) -> InitialSharedState | None:
    """Returns the initial state that the Lua code of a project shares; None if no Lua code shares anything.

    `scripts`: all code of the windows, each with the modules that it uses. Raises ProjectError with the mistakes of all snippets.
    """
    texts = {
        (script.language, text): None
        for script, modules in scripts.items()
        for text in (script.code.text, *(module.code.text for module in modules))
    }
    if not any(language is Language.LUA and may_share_state(text) for language, text in texts):
        return None
    from hotspare.scripting.lua.program import LuaProgram

    modules = {module.name: module for used in scripts.values() for module in used if module.use is ModuleUse.SNIPPET}
    properties, programs, mistakes = Properties(), dict[str, Program](), list[Mistake]()
    for name, module in sorted(modules.items()):
        if module.language is Language.LUA:
            text = ProgramText(str(module), Script(Language.LUA, module.code, "", init=module.init))
            try:
                program = LuaProgram(text, properties.freeze())
                _check(text, program)
            except ProjectError as error:
                mistakes += error.mistakes
                continue
            programs[name], properties = program, program.properties_after_init()
    if mistakes:
        raise ProjectError("snippets", mistakes)
    return InitialSharedState(programs, properties)
