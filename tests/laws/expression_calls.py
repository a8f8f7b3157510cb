"""Calls of every function and operator over every type that it accepts, and the extreme values to call them with.

Functions, operators, casts and conversions are taken from the table of functions, so that a new one is covered automatically.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from hotspare.expressions.checking import Checker
from hotspare.expressions.compiled import EVENT_FIELDS, CompiledExpression
from hotspare.expressions.function import TypeMismatch
from hotspare.expressions.function_table import FUNCTION_TABLE
from hotspare.expressions.times import TRUNC_UNITS
from hotspare.expressions.tree import Call, ExpressionRefused, FieldRef, Literal, Tree, Typed, ValueType, fields_used
from hotspare.model.project import Dialect
from hotspare.model.types import FieldType

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
LONG_TEXT = "a,b;c " * 2_000

_INT64S = [None, 0, 1, -1, 2, 19, -20, 400, 2**31, -(2**31) - 1, 10**12, INT64_MAX, INT64_MIN, INT64_MIN + 1]
_DOUBLES = [None, 0.0, -0.0, 1.5, -2.5, 0.005, 1e15, 2.0**63, 1e307, 1e308, -1.7976931348623157e308, 5e-324, -2.5e-320]
_TEXTS = [None, "", " ", "1", " -7 ", "1e999", "true", "no", "1970-01-01 00:00:00", "9999-02-30", "ä*ö?ü", "\x00", "%_", LONG_TEXT]
_STAMPS = [
    None,
    0,
    -1,
    1_729_154_425_123_456,
    -62_135_596_800_000_001,
    253_402_300_800_000_000,
    INT64_MAX,
    INT64_MIN,
    INT64_MIN + 1,
]
_MONEYS = [None, "0", "1.5", "-2.0001", "0.0001", "99999999999999.9999", "-99999999999999.9999", "50000000000000"]

VALUES: dict[ValueType, list[object]] = {
    ValueType.INT32: [None, 0, 1, -1, 3, -20, 400, 2**31 - 1, -(2**31)],
    ValueType.INT64: [*_INT64S],
    ValueType.DOUBLE: [*_DOUBLES, float("nan"), float("inf"), float("-inf")],
    ValueType.STRING: [*_TEXTS],
    ValueType.DATE: [*_STAMPS, 1_729_154_425, 2**63 // 1_000_000, -(2**63) // 1_000_000 - 1],
    ValueType.STAMP: [*_STAMPS],
    ValueType.MONEY: [*_MONEYS],
    ValueType.BLOB: [None, b"", b"\x00\xff", b"a" * 10_000],
    ValueType.INT32_ARRAY: [None, [], [1], [None, -(2**31), 2**31 - 1]],
    ValueType.INT64_ARRAY: [None, [], [INT64_MIN, None, INT64_MAX], [1, 2, 3]],
    ValueType.DOUBLE_ARRAY: [None, [], [0.0, None], [-0.0, None], [float("nan"), float("inf")]],
    ValueType.BOOLEAN: [None, True, False],
    ValueType.LIST: [None, [], ["a"], ["a", None, "", "a", "b,c"]],
    ValueType.MAP: [None, [], [("a", "1")], [("a", None), ("", "x"), ("a", "2")]],
}
"""Values per type: null, the ends of the range, and values next to them. Times as stored numbers, money as text."""

_LITERALS = [
    *(Literal(value, ValueType.INT32) for value in (0, 1, 2, -1, -20, 400)),
    *(Literal(value, ValueType.STRING) for value in ("", "a", "%b_", "(a|b)+", "$1x", "\\", "%Y-%m-%d", *TRUNC_UNITS)),
    Literal(INT64_MAX, ValueType.INT64),
    Literal(INT64_MIN, ValueType.INT64),
    Literal(1e308, ValueType.DOUBLE),
    Literal(True, ValueType.BOOLEAN),
    Literal(None, ValueType.NULL),
]
"""Literals that replace an argument now and then, and always if a constant is required."""
_CONVERSIONS = ("cast", "try_cast", "cast_stored")
_BY_THEMSELVES = ("convert", "convert_checked", "convert_text", "assign")
FIELDS = {f"{type_.value}{letter}": type_ for type_ in VALUES for letter in "abc"}
NAMES = {**FIELDS, **dict.fromkeys(EVENT_FIELDS, ValueType.STRING)}


@dataclass(frozen=True)
class Asked:
    """An expression, its readable form, and its dialect."""

    what: str
    expression: CompiledExpression

    def __str__(self) -> str:
        return self.what


def column(type_: ValueType, values: Sequence[object]) -> pa.Array:
    """Returns an array of values written as in `VALUES`."""
    if type_ in (ValueType.DATE, ValueType.STAMP):
        return pa.array(values, pa.int64()).cast(type_.arrow)
    if type_ is ValueType.MONEY:
        return pa.array(values, pa.string()).cast(type_.arrow)
    return pa.array(values, type_.arrow)


EXTREMES = {type_: column(type_, values) for type_, values in VALUES.items()}


def columns_for(fields: Sequence[str], rows_max: int) -> tuple[dict[str, pa.Array], int]:
    """Returns columns with each combination of the extreme values of these fields, thinned out to about `rows_max` rows."""
    names = [name for name in fields if name not in EVENT_FIELDS]
    sizes = [len(VALUES[FIELDS[name]]) for name in names]
    total = math.prod(sizes)
    step = -(-total // rows_max) | 1
    rows = [index * step % total for index in range(-(-total // step))]
    columns: dict[str, pa.Array] = {}
    for name, size in zip(names, sizes, strict=True):
        total //= size
        columns[name] = EXTREMES[FIELDS[name]].take(pa.array([row // total % size for row in rows]))
    return {**columns, **{name: pa.array(["I"] * len(rows)) for name in EVENT_FIELDS}}, len(rows)


def every_call(name: str, dialect: Dialect) -> Iterator[Asked]:
    """Yields every call of one entry of the function table that the checker accepts, of up to three arguments."""
    checker = Checker(NAMES, dialect)
    if name in _BY_THEMSELVES:
        yield from _converted(checker, dialect)
        return
    for tree in _conversions(name) if name in _CONVERSIONS else _calls(name, dialect):
        with contextlib.suppress(ExpressionRefused):
            yield _asked(checker.typed(tree), f"{dialect.value} {_shown(tree)}")


def _calls(name: str, dialect: Dialect) -> Iterator[Call]:
    """Yields calls whose types the function accepts: see `_candidates`."""
    function = FUNCTION_TABLE[name]
    for arguments, types in _candidates(
        (*function.literal_arguments, *function.pattern_arguments, *function.replacement_arguments)
    ):
        try:
            function.rule(types, dialect)
        except TypeMismatch:
            continue
        yield Call(name, name, arguments, 1)


Candidate = tuple[tuple[FieldRef | Literal, ...], list[ValueType]]
"""Arguments, and their types."""


@cache
def _candidates(constants: tuple[int, ...]) -> list[Candidate]:
    """Returns calls of a function that requires constants at these places: of one argument each type, of two each pair, of three
    those with two equal types. If constants are among them, a third of all combinations, in which each pair of arguments occurs."""
    chosen: list[tuple[FieldRef | Literal, ...]] = []
    for count in (1, 2, 3):
        fields = [[FieldRef(f"{type_.value}{'abc'[place]}") for type_ in VALUES] for place in range(count)]
        places = [_LITERALS if place in constants else fields[place] for place in range(count)]
        for numbered in itertools.product(*map(enumerate, places)):
            arguments = tuple(argument for _, argument in numbered)
            if constants and count == 3:
                is_taken = sum(number for number, _ in numbered) % 3 == 0
            else:
                is_taken = len({a.name[:-1] for a in arguments if isinstance(a, FieldRef)}) < 3
            if is_taken:
                chosen.append(arguments)
        if count == 2 and not constants:
            for (n, literal), (m, field) in itertools.product(enumerate(_LITERALS), enumerate(fields[0])):
                chosen += [(field, literal), (literal, field)] if (n + m) % 3 == 0 else []
    return [(each, [FIELDS[a.name] if isinstance(a, FieldRef) else a.type for a in each]) for each in chosen]


def _conversions(name: str) -> Iterator[Call]:
    if name in _CONVERSIONS:
        for source, target in itertools.product(VALUES, VALUES):
            yield Call(name, name, (FieldRef(f"{source.value}a"), Literal(target.value, ValueType.STRING)), 1)


def _converted(checker: Checker, dialect: Dialect) -> Iterator[Asked]:
    """Yields implicit conversions: assignment to a field, and use as a condition."""
    for source, target in itertools.product(VALUES, FieldType):
        for tree in (FieldRef(f"{source.value}a"), Call("coalesce", "coalesce", (FieldRef(f"{source.value}a"),), 1)):
            with contextlib.suppress(ExpressionRefused):
                yield _asked(
                    checker.assigned(tree, ValueType.from_field_type(target), "f"),
                    f"{dialect.value} {_shown(tree)} into {target.value}",
                )
    for name in (*(f"{source.value}a" for source in VALUES), *EVENT_FIELDS):
        with contextlib.suppress(ExpressionRefused):
            yield _asked(checker.condition(FieldRef(name)), f"{dialect.value} {name} as condition")


def _asked(typed: Typed, what: str) -> Asked:
    return Asked(what, CompiledExpression(what[:200], "window q/w, field f", typed, fields_used(typed)))


def _shown(tree: Tree) -> str:
    if isinstance(tree, Literal):
        return repr(tree.value)
    if isinstance(tree, FieldRef):
        return tree.name
    return f"{tree.function}({', '.join(_shown(a) for a in tree.arguments)})"
