"""Expressions of a window that keeps variables: one event after the other, because what comes of one depends on those before it.

The same typed trees as over columns, with equal values and equal failures. What is used most is computed on Python's own values;
everything else by its kernel over one row, which is slower. A failing event leaves the variables as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from hotspare.expressions.blocks import LOOP_TURNS_MAX, TOO_LONG, TOO_MANY_TURNS, VARIABLE_BYTES_MAX
from hotspare.expressions.compiled import VALUE_BYTES_MAX, VALUE_TOO_LONG
from hotspare.expressions.evaluate import EVALUATOR
from hotspare.expressions.frame import Frame
from hotspare.expressions.prelude import stored
from hotspare.expressions.single_values import RowFailed, Step, Values, quick_step
from hotspare.expressions.tree import (
    Typed,
    TypedAssign,
    TypedBlock,
    TypedCall,
    TypedChoose,
    TypedField,
    TypedLiteral,
    TypedLoop,
    TypedReturn,
    TypedStatement,
    TypedVariable,
)
from hotspare.rows.bad_reasons import BadReason


class _Returned(Exception):
    """A block ends."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def step_of(node: Typed) -> Step:
    """What computes the value of a typed tree for one event; RowFailed where it fails."""
    if isinstance(node, TypedLiteral):
        value = stored(pa.array([node.value], node.type.arrow))[0] if node.value is not None else None
        return lambda _: value
    if isinstance(node, TypedField | TypedVariable):
        name = node.name if isinstance(node, TypedVariable) else field_name(node.name)
        return lambda values: values[name]
    if isinstance(node, TypedBlock):
        return _block(node)
    arguments = [step_of(argument) for argument in node.arguments]
    return quick_step(node, arguments, _by_kernel(node))


def field_name(name: str) -> str:
    """Under which a field stands among the values: no variable has such a name."""
    return f"field:{name}"


def _by_kernel(node: TypedCall) -> Callable[..., Any]:
    """The function's own kernel, over one row: from the values of all arguments."""
    asked = tuple(
        argument if isinstance(argument, TypedLiteral) else TypedField(str(i), argument.type)
        for i, argument in enumerate(node.arguments)
    )
    call = TypedCall(node.function, asked, node.type, node.column)
    fields = [(i, str(i), argument.type.arrow) for i, argument in enumerate(asked) if isinstance(argument, TypedField)]

    def computed(*given: Any) -> Any:
        frame = Frame({name: pa.array([given[i]], type_) for i, name, type_ in fields}, 1)
        try:
            made = frame.array(EVALUATOR.value(call, frame))
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
            raise RowFailed(BadReason.EXPRESSION, f"the value cannot be computed ({type(error).__name__})") from None
        if frame.failures is not None:
            raise RowFailed(*frame.failures.causes[int(frame.failures.first[0]) - 1])
        return stored(made)[0]

    return computed


def _block(block: TypedBlock) -> Step:
    """A block has variables of its own; those of the window are seen through."""
    arguments = [(name, step_of(value)) for (name, _), value in zip(block.variables, block.arguments, strict=False)]
    own = [name for name, _ in block.variables]
    run = _statements(block.statements)

    def step(values: Values) -> Any:
        given = {name: argument(values) for name, argument in arguments}
        before = {name: values[name] for name in (*own, _TURNS) if name in values}
        values.update(dict.fromkeys(own))
        values.update(given)
        values[_TURNS] = 0
        try:
            run(values)
        except _Returned as returned:
            return returned.value
        finally:
            values.update(before)
        return None

    return step


_TURNS = "turns of loops"


def _statements(statements: Sequence[TypedStatement]) -> Callable[[Values], None]:
    steps = [_statement(each) for each in statements]

    def run(values: Values) -> None:
        for step in steps:
            step(values)

    return run


def _statement(statement: TypedStatement) -> Callable[[Values], None]:
    if isinstance(statement, TypedReturn):
        value = step_of(statement.value)

        def leave(values: Values) -> None:
            raise _Returned(value(values))

        return leave
    if isinstance(statement, TypedAssign):
        return partial(_assign, statement.name, step_of(statement.value))
    condition = step_of(statement.condition)
    if isinstance(statement, TypedChoose):
        then, otherwise = _statements(statement.then), _statements(statement.otherwise)
        return lambda values: then(values) if condition(values) else otherwise(values)
    return _loop(statement, condition)


def _assign(name: str, step: Step, values: Values) -> None:
    value = step(values)
    if _is_longer(value, VARIABLE_BYTES_MAX):
        raise RowFailed(BadReason.EXPRESSION, TOO_LONG)
    values[name] = value


def _is_longer(value: Any, bytes_max: int) -> bool:
    """Whether it is a text of more bytes."""
    return isinstance(value, str) and len(value) * 4 > bytes_max and len(value.encode()) > bytes_max


def _put_out(value: Any) -> Any:
    """The value of an expression; RowFailed where no message could carry it."""
    if _is_longer(value, VALUE_BYTES_MAX):
        raise RowFailed(BadReason.EXPRESSION, VALUE_TOO_LONG)
    return value


def _loop(statement: TypedLoop, condition: Step) -> Callable[[Values], None]:
    before, body = _statements(statement.before), _statements(statement.body)

    def run(values: Values) -> None:
        before(values)
        while condition(values):
            values[_TURNS] += 1
            if values[_TURNS] > LOOP_TURNS_MAX:
                raise RowFailed(BadReason.EXPRESSION, TOO_MANY_TURNS)
            body(values)
            before(values)

    return run


@dataclass(frozen=True)
class Stepwise:
    """Expressions of one window, in their order, over rows that come one after the other."""

    trees: tuple[Typed, ...]

    def run(
        self, columns: Mapping[str, pa.Array], rows: Sequence[int], variables: Values
    ) -> tuple[list[pa.Array], list[tuple[int, int, RowFailed]]]:
        """For each tree its values in these rows, null where the row failed; and (row, number of the tree, why), rising by row.
        `variables` are read and set."""
        steps = [step_of(tree) for tree in self.trees]
        fields = [(field_name(name), stored(column)) for name, column in columns.items()]
        made: list[list[Any]] = [[] for _ in steps]
        failed: list[tuple[int, int, RowFailed]] = []
        for row in rows:
            values = variables | {name: column[row] for name, column in fields}
            found: list[Any] = [None] * len(steps)
            done = 0
            try:
                for number, step in enumerate(steps):
                    found[number] = _put_out(step(values))
                    done = number + 1
            except RowFailed as failure:
                failed.append((row, done, failure))
                found = [None] * len(steps)
            else:
                variables.update((name, values[name]) for name in variables)
            for column, value in zip(made, found, strict=True):
                column.append(value)
        return [pa.array(column, tree.type.arrow) for column, tree in zip(made, self.trees, strict=True)], failed
