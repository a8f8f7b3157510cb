"""What tests of people's Python code share: a program from a text, and its calls one after the other."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any

from hotspare.scripting.python.meter import PythonLimits
from hotspare.scripting.python.program import CallFailure, Interpreter, PythonText, Unloadable

LIMITS = PythonLimits(steps=20_000, kept_bytes=1 << 16)
TIME_US = 1_700_000_000_000_000


@cache
def _compiled(text: str, name: str, names: tuple[str, ...]) -> PythonText:
    return PythonText.compiled(textwrap.dedent(text), name, names)


def program(text: str, **modules: str) -> Interpreter:
    names = tuple(modules)
    texts = {name: _compiled(each, name, names) for name, each in modules.items()}
    main = _compiled(text, "q/w", names)
    return Interpreter(main, texts, LIMITS, init="init" if "init" in main.functions else "")


def restored(interpreter: Interpreter) -> Interpreter:
    """The same program elsewhere, with what this one keeps."""
    init = "init" if "init" in interpreter.main.functions else ""
    other = Interpreter(interpreter.main, interpreter.modules, interpreter.limits, init=init)
    other.load(interpreter.save())
    return other


def called(interpreter: Interpreter, *arguments: Any, number: int = 0, function: str = "f") -> Any:
    """What the function returns for the event of that number, or its failure."""
    found = interpreter.function(function)
    assert found is not None
    try:
        return interpreter.call(found, arguments, TIME_US + number, number)
    except CallFailure as failure:
        return failure


def mistakes(text: str, **modules: str) -> Iterator[tuple[int, str]]:
    """Line and message of all that is wrong with a text."""
    try:
        program(text, **modules)
    except Unloadable as error:
        yield from ((each.line, each.message) for each in error.mistakes)
