"""The operators and functions of numbers. Integers and money are checked for overflow. Doubles follow IEEE 754, except that a
division by zero fails.

Random functions of SAS draw from the position of the event: equal in every engine, in every cut and after a restore (SPEC Z8). The
position is the number of the event among those that reached the window; the seed distinguishes calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import (
    DOUBLE,
    INT32,
    INT64,
    MONEY,
    STRING,
    Evaluate,
    Fallibility,
    Function,
    Signature,
    TypeMismatch,
    arithmetic_rule,
    check_argument_count,
    eager,
    fixed_rule,
    infallible,
    numeric_type,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.chunk import Int64s
from hotspare.rows.elementwise import Rows

_INT64_END = 2.0**63
_DIGITS = {INT32: (0, 10), INT64: (0, 19), MONEY: (4, 14)}
"""For each type, the maximum number of digits after the decimal point, and of those before it."""
_DOUBLE_EXPONENT_MAX = 308
_UInt64s = npt.NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_FRACTION = 2.0**-53


_EXACT: dict[str, tuple[Callable[..., Value], Callable[..., Int64s]]] = {
    "+": (pc.add_checked, np.add),
    "binary -": (pc.subtract_checked, np.subtract),
    "*": (pc.multiply_checked, np.multiply),
    "-": (pc.negate_checked, np.negative),
    "abs": (pc.abs_checked, np.absolute),
}
"""The kernels of each operator: one that raises on overflow, and one that computes with numpy and wraps around in int64."""


def _checked(operator: str) -> Evaluate:
    """Returns a function that applies `operator` to its arguments. A row fails if the result exceeds int32, int64 or money. Doubles
    never fail.
    """
    (kernel, wrapping), what = _EXACT[operator], operator.removeprefix("binary ")

    def evaluate(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        type_ = call.type.arrow
        if call.type is MONEY:
            return frame.attempt(lambda *a: _as_money(kernel(*a)), arguments, f"{what}: the result exceeds money", type_)
        if call.type is DOUBLE:
            return kernel(*arguments)
        wrong = partial(_overflows, wrapping, np.iinfo(type_.to_pandas_dtype()))
        message = f"{what}: the result exceeds {call.type.value}"
        return frame.attempt(kernel, arguments, message, type_, BadReason.EXPRESSION, wrong)

    return eager(evaluate)


def _overflows(wrapping: Callable[..., Int64s], limit: np.iinfo[np.int64], *arguments: pa.Array) -> Rows:
    """Returns the rows whose exact result is outside of `limit`. `wrapping` computes the operator on int64 and on float64.

    Beyond 2^62 the nearest double of the result shows an overflow. Near 2^63 a double is too coarse: there an overflow shows as a
    wrapped result of the other sign.
    """
    valid = np.logical_and.reduce([a.is_valid().to_numpy(zero_copy_only=False) for a in arguments])
    given = [a.fill_null(0).to_numpy().astype(np.int64) for a in arguments]
    near = wrapping(*(a.astype(np.float64) for a in given))
    with np.errstate(over="ignore"):
        wrapped = wrapping(*given)
    close = np.abs(near) >= 2.0**62
    beyond = (np.abs(near) > 1.5 * 2.0**63) | ((near < 0) != (wrapped < 0))
    outside = (wrapped < limit.min) | (wrapped > limit.max)
    return np.flatnonzero(valid & (outside | (close & beyond)))


def _as_money(value: Value) -> Value:
    """Returns a decimal of any scale as money, rounded half away from zero."""
    if value.type.scale > 4:
        value = pc.round(value, ndigits=4, round_mode="half_towards_infinity")
    return value.cast(MONEY.arrow)


def _nonzero(frame: Frame, arguments: list[Value], what: str) -> Value:
    """Returns the divisor, with null in rows that divide a non-null number by zero. Those rows fail with the message "`what` by
    zero".
    """
    dividend, divisor = arguments
    wrong = pc.and_(pc.equal(divisor, pa.scalar(0, divisor.type)), pc.is_valid(dividend))
    return frame.fail_where(divisor, wrong, f"{what} by zero")


def _divide(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    return pc.divide(arguments[0], _nonzero(frame, arguments, "division"))


def _whole_divide(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    divisor = _nonzero(frame, arguments, "division")
    return frame.attempt(pc.divide_checked, [arguments[0], divisor], "div: the result exceeds int64", INT64.arrow)


def _remainder(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    return pc.remainder(arguments[0], _nonzero(frame, arguments, "remainder of a division"))


def _remainder_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    check_argument_count(types, 2, 2)
    widest = numeric_type(types, dialect)
    if widest is MONEY:
        widest = DOUBLE
    return Signature((widest, widest), widest)


def _whole_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    check_argument_count(types, 2, 2)
    if numeric_type(types, dialect) not in (INT32, INT64):
        raise TypeMismatch("the arguments are not integers", "use / or cast to bigint")
    return Signature((INT64, INT64), INT64)


def _to_whole(rounding: Callable[[Value], Value], what: str) -> Evaluate:
    def evaluate(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        if call.arguments[0].type is not DOUBLE:
            return arguments[0]
        whole = rounding(arguments[0])
        inside = pc.and_(pc.greater_equal(whole, -_INT64_END), pc.less(whole, _INT64_END))
        whole = frame.fail_where(whole, pc.invert(inside), f"{what}: the result exceeds int64")
        return pc.cast(whole, INT64.arrow, safe=False)

    return eager(evaluate)


def _to_whole_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    check_argument_count(types, 1, 1)
    inside = DOUBLE if numeric_type(types, dialect) in (MONEY, DOUBLE) else INT64
    return Signature((inside,), INT64)


def _round(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Returns the value rounded to the digits of the second argument, 0 by default, half away from zero. A row fails if the result
    exceeds the type.

    Digits beyond those of the type are cut first: Arrow refuses or is extremely slow for large numbers of digits.
    """
    (value, *_), type_ = arguments, call.type
    digits = (arguments[1].as_py() or 0) if len(arguments) > 1 else 0
    if type_ is DOUBLE:
        return _round_double(frame, value, digits)
    decimals, whole_digits = _DIGITS[type_]
    if digits >= decimals:
        return value
    wide = pc.cast(value, pa.decimal128(38, decimals))
    rounded = pc.round(wide, ndigits=max(digits, -whole_digits - 1), round_mode="half_towards_infinity")
    return frame.attempt(lambda v: pc.cast(v, type_.arrow), [rounded], f"round: the result exceeds {type_.value}", type_.arrow)


