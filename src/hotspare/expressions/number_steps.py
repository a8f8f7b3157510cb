"""Expressions of numbers over one row: Arrow's kernels cost some microseconds each, however few rows they get.

Where the answer might not be theirs to the bit, nothing is said: an expression that fails, or a NaN, whose bits a compiler may
choose, is left to the kernels.
"""

from __future__ import annotations

from hotspare.expressions.single_values import Step, own_step
from hotspare.expressions.tree import Typed, TypedCall, TypedField, TypedLiteral, ValueType

_NUMBERS = (ValueType.INT32, ValueType.INT64, ValueType.DOUBLE)
_TYPES = (*_NUMBERS, ValueType.BOOLEAN)


class NotKnown(Exception):
    """What the value is, only the kernels know."""


def number_step(node: Typed) -> Step | None:
    """What computes a number or a truth value from numbers; None where that takes more. It may raise RowFailed and NotKnown."""
    if node.type not in _TYPES:
        return None
    if isinstance(node, TypedField):
        name = node.name
        return lambda values: values[name]
    if isinstance(node, TypedLiteral):
        value = node.scalar.as_py()
        return lambda _: value
    if not isinstance(node, TypedCall):
        return None
    arguments = [number_step(argument) for argument in node.arguments]
    known = [step for step in arguments if step is not None]
    if len(known) < len(arguments):
        return None
    return own_step(node, known, _not_known)


def _not_known(*_values: object) -> object:
    raise NotKnown
