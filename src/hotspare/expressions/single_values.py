"""Functions of the values of one event: on Python's own values where that gives what the kernel gives, which over one row costs a
hundred times as much.

A way that does not know an answer, such as what a number that does not fit is told, leaves it to the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.function import ValueFunction
from hotspare.expressions.functions import lookup
from hotspare.expressions.tree import TypedCall, TypedLiteral, ValueType
from hotspare.rows.bad_reasons import BadReason

Values: TypeAlias = dict[str, Any]
"""Fields and variables by name, of one event. Times are the numbers that are stored."""
Step: TypeAlias = Callable[[Values], Any]
OfValues: TypeAlias = Callable[..., Any]
"""Of values."""
Quick: TypeAlias = Callable[[TypedCall, Sequence[Step], OfValues], Step | None]
"""From a call, what computes its arguments, and its kernel; None where there is no other way than that."""
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
"""Types of which Python's own values are those that are stored."""


class RowFailed(Exception):
    """The event that is worked on fails."""

    def __init__(self, reason: BadReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


def quick_step(node: TypedCall, arguments: Sequence[Step], kernel: OfValues) -> Step:
    """What computes a call; `kernel` knows every answer."""
    found = own_step(node, arguments, kernel)
    return found if found is not None else lambda values: kernel(*(argument(values) for argument in arguments))


def own_step(node: TypedCall, arguments: Sequence[Step], kernel: OfValues) -> Step | None:
    """The same, asking `kernel` for rare answers only; None where there is no such way."""
    make = _QUICK.get(node.function)
    return make(node, arguments, kernel) if make is not None else _of_values(node, arguments)


def _of_values(node: TypedCall, arguments: Sequence[Step]) -> Step | None:
    evaluate = lookup(node.function).evaluate
    if not isinstance(evaluate, ValueFunction) or any(each not in _VALUES for each in (*_types(node), node.type)):
        return None
    return _strict(arguments, evaluate.function)


def _types(node: TypedCall) -> list[ValueType]:
    return [argument.type for argument in node.arguments]


def _strict(arguments: Sequence[Step], function: OfValues) -> Step:
    """Null where an argument is."""
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
    """A function of one value, where that fits; else the kernel."""
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
    """NaN equals NaN and is greater than every other number."""

    def of_doubles(a: float, b: float) -> bool:
        return operator(a, b) if a == a and b == b else operator(a != a, b != b)

    def quick(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
        types = _types(node)
        return _strict(arguments, of_doubles if types[0] is _DOUBLE else operator) if types[0] in _VALUES else None

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
    """With the sign of the dividend."""

    def left(a: int, b: int) -> int:
        if b == 0:
            raise RowFailed(BadReason.EXPRESSION, "remainder of a division by zero")
        rest = abs(a) % abs(b)
        return -rest if a < 0 else rest

    return _strict(arguments, left) if node.type in _LIMITS else None


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
    """By the library, one value at a time, where that needs no care."""
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
    """Nulls are skipped."""

    def quick(node: TypedCall, arguments: Sequence[Step], _kernel: OfValues) -> Step | None:
        if node.type not in (_INT32, _INT64, _STRING):
            return None

        def step(values: Values) -> Any:
            known = [value for argument in arguments if (value := argument(values)) is not None]
            return choose(known) if known else None

        return step

    return quick


def _cased(function: Callable[[str], str]) -> Quick:
    """Beyond ASCII a letter may become two in Python, and does not in the kernel."""
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
    """Ends at the first argument that decides."""
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
"""By function. Texts are compared by characters, which has the order of their bytes in UTF-8."""