def _round_double(frame: Frame, value: Value, digits: int) -> Value:
    if digits > _DOUBLE_EXPONENT_MAX:
        return pc.add(value, 0.0)
    if digits < -_DOUBLE_EXPONENT_MAX:
        return pc.if_else(pc.is_finite(value), 0.0, value)
    whole = pc.greater_equal(pc.abs(value), _INT64_END / 10.0**digits)
    rounded = frame.attempt(
        lambda number: pc.round(number, ndigits=digits, round_mode="half_towards_infinity"),
        [pc.if_else(whole, 0.0, value)],
        "round: the result exceeds double",
        DOUBLE.arrow,
    )
    return pc.if_else(whole, value, pc.add(rounded, 0.0))  # no negative zero


def _round_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    check_argument_count(types, 1, 2)
    if len(types) > 1 and types[1] not in (INT32, INT64):
        raise TypeMismatch("the number of digits must be an integer", "write it as a number such as 2")
    value = numeric_type(types[:1], dialect)
    return Signature((value, INT64)[: len(types)], value)


def _real(kernel: Callable[..., Value]) -> Evaluate:
    """Returns the evaluation of a `kernel` of doubles. Outside of its domain the result is NaN; only the kernel of Spark's
    logarithm gives null there.
    """
    return infallible(kernel)


def _logarithm(kernel: Callable[..., Value]) -> Evaluate:
    def evaluate(value: Value) -> Value:
        return kernel(pc.if_else(pc.less_equal(value, 0.0), pa.scalar(None, pa.float64()), value))

    return infallible(evaluate)


def _log_to_base(base: Value, value: Value) -> Value:
    positive = pc.and_(pc.greater(base, 0.0), pc.greater(value, 0.0))
    log = pc.divide(pc.ln(value), pc.ln(base))
    return pc.if_else(positive, log, pa.scalar(None, pa.float64()))


def _signum(value: Value) -> Value:
    """Returns 1.0 or -1.0 for the sign of the value; NaN, 0.0 and -0.0 are returned unchanged."""
    return pc.if_else(pc.or_(pc.is_nan(value), pc.equal(value, 0.0)), value, pc.sign(value))


def _splitmix64(seed: Value, position: Value, draw: int) -> _UInt64s:
    """Returns 64 random bits for each position, by the generator splitmix64. Bits depend only on `seed`, the position and the
    number of the `draw`.
    """
    with np.errstate(over="ignore"):
        begin = np.uint64((seed.as_py() or 0) % (1 << 64)) + np.uint64(draw) * _FACTORS[0]
        bits: _UInt64s = begin ^ (position.fill_null(0).to_numpy().astype(np.uint64) * _STEP)
        for _ in range(2):
            bits = bits + _STEP
            bits = (bits ^ (bits >> np.uint64(30))) * _FACTORS[0]
            bits = (bits ^ (bits >> np.uint64(27))) * _FACTORS[1]
            bits = bits ^ (bits >> np.uint64(31))
    return bits


