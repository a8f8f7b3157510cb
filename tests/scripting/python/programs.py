"""The shared parts of the tests of user code in Python: a program from a text, and calls of it."""

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
    return PythonText.from_source(textwrap.dedent(text), name, names)


def program(text: str, **modules: str) -> Interpreter:
    names = tuple(modules)
    texts = {name: _compiled(each, name, names) for name, each in modules.items()}
    main = _compiled(text, "q/w", names)
    return Interpreter(main, texts, LIMITS, init="init" if "init" in main.functions else "")


def restored(interpreter: Interpreter) -> Interpreter:
    """Returns the same program in a new instance, with the state of this one."""
    init = "init" if "init" in interpreter.main.functions else ""
    other = Interpreter(interpreter.main, interpreter.modules, interpreter.limits, init=init)
    other.load(interpreter.save())
    return other


def called(interpreter: Interpreter, *arguments: Any, number: int = 0, function: str = "f") -> Any:
    """Returns the function's value for the event of that number, or its failure."""
    found = interpreter.function(function)
    assert found is not None
    try:
        return interpreter.call(found, arguments, TIME_US + number, number)
    except CallFailure as failure:
        return failure


def mistakes(text: str, **modules: str) -> Iterator[tuple[int, str]]:
    """Yields line and message of all errors in a text."""
    try:
        program(text, **modules)
    except Unloadable as error:
        yield from ((each.line, each.message) for each in error.mistakes)
