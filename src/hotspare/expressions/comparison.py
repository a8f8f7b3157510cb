"""Comparison, logic and choices. NaN equals NaN and is greater than every other number, as in Spark; null is unknown.

Logic is three-valued. A branch of a choice that can fail is evaluated only for the rows that take it, so `if(b <> 0, a / b, 0)`
never fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import isnan

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.arrays import ARRAY_TYPES, comparison_bytes
from hotspare.expressions.frame import Frame, RowPieces, Value
from hotspare.expressions.function import (
    BOOLEAN,
    DOUBLE,
    INT32,
    Evaluate,
    Evaluator,
    Function,
    Signature,
    TypeMismatch,
    can_convert,
    check_argument_count,
    common_type,
    eager,
    fixed_rule,
    infallible,
    same_type_rule,
    variadic_rule,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.elementwise import true_rows, with_nulls

_FLOAT64 = pa.float64()


def _nan_aware(kernel: Callable[[Value, Value], Value], left: Value, right: Value) -> Value:
    """Returns the result of the comparison `kernel` with NaN as the greatest number, equal to itself. Arrays are compared only for
    equality.
    """
    if pa.types.is_list(left.type):
        left, right = comparison_bytes(left), comparison_bytes(right)
    plain_result = kernel(left, right)
    if left.type != _FLOAT64:
        return plain_result
    if not _has_nan(left) and not _has_nan(right):
        return plain_result
    left_nan, right_nan = pc.is_nan(left), pc.is_nan(right)
    either = pc.or_(left_nan, right_nan)
    as_ranks = kernel(pc.cast(left_nan, INT32.arrow), pc.cast(right_nan, INT32.arrow))
    return pc.if_else(either, as_ranks, plain_result)


def _has_nan(value: Value) -> bool:
    """Whether a value of doubles has NaN. A scalar is checked in Python, which costs less than a kernel."""
    if isinstance(value, pa.Scalar):
        return bool(value.is_valid and isnan(value.as_py()))
    return bool(pc.is_nan(value).true_count)


def _compared(kernel: Callable[[Value, Value], Value]) -> Evaluate:
    return eager(lambda _frame, _call, arguments: _nan_aware(kernel, arguments[0], arguments[1]))


def _null_safe(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    left, right = arguments
    same = _nan_aware(pc.equal, left, right)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.if_else(pc.or_(pc.is_null(left), pc.is_null(right)), both_null, same)


def _among(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    return reduce(pc.or_kleene, [_nan_aware(pc.equal, arguments[0], a) for a in arguments[1:]])


def _between(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    low = _nan_aware(pc.greater_equal, arguments[0], arguments[1])
    return pc.and_kleene(low, _nan_aware(pc.less_equal, arguments[0], arguments[2]))


def _three_way(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    greater = pc.cast(_nan_aware(pc.greater, *arguments), INT32.arrow)
    return pc.subtract(greater, pc.cast(_nan_aware(pc.less, *arguments), INT32.arrow))


def _junction(kernel: Callable[[Value, Value], Value], decided: pa.Scalar) -> Evaluate:
    """Returns the evaluation of AND or OR. `decided` is the value that ends the evaluation of a row. An argument that can fail is
    evaluated only for rows that are not decided yet.
    """

    def evaluate(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
        result = evaluator.evaluate_node(call.arguments[0], frame)
        for argument in call.arguments[1:]:
            if not evaluator.can_fail(argument):
                result = kernel(result, evaluator.evaluate_node(argument, frame))
                continue
            result = frame.array(result)
            rows = true_rows(pc.fill_null(pc.not_equal(result, decided), fill_value=True))
            inner = frame.select(rows)
            right = inner.array(evaluator.evaluate_node(argument, inner))
            mask = pc.fill_null(pc.not_equal(result, decided), fill_value=True)
            result = pc.replace_with_mask(result, mask, kernel(result.take(pa.array(rows)), right))
        return result

    return evaluate


def _extreme(kernel: Callable[..., Value]) -> Evaluate:
    """Returns the evaluation of GREATEST or LEAST. Nulls are skipped, and NaN is the greatest number."""

    def evaluate(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        if call.type in (ValueType.STRING, ValueType.BLOB, BOOLEAN):
            return reduce(lambda a, b: _chosen(kernel, a, b), arguments)
        result = kernel(*arguments, skip_nulls=True)
        if call.type is not DOUBLE:
            return result
        nans = [pc.fill_null(pc.is_nan(a), fill_value=False) for a in arguments]
        if kernel is pc.max_element_wise:
            return pc.if_else(reduce(pc.or_, nans), pa.scalar(float("nan")), result)
        numbers = [pc.if_else(n, pa.scalar(None, pa.float64()), a) for n, a in zip(nans, arguments, strict=True)]
        return pc.coalesce(kernel(*numbers, skip_nulls=True), *arguments)

    return eager(evaluate)


def _chosen(kernel: Callable[..., Value], left: Value, right: Value) -> Value:
    compare = pc.greater_equal if kernel is pc.max_element_wise else pc.less_equal
    takes_left = pc.fill_null(compare(left, right), pc.is_valid(left))
    return pc.if_else(takes_left, left, right)


def _ordered_rule(result: ValueType, least: int, most: int) -> Callable[[Sequence[ValueType], Dialect], Signature]:
    """Returns a rule for `least` to `most` arguments of one common type. The rule raises TypeMismatch if values of that type have
    no order.
    """
    shared = same_type_rule(least, most, result)

    def rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
        signature = shared(types, dialect)
        _check_order(signature.arguments[0])
        return signature

    return rule


def _extreme_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    check_argument_count(types, 2, len(types))
    shared = common_type(types, dialect)
    _check_order(shared)
    return Signature((shared,) * len(types), shared)


def _check_order(type_: ValueType) -> None:
    if type_ is ValueType.BLOB or type_ in ARRAY_TYPES:
        what = "blobs" if type_ is ValueType.BLOB else "arrays"
        raise TypeMismatch(f"{what} have no order", "compare other fields, or ask only whether they are equal")


def _case(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    """Returns, for each row, the value of the first true condition, else the default. Arguments: condition, value, condition, value
    ... default.
    """
    pairs = list(zip(call.arguments[0:-1:2], call.arguments[1::2], strict=True))
    if any(evaluator.can_fail(a) for a in call.arguments[1:]):
        return _case_by_rows(evaluator, frame, call)
    conditions = [frame.array(evaluator.evaluate_node(c, frame)) for c, _ in pairs]
    values = [evaluator.evaluate_node(v, frame) for v in (*(v for _, v in pairs), call.arguments[-1])]
    if len(pairs) == 1:
        return pc.if_else(pc.fill_null(conditions[0], fill_value=False), *values)
    return pc.case_when(pc.make_struct(*conditions), *values)


def _case_by_rows(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    pieces = RowPieces(frame.length, call.type.arrow)
    rest = np.arange(frame.length, dtype=np.int64)
    for condition, value in zip(call.arguments[0:-1:2], call.arguments[1::2], strict=True):
        inner = frame.select(rest)
        holds = pc.fill_null(inner.array(evaluator.evaluate_node(condition, inner)), fill_value=False).to_numpy(
            zero_copy_only=False
        )
        taken, rest = rest[holds], rest[~holds]
        inner = frame.select(taken)
        pieces.add(taken, inner.array(evaluator.evaluate_node(value, inner)))
    inner = frame.select(rest)
    pieces.add(rest, inner.array(evaluator.evaluate_node(call.arguments[-1], inner)))
    return pieces.joined()


def _coalesce(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    if not any(evaluator.can_fail(a) for a in call.arguments[1:]):
        return pc.coalesce(*(evaluator.evaluate_node(a, frame) for a in call.arguments))
    pieces = RowPieces(frame.length, call.type.arrow)
    rest = np.arange(frame.length, dtype=np.int64)
    for argument in call.arguments:
        inner = frame.select(rest)
        value = inner.array(evaluator.evaluate_node(argument, inner))
        found = value.is_valid().to_numpy(zero_copy_only=False)
        pieces.add(rest[found], value.filter(pa.array(found)))
        rest = rest[~found]
    pieces.add(rest, pa.nulls(len(rest), call.type.arrow))
    return pieces.joined()


def _nullif(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    left, right = (frame.array(evaluator.evaluate_node(a, frame)) for a in call.arguments)
    if pa.types.is_list(left.type):
        return with_nulls(left, true_rows(pc.equal(comparison_bytes(left), comparison_bytes(right))))
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return with_nulls(left, true_rows(same))


def _case_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    if len(types) < 3 or len(types) % 2 == 0:
        raise TypeMismatch(
            "the arguments are not pairs of condition and value, and a last value", "write condition, value, ..., otherwise"
        )
    for condition in types[0:-1:2]:
        if not can_convert(condition, BOOLEAN, dialect):
            raise TypeMismatch(f"a condition has type {condition.value}, not boolean", "compare it with something")
    value = common_type([*types[1::2], types[-1]], dialect)
    return Signature((BOOLEAN, value) * (len(types) // 2) + (value,), value)


def _nvl2_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    check_argument_count(types, 3, 3)
    value = common_type(types[1:], dialect)
    return Signature((types[0], value, value), value)


def _nvl2(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    known = TypedCall("isnotnull", call.arguments[:1], BOOLEAN)
    return _case(evaluator, frame, TypedCall("case", (known, *call.arguments[1:]), call.type))


_TWO = _ordered_rule(BOOLEAN, 2, 2)
_LOGIC = variadic_rule(BOOLEAN, BOOLEAN)
FUNCTIONS: tuple[Function, ...] = (
    Function("equal", same_type_rule(2, 2, BOOLEAN), _compared(pc.equal), "whether equal", esp_names=("eq", "equals")),
    Function(
        "not_equal",
        same_type_rule(2, 2, BOOLEAN),
        _compared(pc.not_equal),
        "whether different",
        esp_names=("neq", "nequals", "notequals"),
    ),
    Function("less", _TWO, _compared(pc.less), "whether less", esp_names=("lt",)),
    Function("less_equal", _TWO, _compared(pc.less_equal), "whether less or equal", esp_names=("lte",)),
    Function("greater", _TWO, _compared(pc.greater), "whether greater", esp_names=("gt",)),
    Function("greater_equal", _TWO, _compared(pc.greater_equal), "whether greater or equal", esp_names=("gte",)),
    Function("null_safe_equal", same_type_rule(2, 2, BOOLEAN), eager(_null_safe), "whether equal, null being equal to null (<=>)"),
    Function(
        "in",
        same_type_rule(2, -1, BOOLEAN),
        eager(_among),
        "whether the first equals one of the others",
        esp_names=("in", "inlist"),
    ),
    Function(
        "between", _ordered_rule(BOOLEAN, 3, 3), eager(_between), "whether from the second to the third", esp_names=("between",)
    ),
    Function("compare", _ordered_rule(INT32, 2, 2), eager(_three_way), "-1, 0 or 1", esp_names=("compare",)),
    Function("and", _LOGIC, _junction(pc.and_kleene, pa.scalar(value=False)), "conjunction; stops at false", esp_names=("and",)),
    Function("or", _LOGIC, _junction(pc.or_kleene, pa.scalar(value=True)), "disjunction; stops at true", esp_names=("or",)),
    Function("not", fixed_rule(BOOLEAN, BOOLEAN), infallible(pc.invert), "negation", esp_names=("not",)),
    Function("isnull", same_type_rule(1, 1, BOOLEAN), infallible(pc.is_null), "whether null", ("isnull",), ("isnull",)),
    Function("isnotnull", same_type_rule(1, 1, BOOLEAN), infallible(pc.is_valid), "whether not null", ("isnotnull",), ("isset",)),
    Function(
        "greatest", _extreme_rule, _extreme(pc.max_element_wise), "greatest; nulls are skipped", ("greatest",), ("max", "greatest")
    ),
    Function("least", _extreme_rule, _extreme(pc.min_element_wise), "least; nulls are skipped", ("least",), ("min", "least")),
    Function("case", _case_rule, _case, "if(condition, value, otherwise); null counts as false", ("if",), ("if",)),
    Function(
        "coalesce", same_type_rule(1, -1), _coalesce, "the first that is not null", ("coalesce", "nvl", "ifnull"), ("coalesce",)
    ),
    Function("nullif", same_type_rule(2, 2), _nullif, "null if both are equal, else the first", ("nullif",), ("nullif",)),
    Function("nvl2", _nvl2_rule, _nvl2, "the second if the first is not null, else the third", ("nvl2",)),
)
