"""Choices. A branch that can fail is evaluated only for the rows that take it, so `if(b <> 0, a / b, 0)` never fails."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.arrays import comparable
from hotspare.expressions.frame import Frame, RowPieces, Value
from hotspare.expressions.function import (
    BOOLEAN,
    Evaluator,
    Function,
    Signature,
    TypeMismatch,
    alike,
    common,
    converts,
    count_between,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.elementwise import true_rows, with_nulls


def _case(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    """Arguments: condition, value, condition, value ... and the value otherwise."""
    pairs = list(zip(call.arguments[0:-1:2], call.arguments[1::2], strict=True))
    if any(evaluator.can_fail(a) for a in call.arguments[1:]):
        return _case_by_rows(evaluator, frame, call)
    conditions = [frame.array(evaluator.value(c, frame)) for c, _ in pairs]
    values = [evaluator.value(v, frame) for v in (*(v for _, v in pairs), call.arguments[-1])]
    if len(pairs) == 1:
        return pc.if_else(pc.fill_null(conditions[0], fill_value=False), *values)
    return pc.case_when(pc.make_struct(*conditions), *values)


def _case_by_rows(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    pieces = RowPieces(frame.length, call.type.arrow)
    rest = np.arange(frame.length, dtype=np.int64)
    for condition, value in zip(call.arguments[0:-1:2], call.arguments[1::2], strict=True):
        inner = frame.select(rest)
        holds = pc.fill_null(inner.array(evaluator.value(condition, inner)), fill_value=False).to_numpy(zero_copy_only=False)
        taken, rest = rest[holds], rest[~holds]
        inner = frame.select(taken)
        pieces.add(taken, inner.array(evaluator.value(value, inner)))
    inner = frame.select(rest)
    pieces.add(rest, inner.array(evaluator.value(call.arguments[-1], inner)))
    return pieces.joined()


def _coalesce(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    if not any(evaluator.can_fail(a) for a in call.arguments[1:]):
        return pc.coalesce(*(evaluator.value(a, frame) for a in call.arguments))
    pieces = RowPieces(frame.length, call.type.arrow)
    rest = np.arange(frame.length, dtype=np.int64)
    for argument in call.arguments:
        inner = frame.select(rest)
        value = inner.array(evaluator.value(argument, inner))
        found = value.is_valid().to_numpy(zero_copy_only=False)
        pieces.add(rest[found], value.filter(pa.array(found)))
        rest = rest[~found]
    pieces.add(rest, pa.nulls(len(rest), call.type.arrow))
    return pieces.joined()


def _nullif(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    left, right = (frame.array(evaluator.value(a, frame)) for a in call.arguments)
    if pa.types.is_list(left.type):
        return with_nulls(left, true_rows(pc.equal(comparable(left), comparable(right))))
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return with_nulls(left, true_rows(same))


def _case_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    if len(types) < 3 or len(types) % 2 == 0:
        raise TypeMismatch(
            "a condition and a value for each case, and the value otherwise, are wanted", "write condition, value, ..., otherwise"
        )
    for condition in types[0:-1:2]:
        if not converts(condition, BOOLEAN, dialect):
            raise TypeMismatch(f"a condition is {condition.value}, boolean is wanted", "compare it with something")
    value = common([*types[1::2], types[-1]], dialect)
    return Signature((BOOLEAN, value) * (len(types) // 2) + (value,), value)


def _nvl2_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    count_between(types, 3, 3)
    value = common(types[1:], dialect)
    return Signature((types[0], value, value), value)


def _nvl2(evaluator: Evaluator, frame: Frame, call: TypedCall) -> Value:
    known = TypedCall("isnotnull", call.arguments[:1], BOOLEAN)
    return _case(evaluator, frame, TypedCall("case", (known, *call.arguments[1:]), call.type))


FUNCTIONS: tuple[Function, ...] = (
    Function("case", _case_rule, _case, "if(condition, value, otherwise); null counts as false", ("if",), ("if",)),
    Function("coalesce", alike(1, -1), _coalesce, "the first that is not null", ("coalesce", "nvl", "ifnull"), ("coalesce",)),
    Function("nullif", alike(2, 2), _nullif, "null if both are equal, else the first", ("nullif",), ("nullif",)),
    Function("nvl2", _nvl2_rule, _nvl2, "the second if the first is not null, else the third", ("nvl2",)),
)
