"""Expressions over one event at a time, on Python values, for the functions whose results then equal those of Arrow's kernels. A
kernel costs some microseconds even for few rows, a hundred times as much.

The typed trees are the same as over columns, with equal values and equal failures. A path that cannot compute a result, such as the
message for a number that does not fit, calls the kernel. `RowwiseExpressions` is for windows that retain variables, in which the
values of an event depend on those of earlier events. `number_step` is for a few rows of numbers; its results equal those of the
kernels to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.blocks import LOOP_ITERATIONS_MAX, TOO_MANY_ITERATIONS, VARIABLE_BYTES_MAX, VARIABLE_TOO_LONG
from hotspare.expressions.compiled import VALUE_BYTES_MAX, VALUE_TOO_LONG
from hotspare.expressions.evaluate import EVALUATOR
from hotspare.expressions.frame import Frame
from hotspare.expressions.function import ValueFunction
from hotspare.expressions.function_table import lookup_function
from hotspare.expressions.prelude import stored_values
from hotspare.expressions.tree import (
    Typed,
    TypedAssign,
    TypedBlock,
    TypedCall,
    TypedField,
    TypedIf,
    TypedLiteral,
    TypedLoop,
    TypedReturn,
    TypedStatement,
    TypedVariable,
    ValueType,
)
from hotspare.rows.bad_reasons import BadReason

Values: TypeAlias = dict[str, Any]
"""The fields and variables of one event, by key. Dates and stamps are stored numbers."""
Step: TypeAlias = Callable[[Values], Any]
OfValues: TypeAlias = Callable[..., Any]
"""A function of `Values`, or of the values of a call's arguments."""
Quick: TypeAlias = Callable[[TypedCall, Sequence[Step], OfValues], Step | None]
"""A builder of a step from a call, the steps of its arguments, and its kernel. The builder returns None if only the kernel can
compute the call.
"""
_INT32, _INT64, _DOUBLE, _STRING, _BOOLEAN = (
    ValueType.INT32,
    ValueType.INT64,
    ValueType.DOUBLE,
    ValueType.STRING,
    ValueType.BOOLEAN,
)
_LIMITS = {_INT32: (-(2**31), 2**31 - 1), _INT64: (-(2**63), 2**63 - 1)}
_PLAIN = (_INT32, _INT64, _STRING, _BOOLEAN)
_ROUND_DIGITS_MAX = 15
_VALUES = (*_PLAIN, _DOUBLE)
"""The types whose stored values are plain Python values."""
_NUMBERS = (ValueType.INT32, ValueType.INT64, ValueType.DOUBLE)
_TYPES = (*_NUMBERS, ValueType.BOOLEAN)
_LOOP_ITERATIONS = "turns of loops"