def _random(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    position, seed, *limits = arguments
    low, high = (limits[i] if i < len(limits) else pa.scalar(float(i)) for i in (0, 1))
    position = frame.array(position)
    fraction = pa.array((_splitmix64(seed, position, 0) >> np.uint64(11)).astype(np.float64) * _FRACTION)
    drawn = pc.add(low, pc.multiply(fraction, pc.subtract(high, low)))
    return pc.if_else(position.is_valid(), drawn, pa.scalar(None, pa.float64()))


def _guid(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    position, seed = frame.array(arguments[0]), arguments[1]
    first, second = _splitmix64(seed, position, 1).tolist(), _splitmix64(seed, position, 2).tolist()
    made = [None if p is None else _uuid_text(a, b) for p, a, b in zip(position.to_pylist(), first, second, strict=True)]
    return pa.array(made, pa.string())


def _uuid_text(first: int, second: int) -> str:
    """Returns 128 bits in the form of a UUID of version 8, which has no prescribed content."""
    digits = f"{first & ~0xF000 | 0x8000:016x}{second & ~(3 << 62) | (2 << 62):016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


ROW = Fallibility.ROW
_ONE_DOUBLE = fixed_rule(DOUBLE, DOUBLE)
FUNCTIONS: tuple[Function, ...] = (
    Function("add", arithmetic_rule(2), _checked("+"), "sum; overflow fails", fallibility=ROW),
    Function("subtract", arithmetic_rule(2), _checked("binary -"), "difference; overflow fails", fallibility=ROW),
    Function("multiply", arithmetic_rule(2), _checked("*"), "product; overflow fails", fallibility=ROW),
    Function(
        "divide",
        fixed_rule(DOUBLE, DOUBLE, DOUBLE),
        eager(_divide),
        "quotient as double; zero fails",
        esp_names=("quotient",),
        fallibility=ROW,
    ),
    Function("div", _whole_rule, eager(_whole_divide), "quotient of integers, truncated, as int64; zero fails", fallibility=ROW),
    Function("mod", _remainder_rule, eager(_remainder), "remainder, sign of the dividend; zero fails", ("mod",), ("mod",), ROW),
    Function(
        "negate",
        arithmetic_rule(1),
        _checked("-"),
        "negative; overflow fails",
        ("negative",),
        ("neg",),
        ROW,
    ),
    Function("positive", arithmetic_rule(1), infallible(lambda value: value), "the number itself", ("positive",)),
    Function(
        "abs",
        arithmetic_rule(1),
        _checked("abs"),
        "absolute value; overflow fails",
        ("abs",),
        ("abs",),
        ROW,
    ),
    Function(
        "ceil", _to_whole_rule, _to_whole(pc.ceil, "ceil"), "least int64 not below", ("ceil", "ceiling"), ("ceil", "ceiling"), ROW
    ),
    Function("floor", _to_whole_rule, _to_whole(pc.floor, "floor"), "greatest int64 not above", ("floor",), ("floor",), ROW),
    Function(
        "round",
        _round_rule,
        eager(_round),
        "round(x[, digits]), halves away from zero; overflow fails",
        ("round",),
        ("round",),
        ROW,
        (1,),
    ),
    Function("sqrt", _ONE_DOUBLE, _real(pc.sqrt), "square root; NaN below zero", ("sqrt",), ("sqrt",)),
    Function("exp", _ONE_DOUBLE, _real(pc.exp), "e to the power", ("exp",), ("exp",)),
    Function("ln", _ONE_DOUBLE, _logarithm(pc.ln), "natural logarithm; null unless above zero", ("ln",), ("ln", "log")),
    Function("log10", _ONE_DOUBLE, _logarithm(pc.log10), "logarithm to base 10; null unless above zero", ("log10",), ("log10",)),
    Function(
        "log", fixed_rule(DOUBLE, DOUBLE, DOUBLE), _real(_log_to_base), "log(base, x); null unless both are above zero", ("log",)
    ),
    Function("pow", fixed_rule(DOUBLE, DOUBLE, DOUBLE), _real(pc.power), "power, as double", ("pow", "power"), ("pow", "power")),
    Function("sign", _ONE_DOUBLE, _real(_signum), "-1, 0 or 1, as double", ("sign", "signum"), ("sign",)),
    Function("sin", _ONE_DOUBLE, _real(pc.sin), "sine", ("sin",), ("sin",)),
    Function("cos", _ONE_DOUBLE, _real(pc.cos), "cosine", ("cos",), ("cos",)),
    Function("tan", _ONE_DOUBLE, _real(pc.tan), "tangent", ("tan",), ("tan",)),
    Function(
        "isnan",
        fixed_rule(ValueType.BOOLEAN, DOUBLE),
        infallible(lambda v: pc.fill_null(pc.is_nan(v), fill_value=False)),
        "whether NaN; false for null",
        ("isnan",),
    ),
    Function(
        "random",
        fixed_rule(DOUBLE, INT64, INT64, DOUBLE, DOUBLE, required=2),
        eager(_random),
        "a number drawn from the place of the event",
        literal_arguments=(1,),
    ),
    Function(
        "guid",
        fixed_rule(STRING, INT64, INT64),
        eager(_guid),
        "an identifier drawn from the place of the event",
        literal_arguments=(1,),
    ),
)
