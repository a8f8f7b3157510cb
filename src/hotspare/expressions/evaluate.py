"""Evaluates a typed tree over the rows of a frame, vectorised with pyarrow."""

from __future__ import annotations

import pyarrow as pa

from hotspare.expressions.blocks import run_block
from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import Fallibility
from hotspare.expressions.function_table import lookup_function
from hotspare.expressions.tree import Typed, TypedBlock, TypedCall, TypedField, TypedLiteral, TypedVariable


class TreeEvaluator:
    """The evaluator, which lazy functions also use for their arguments."""

    def evaluate_node(self, node: Typed, frame: Frame) -> Value:
        """Returns an array of the frame's length, or a scalar, of exactly `node.type`."""
        if isinstance(node, TypedField):
            return frame.column(node.name)
        if isinstance(node, TypedLiteral):
            return node.scalar
        if isinstance(node, TypedVariable):
            return frame.variable(node.name)
        if isinstance(node, TypedBlock):
            return run_block(self, frame, node)
        return _checked(lookup_function(node.function).evaluate(self, frame, node), node, frame)

    def can_fail(self, node: Typed) -> bool:
        """Whether a row can fail in this node or below."""
        if isinstance(node, TypedBlock):
            return True
        if not isinstance(node, TypedCall):
            return False
        return lookup_function(node.function).fallibility is Fallibility.ROW or any(self.can_fail(a) for a in node.arguments)


class WrongShape(Exception):
    """A function returned something else than one value of its type per row."""


def _checked(value: Value, node: TypedCall, frame: Frame) -> Value:
    """Returns the value after checking length and type: a library kernel that drops a row would shift all rows after it."""
    whole = len(value) == frame.length if isinstance(value, pa.Array) else isinstance(value, pa.Scalar)
    if not whole or value.type != node.type.arrow:
        raise WrongShape(
            f"{node.function} gave {type(value).__name__} of {value.type}, not {frame.length} rows of {node.type.value}"
        )
    return value


EVALUATOR = TreeEvaluator()