class RowFailed(Exception):
    """Raised if an expression fails on the current event. It holds the reason and the message of the bad event."""

    def __init__(self, reason: BadReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class KernelRequired(Exception):
    """Raised if only Arrow's kernels can compute the value. The caller then evaluates the row with the kernels."""


@dataclass(frozen=True)
class RowwiseExpressions:
    """The expressions of one window in order, evaluated row after row, because a row can set variables that the next row reads."""

    trees: tuple[Typed, ...]

    def run(
        self, columns: Mapping[str, pa.Array], rows: Sequence[int], variables: Values
    ) -> tuple[list[pa.Array], list[tuple[int, int, RowFailed]]]:
        """Returns a column per tree with one value per row of `rows`, null if the row failed; and the failures (row, index of the
        tree, failure), ascending by row.

        Updates `variables` after each row; a failed row leaves them unchanged.
        """
        steps = [_compile_step(tree) for tree in self.trees]
        fields = [(_field_name(name), stored_values(column)) for name, column in columns.items()]
        made: list[list[Any]] = [[] for _ in steps]
        failed: list[tuple[int, int, RowFailed]] = []
        for row in rows:
            values = variables | {name: column[row] for name, column in fields}
            found: list[Any] = [None] * len(steps)
            done = 0
            try:
                for number, step in enumerate(steps):
                    found[number] = _checked_output(step(values))
                    done = number + 1
            except RowFailed as failure:
                failed.append((row, done, failure))
                found = [None] * len(steps)
            else:
                variables.update((name, values[name]) for name in variables)
            for column, value in zip(made, found, strict=True):
                column.append(value)
        return [pa.array(column, tree.type.arrow) for column, tree in zip(made, self.trees, strict=True)], failed


def _checked_output(value: Any) -> Any:
    """Returns `value`. Raises RowFailed if it is a text that is too long for a message."""
    if _is_longer(value, VALUE_BYTES_MAX):
        raise RowFailed(BadReason.EXPRESSION, VALUE_TOO_LONG)
    return value


def _is_longer(value: Any, bytes_max: int) -> bool:
    """Whether a value is a text of more than `bytes_max` bytes in UTF-8."""
    return isinstance(value, str) and len(value) * 4 > bytes_max and len(value.encode()) > bytes_max


def _compile_step(node: Typed) -> Step:
    """Returns a function that computes the value of the typed tree `node` for one event. That function raises RowFailed if the
    event fails.
    """
    if isinstance(node, TypedLiteral):
        value = stored_values(pa.array([node.value], node.type.arrow))[0] if node.value is not None else None
        return lambda _: value
    if isinstance(node, TypedField | TypedVariable):
        name = node.name if isinstance(node, TypedVariable) else _field_name(node.name)
        return lambda values: values[name]
    if isinstance(node, TypedBlock):
        return _block(node)
    arguments = [_compile_step(argument) for argument in node.arguments]
    return _quick_step(node, arguments, _by_kernel(node))


def _field_name(name: str) -> str:
    """Returns the key of a field in `Values`, which differs from the key of every variable."""
    return f"field:{name}"


def _by_kernel(node: TypedCall) -> Callable[..., Any]:
    """Returns a function of all arguments' values that runs Arrow's kernel of the call over one row. It raises RowFailed if the row
    fails.
    """
    asked = tuple(
        argument if isinstance(argument, TypedLiteral) else TypedField(str(i), argument.type)
        for i, argument in enumerate(node.arguments)
    )
    call = TypedCall(node.function, asked, node.type, node.column)
    fields = [(i, str(i), argument.type.arrow) for i, argument in enumerate(asked) if isinstance(argument, TypedField)]

    def computed(*given: Any) -> Any:
        frame = Frame({name: pa.array([given[i]], type_) for i, name, type_ in fields}, 1)
        try:
            made = frame.array(EVALUATOR.evaluate_node(call, frame))
        except (pa.ArrowException, ArithmeticError, ValueError, TypeError) as error:
            raise RowFailed(BadReason.EXPRESSION, f"the value cannot be computed ({type(error).__name__})") from None
        if frame.failures is not None:
            raise RowFailed(*frame.failures.causes[int(frame.failures.first[0]) - 1])
        return stored_values(made)[0]

    return computed


def _block(block: TypedBlock) -> Step:
    """Returns the step of a block. It sets the block's own variables for the run and restores the previous values afterwards;
    variables of the window persist.
    """
    arguments = [(name, _compile_step(value)) for (name, _), value in zip(block.variables, block.arguments, strict=False)]
    own = [name for name, _ in block.variables]
    run = _statements(block.statements)

    def step(values: Values) -> Any:
        given = {name: argument(values) for name, argument in arguments}
        before = {name: values[name] for name in (*own, _LOOP_ITERATIONS) if name in values}
        values.update(dict.fromkeys(own))
        values.update(given)
        values[_LOOP_ITERATIONS] = 0
        try:
            run(values)
        except _Returned as returned:
            return returned.value
        finally:
            values.update(before)
        return None

    return step


class _Returned(Exception):
    """Raised by `return` to end a block, with the block's value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _statements(statements: Sequence[TypedStatement]) -> Callable[[Values], None]:
    steps = [_statement(each) for each in statements]

    def run(values: Values) -> None:
        for step in steps:
            step(values)

    return run


def _statement(statement: TypedStatement) -> Callable[[Values], None]:
    if isinstance(statement, TypedReturn):
        value = _compile_step(statement.value)

        def return_value(values: Values) -> None:
            raise _Returned(value(values))

        return return_value
    if isinstance(statement, TypedAssign):
        return partial(_assign, statement.name, _compile_step(statement.value))
    condition = _compile_step(statement.condition)
    if isinstance(statement, TypedIf):
        then, otherwise = _statements(statement.then), _statements(statement.otherwise)
        return lambda values: then(values) if condition(values) else otherwise(values)
    return _loop(statement, condition)


def _assign(name: str, step: Step, values: Values) -> None:
    value = step(values)
    if _is_longer(value, VARIABLE_BYTES_MAX):
        raise RowFailed(BadReason.EXPRESSION, VARIABLE_TOO_LONG)
    values[name] = value


def _loop(statement: TypedLoop, condition: Step) -> Callable[[Values], None]:
    before, body = _statements(statement.condition_statements), _statements(statement.body)

    def run(values: Values) -> None:
        before(values)
        while condition(values):
            values[_LOOP_ITERATIONS] += 1
            if values[_LOOP_ITERATIONS] > LOOP_ITERATIONS_MAX:
                raise RowFailed(BadReason.EXPRESSION, TOO_MANY_ITERATIONS)
            body(values)
            before(values)

    return run


def number_step(node: Typed) -> Step | None:
    """Returns a function that computes a number or boolean from fields of these types; None if the tree needs more than that. The
    function may raise RowFailed and KernelRequired.
    """
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
    return _own_step(node, known, _require_kernel)


def _require_kernel(*_values: object) -> object:
    raise KernelRequired


def _quick_step(node: TypedCall, arguments: Sequence[Step], kernel: OfValues) -> Step:
    """Returns the step of a call: one on Python values if it exists, else one that always calls `kernel`."""
    found = _own_step(node, arguments, kernel)
    return found if found is not None else lambda values: kernel(*(argument(values) for argument in arguments))


def _own_step(node: TypedCall, arguments: Sequence[Step], kernel: OfValues) -> Step | None:
    """Returns the step of a call that computes on Python values and calls `kernel` only for rare results; None if no such step
    exists.
    """
    make = _QUICK.get(node.function)
    return make(node, arguments, kernel) if make is not None else _value_function_step(node, arguments)


def _value_function_step(node: TypedCall, arguments: Sequence[Step]) -> Step | None:
    evaluate = lookup_function(node.function).evaluate
    if not isinstance(evaluate, ValueFunction) or any(each not in _VALUES for each in (*_types(node), node.type)):
        return None
    return _strict(arguments, evaluate.function)


def _types(node: TypedCall) -> list[ValueType]:
    return [argument.type for argument in node.arguments]


def _strict(arguments: Sequence[Step], function: OfValues) -> Step:
    """Returns a step that applies `function` to the arguments' values, and gives null if one of them is null."""
    if len(arguments) == 1:
        (only,) = arguments
        return lambda values: None if (value := only(values)) is None else function(value)
    if len(arguments) == 2:
        left, right = arguments

        def step(values: Values) -> Any:
            a, b = left(values), right(values)
            return None if a is None or b is None else function(a, b)

        return step

    def steps(values: Values) -> Any:
        found = [argument(values) for argument in arguments]
        return None if None in found else function(*found)

    return steps


def _else_kernel(arguments: Sequence[Step], kernel: OfValues, fits: Callable[[Any], bool], function: OfValues) -> Step:
    """Returns a step that applies `function` to a value for which `fits` is true, and `kernel` to any other value."""
    return _strict(arguments, lambda value: function(value) if fits(value) else kernel(value))


def _arithmetic(sign: str, operator: OfValues) -> Quick:
    def quick(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
        if node.type is _DOUBLE:
            return _strict(arguments, operator)
        if node.type not in _LIMITS:
            return None
        (least, most), message = _LIMITS[node.type], f"{sign}: the result exceeds {node.type.value}"

        def checked(*given: int) -> int:
            result: int = operator(*given)
            if not least <= result <= most:
                raise RowFailed(BadReason.EXPRESSION, message)
            return result

        return _strict(arguments, checked)

    return quick


def _comparison(operator: Callable[[Any, Any], bool]) -> Quick:
    """Returns a builder of comparisons in which NaN equals NaN and is greater than every other number."""

    def compare_doubles(a: float, b: float) -> bool:
        return operator(a, b) if a == a and b == b else operator(a != a, b != b)

    def quick(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
        types = _types(node)
        return _strict(arguments, compare_doubles if types[0] is _DOUBLE else operator) if types[0] in _VALUES else None

    return quick


def _null(test: Callable[[Any], bool]) -> Quick:
    return lambda _node, arguments, _kernel: lambda values: test(arguments[0](values))


def _division(_node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step:
    def divided(a: float, b: float) -> float:
        if b == 0:
            raise RowFailed(BadReason.EXPRESSION, "division by zero")
        return a / b

    return _strict(arguments, divided)


def _remainder(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
    """Returns the step of an integer remainder with the sign of the dividend; None for other types. A zero divisor fails."""

    def signed_remainder(a: int, b: int) -> int:
        if b == 0:
            raise RowFailed(BadReason.EXPRESSION, "remainder of a division by zero")
        rest = abs(a) % abs(b)
        return -rest if a < 0 else rest

    return _strict(arguments, signed_remainder) if node.type in _LIMITS else None


def _conversion(reason: BadReason) -> Quick:
    def quick(node: TypedCall, arguments: Sequence[Step], kernel: OfValues) -> Step | None:
        (source,), target = _types(node), node.type
        if source in _LIMITS and target is _DOUBLE:
            return _strict(arguments, float)
        if source in _LIMITS and target is _STRING:
            return _strict(arguments, str)
        if source is _BOOLEAN and target in _LIMITS:
            return _strict(arguments, int)
        if source in _LIMITS and target is _BOOLEAN:
            return _strict(arguments, bool)
        if target not in _LIMITS or source not in (*_LIMITS, _DOUBLE):
            return None
        least, most = _LIMITS[target]
        if source is _DOUBLE:
            low, high = float(least), float(most + 1)
            return _else_kernel(arguments, kernel, lambda value: low <= value < high, int)

        def narrowed(value: int) -> int:
            if not least <= value <= most:
                raise RowFailed(reason, f"the number does not fit {target.value}")
            return value

        return _strict(arguments, narrowed)

    return quick


def _rounded(node: TypedCall, arguments: Sequence[Step], kernel: OfValues) -> Step | None:
    """Returns a step that rounds a double with Arrow, one value at a time. Returns None unless the type of the call is double and
    the digits are a constant from 0 to _ROUND_DIGITS_MAX. The step passes NaN, infinity and large values to `kernel`.
    """
    digits = node.arguments[1] if len(node.arguments) > 1 else TypedLiteral(0, _INT64)
    number = digits.value if isinstance(digits, TypedLiteral) else None
    if node.type is not _DOUBLE or not isinstance(number, int) or not 0 <= number <= _ROUND_DIGITS_MAX:
        return None
    limit = 2.0**63 / 10.0**number
    options = pc.RoundOptions(ndigits=number, round_mode="half_towards_infinity")

    def rounded(value: float) -> float:
        if not abs(value) < limit:
            found: float = kernel(value, number)
            return found
        exact: float = pc.round(pa.scalar(value), options=options).as_py()
        return exact + 0.0  # no negative zero

    return _strict(arguments[:1], rounded)


def _among(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
    if any(type_ not in _PLAIN for type_ in _types(node)):
        return None
    wanted, *others = arguments

    def step(values: Values) -> Any:
        value, found = wanted(values), [other(values) for other in others]
        if value is None:
            return None
        return True if value in found else None if None in found else False

    return step


def _between(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
    if any(type_ not in _PLAIN for type_ in _types(node)):
        return None

    def step(values: Values) -> Any:
        value, low, high = (argument(values) for argument in arguments)
        if value is None:
            return None
        above = None if low is None else value >= low
        below = None if high is None else value <= high
        return False if above is False or below is False else None if above is None or below is None else True

    return step


def _extreme(choose: Callable[[list[Any]], Any]) -> Quick:
    """Returns a builder of GREATEST (`choose` is max) or LEAST (min) for integers and texts; nulls are skipped."""

    def quick(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
        if node.type not in (_INT32, _INT64, _STRING):
            return None

        def step(values: Values) -> Any:
            known = [value for argument in arguments if (value := argument(values)) is not None]
            return choose(known) if known else None

        return step

    return quick


def _cased(function: Callable[[str], str]) -> Quick:
    """Returns a builder of a change of case by `function`. Texts beyond ASCII are computed by the kernel, because in Python one
    letter may become two.
    """
    return lambda _node, arguments, kernel: _else_kernel(arguments, kernel, str.isascii, function)


def _of_texts(function: OfValues) -> Quick:
    return lambda _node, arguments, _kernel: _strict(arguments, function)


def _case(_node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step:
    pairs = list(zip(arguments[0:-1:2], arguments[1::2], strict=True))

    def step(values: Values) -> Any:
        for condition, value in pairs:
            if condition(values):
                return value(values)
        return arguments[-1](values)

    return step


def _coalesce(_node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step:
    def step(values: Values) -> Any:
        for argument in arguments:
            if (value := argument(values)) is not None:
                return value
        return None

    return step


def _junction(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step:
    """Returns the step of AND or OR. Evaluation ends at the first argument that decides the result."""
    decides = node.function == "or"

    def step(values: Values) -> Any:
        found: Any = not decides
        for argument in arguments:
            value = argument(values)
            if value is decides:
                return value
            if value is None:
                found = None
        return found

    return step


def _nvl2(_node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step:
    known, some, none = arguments
    return lambda values: some(values) if known(values) is not None else none(values)


_QUICK: Mapping[str, Quick] = {
    "case": _case,
    "coalesce": _coalesce,
    "nvl2": _nvl2,
    "and": _junction,
    "or": _junction,
    "add": _arithmetic("+", lambda a, b: a + b),
    "subtract": _arithmetic("-", lambda a, b: a - b),
    "multiply": _arithmetic("*", lambda a, b: a * b),
    "negate": _arithmetic("-", lambda a: -a),
    "abs": _arithmetic("abs", abs),
    "divide": _division,
    "mod": _remainder,
    "equal": _comparison(lambda a, b: a == b),
    "not_equal": _comparison(lambda a, b: a != b),
    "less": _comparison(lambda a, b: a < b),
    "less_equal": _comparison(lambda a, b: a <= b),
    "greater": _comparison(lambda a, b: a > b),
    "greater_equal": _comparison(lambda a, b: a >= b),
    "isnull": _null(lambda value: value is None),
    "isnotnull": _null(lambda value: value is not None),
    "not": lambda _node, arguments, _kernel: _strict(arguments, lambda value: not value),
    "convert": _conversion(BadReason.EXPRESSION),
    "convert_checked": _conversion(BadReason.EXPRESSION),
    "assign": _conversion(BadReason.NUMBER_RANGE),
    "round": _rounded,
    "in": _among,
    "between": _between,
    "greatest": _extreme(max),
    "least": _extreme(min),
    "length": _of_texts(len),
    "concat": _of_texts(lambda *parts: "".join(parts)),
    "upper": _cased(str.upper),
    "lower": _cased(str.lower),
}
"""The builders of steps, by function. Texts are compared by characters, whose order is that of their bytes in UTF-8."""
