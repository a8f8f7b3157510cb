"""Which functions may come to call themselves: only in these the depth of calls is counted.

A function may call what it names: functions by their names, methods by theirs. Where it calls something else than a name or a
method, or hands things to what does, it may call every function that is somewhere named without being called. Methods that
operators call count as named by everybody. So a function that is not found here never calls itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from hotspare.engine.code.python.words import words

Function: TypeAlias = ast.FunctionDef | ast.Lambda


def recursive(syntax: ast.Module) -> frozenset[Function]:
    """The functions of a program that may call themselves, or each other in a circle. Lambdas are among them where they may."""
    functions = [node for node in ast.walk(syntax) if isinstance(node, ast.FunctionDef | ast.Lambda)]
    by_name: dict[str, list[Function]] = {}
    for each in functions:
        by_name.setdefault(each.name if isinstance(each, ast.FunctionDef) else "", []).append(each)
    implicit = [each for name, some in by_name.items() if name.startswith("__") or name == "" for each in some]
    handed = [*implicit, *(each for name in _named_not_called(syntax) for each in by_name.get(name, ()))]
    classes = {node.name for node in ast.walk(syntax) if isinstance(node, ast.ClassDef)}
    calls = {each: _callees(each, by_name, implicit, handed, classes) for each in functions}
    return frozenset(each for each in functions if _reaches(each, calls))


def _callees(
    function: Function,
    by_name: Mapping[str, list[Function]],
    implicit: list[Function],
    handed: list[Function],
    classes: set[str],
) -> set[Function]:
    found: set[Function] = set(implicit)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            found.update(by_name.get(node.id, ()))
        elif isinstance(node, ast.Attribute):
            found.update(by_name.get(node.attr, ()))
        if isinstance(node, ast.Call) and not _is_known(node, by_name, classes):
            found.update(handed)
    return found


def _is_known(node: ast.Call, by_name: Mapping[str, list[Function]], classes: set[str]) -> bool:
    """Whether the callee is a function of the program or a method, by name. What a builtin calls was handed to it by name."""
    if isinstance(node.func, ast.Name):
        return node.func.id in by_name or node.func.id in classes or node.func.id in _BUILTINS
    return isinstance(node.func, ast.Attribute)


_BUILTINS = frozenset(
    words(
        """
        abs all any bool bytes chr dict divmod enumerate filter float format int isinstance len list map max min ord
        print range repr reversed round set frozenset sorted str sum tuple zip iter next type super getattr hasattr pow
        """
    )
)


def _named_not_called(syntax: ast.Module) -> Iterator[str]:
    called = {node.func for node in ast.walk(syntax) if isinstance(node, ast.Call)}
    for node in ast.walk(syntax):
        if node in called:
            continue
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _reaches(start: Function, calls: Mapping[Function, set[Function]]) -> bool:
    waiting, met = list(calls[start]), set[Function]()
    while waiting:
        each = waiting.pop()
        if each is start:
            return True
        if each not in met:
            met.add(each)
            waiting += calls[each]
    return False
