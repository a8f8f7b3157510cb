"""Which functions may come to call themselves: only in these the depth of calls is counted.

A function may call what it names: functions by their names, methods by theirs. Where it calls something else, or walks what may
compute its elements, it may call every lambda, and every function that is somewhere named without being called. Methods that
operators call are called by everybody. So a function that is not found here never calls itself, but through one that is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from hotspare.engine.code.python.words import words

Function: TypeAlias = ast.FunctionDef | ast.Lambda


_SEEKING = frozenset({"getattr", "methodcaller", "attrgetter"})
"""What calls methods by names that are made while it runs."""


def recursive(syntax: ast.Module) -> frozenset[Function]:
    """The functions of a program that may call themselves, or each other in a circle. Lambdas are among them where they may."""
    calls = _Calls(syntax)
    return frozenset(each for each in calls.functions if _reaches(each, calls.of))


class _Calls:
    """Who may call whom: `of` each function."""

    def __init__(self, syntax: ast.Module) -> None:
        self.functions = [node for node in ast.walk(syntax) if isinstance(node, ast.FunctionDef | ast.Lambda)]
        self._by_name: dict[str, list[Function]] = {}
        for each in self.functions:
            self._by_name.setdefault(each.name if isinstance(each, ast.FunctionDef) else "", []).append(each)
        self._implicit = [each for name, some in self._by_name.items() if name.startswith("__") for each in some]
        names = set(_names_read(syntax))
        handed = self._by_name if names & _SEEKING else {"", *_named_not_called(syntax)}
        self._handed = [each for name in sorted(handed) for each in self._by_name.get(name, ())]
        self._classes = {node.name for node in ast.walk(syntax) if isinstance(node, ast.ClassDef)}
        self._bound = set(_bound(syntax))
        self.of = {each: self._callees(each) for each in self.functions}

    def _callees(self, function: Function) -> set[Function]:
        found: set[Function] = set(self._implicit)
        for node in ast.walk(function):
            if isinstance(node, ast.Name):
                found.update(self._by_name.get(node.id, ()))
            elif isinstance(node, ast.Attribute):
                found.update(self._by_name.get(node.attr, ()))
            if not self._is_known(node):
                found.update(self._handed)
        return found

    def _is_known(self, node: ast.AST) -> bool:
        """Whether what the node calls is found by its name, or is nothing that the program made."""
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                name, simple = node.func.id, _SIMPLE
                return name not in self._bound and (name in self._by_name or name in self._classes or name in simple)
            if isinstance(node.func, ast.Attribute):
                name = node.func.attr
                return name not in self._bound and (name in self._by_name or name in _SIMPLE_METHODS)
            return False
        if isinstance(node, ast.For | ast.comprehension):
            return self._is_plain(node.iter)
        if isinstance(node, ast.Compare):
            walked = zip(node.ops, node.comparators, strict=True)
            return all(self._is_plain(each) for operator, each in walked if isinstance(operator, ast.In | ast.NotIn))
        return not isinstance(node, ast.Starred | ast.YieldFrom | ast.Tuple | ast.List) or not _is_taken_apart(node)

    def _is_plain(self, walked: ast.expr) -> bool:
        """Whether nothing of the program computes the elements."""
        if isinstance(walked, ast.Call) and isinstance(walked.func, ast.Name):
            return walked.func.id == "range" and "range" not in self._bound
        return isinstance(walked, ast.Constant | ast.List | ast.Tuple)


def _is_taken_apart(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred | ast.YieldFrom) or isinstance(getattr(node, "ctx", None), ast.Store)


def _names_read(syntax: ast.Module) -> Iterator[str]:
    for node in ast.walk(syntax):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def _bound(syntax: ast.Module) -> Iterator[str]:
    """Names and attributes that get a meaning otherwise than by `def` and `class`."""
    for node in ast.walk(syntax):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


_SIMPLE = frozenset(
    words(
        """
        abs bool bytes chr divmod float format int isinstance issubclass len ord print range repr round str pow type hasattr
        super callable ascii bin hex oct complex slice
        """
    )
)
"""Builtins that call nothing but methods that operators call too."""
_SIMPLE_METHODS = frozenset(
    words(
        """
        append get setdefault pop popitem clear copy items keys values add discard remove insert index count reverse strip
        lstrip rstrip split rsplit splitlines partition rpartition lower upper title capitalize casefold startswith endswith
        find rfind replace isdigit isalpha isalnum isnumeric isdecimal isspace isupper islower zfill ljust rjust center
        format encode decode hex bit_length is_integer
        """
    )
)
"""Methods of plain values that do the same."""


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
