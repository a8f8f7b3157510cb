"""Evaluates a typed tree over the rows of a frame, vectorised with pyarrow."""

from __future__ import annotations

import pyarrow as pa

from hotspare.expressions.blocks import run_block
from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import Fallibility
from hotspare.expressions.function_table import lookup_function
from hotspare.expressions.tree import Typed, TypedBlock, TypedCall, TypedField, TypedLiteral, TypedVariable


class TreeEvaluator:
    """The evaluator of typed trees. Lazy functions get it as an argument to evaluate their own arguments."""

    def evaluate_node(self, node: Typed, frame: Frame) -> Value:
        """Returns the value of `node` for the rows of `frame`: an array of the frame's length, or a scalar, of exactly the type of
        `node`.
        """
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
        """Whether evaluating `node`, its arguments included, can fail for a row."""
        if isinstance(node, TypedBlock):
            return True
        if not isinstance(node, TypedCall):
            return False
        return lookup_function(node.function).fallibility is Fallibility.ROW or any(self.can_fail(a) for a in node.arguments)


class WrongShape(Exception):
    """Raised if a function returns anything but one value per row of its declared type."""


def _checked(value: Value, node: TypedCall, frame: Frame) -> Value:
    """Returns `value` unchanged. Raises WrongShape for a wrong length or type: a library kernel that drops a row would shift all
    later rows.
    """
    whole = len(value) == frame.length if isinstance(value, pa.Array) else isinstance(value, pa.Scalar)
    if not whole or value.type != node.type.arrow:
        raise WrongShape(
            f"{node.function} gave {type(value).__name__} of {value.type}, not {frame.length} rows of {node.type.value}"
        )
    return value


EVALUATOR = TreeEvaluator()
