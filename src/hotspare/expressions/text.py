"""Strings. Lengths and places count Unicode characters.

Where Arrow has a kernel only for a constant pattern, other patterns are handled row by row, which is some ten times slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import (
    BOOLEAN,
    INT32,
    INT64,
    STRING,
    Evaluate,
    Function,
    Signature,
    TypeMismatch,
    ValueFunction,
    eager,
    fixed,
    plain,
    variadic,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect

BLANK = " "


def row_by_row(function: Callable[..., object]) -> Callable[[Frame, TypedCall, list[Value]], Value]:
    """A Python function of values none of which is null; null otherwise."""

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        columns = [frame.array(a).to_pylist() for a in arguments]
        values = [None if None in row else function(*row) for row in zip(*columns, strict=True)]
        return pa.array(values, call.type.arrow)

    return kernel


def each_value(function: Callable[..., object]) -> Evaluate:
    """A Python function as `row_by_row`, which never raises."""
    return ValueFunction(row_by_row(function), function)


def _by_pattern(vectorised: Callable[[Value, str], Value], function: Callable[[str, str], object]) -> Evaluate:
    """(text, pattern): the Arrow kernel where the pattern is a constant and not empty."""
    slow = row_by_row(function)

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        text, pattern = arguments
        if isinstance(text, pa.Array) and isinstance(pattern, pa.Scalar) and pattern.is_valid and pattern.as_py():
            return vectorised(text, pattern.as_py()).cast(call.type.arrow)
        return slow(frame, call, arguments)

    return ValueFunction(kernel, function)


def _place(origin: int) -> Evaluate:
    """Where the pattern first stands, counting from `origin`; one less than `origin` where it does not."""

    def vectorised(text: Value, pattern: str) -> Value:
        if pc.all(pc.string_is_ascii(text)).as_py():
            return pc.add(pc.find_substring(text, pattern), origin)
        return pa.array([None if t is None else t.find(pattern) + origin for t in text.to_pylist()], pa.int32())

    return _by_pattern(vectorised, lambda text, pattern: text.find(pattern) + origin)


def _last_place(text: str, pattern: str) -> int:
    return text.rfind(pattern)


def _slice(text: str, begin: int, length: int | None) -> str:
    """`length` characters from the 0-based `begin`, which may lie before the text."""
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


def _sql_substring(text: str, position: int, length: int | None = None) -> str:
    begin = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return _slice(text, begin, length)


def _zero_substring(text: str, position: int, length: int | None = None) -> str:
    return _slice(text, max(position, 0), length)


def _substring(function: Callable[..., str], origin: int) -> Evaluate:
    slow = row_by_row(function)

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        text, *numbers = arguments
        constants = [n.as_py() for n in numbers if isinstance(n, pa.Scalar) and n.is_valid]
        if len(constants) < len(numbers) or constants[0] < origin or not isinstance(text, pa.Array):
            return slow(frame, call, arguments)
        begin = constants[0] - origin
        end = begin + max(constants[1], 0) if len(constants) > 1 else None
        return pc.utf8_slice_codeunits(text, begin, end)

    return ValueFunction(kernel, function)


def _replace(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    text, search, new = arguments
    constant = all(isinstance(a, pa.Scalar) and a.is_valid for a in (search, new))
    if constant and isinstance(text, pa.Array) and search.as_py():
        return pc.replace_substring(text, search.as_py(), new.as_py())
    return row_by_row(lambda t, s, n: t.replace(s, n) if s else t)(frame, call, arguments)


def _concat_with(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    separator, *parts = (frame.array(a) for a in arguments)
    absent = reduce(pc.and_, [pc.is_null(part) for part in parts], pa.scalar(value=True))
    first = pc.if_else(absent, "", parts[0] if parts else "")  # Arrow leaves out a row of which every part is null
    joined = pc.binary_join_element_wise(first, *parts[1:], pc.fill_null(separator, ""), null_handling="skip")
    return pc.if_else(pc.is_valid(separator), joined, pa.scalar(None, pa.string()))


def _concat(*parts: Value) -> Value:
    return pc.binary_join_element_wise(*parts, "", null_handling="emit_null")


def _trim(kernel: Callable[..., Value]) -> Evaluate:
    def evaluate(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
        characters = arguments[1].as_py() if len(arguments) > 1 else BLANK
        return kernel(arguments[0], characters=characters or "")

    return eager(evaluate)


def _wildcards(pattern: str) -> str:
    """A pattern with * and ? as a regular expression."""
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)


def _matches(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    text, pattern = arguments
    if isinstance(pattern, pa.Scalar) and pattern.is_valid:
        wanted = pattern.as_py()
        found = (
            pc.match_substring_regex(text, f"^(?s:{_wildcards(wanted)})$") if set(wanted) & set("*?") else pc.equal(text, pattern)
        )
    else:
        found = row_by_row(lambda t, p: re.fullmatch(_wildcards(p), t, re.DOTALL) is not None)(
            frame, TypedCall(call.function, call.arguments, BOOLEAN), arguments
        )
    return pc.cast(pc.fill_null(found, fill_value=False), INT32.arrow)


def _like(_frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    pattern = arguments[1].as_py()
    if pattern is None:
        return pa.scalar(None, pa.bool_())
    return pc.match_like(arguments[0], pattern, ignore_case=call.function == "ilike")


def _regex(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    pattern = arguments[1].as_py()
    return pa.scalar(None, pa.bool_()) if pattern is None else pc.match_substring_regex(arguments[0], pattern)


def _regex_replace(_frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    pattern, new = (a.as_py() for a in arguments[1:])
    if pattern is None or new is None:
        return pa.scalar(None, pa.string())
    return pc.replace_substring_regex(arguments[0], pattern, replacement(new))


def replacement(text: str) -> str:
    """A replacement with groups $1, $2 ... as RE2 writes it."""
    return re.sub(r"\$([0-9])", r"\\\1", text)


def _any_text(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    if not types:
        raise TypeMismatch("no arguments given", "give at least one")
    return variadic(STRING, STRING)(types, dialect)


_TEXT, _TEXT_PAIR = fixed(STRING, STRING), fixed(BOOLEAN, STRING, STRING)
_CUT = fixed(STRING, STRING, INT64, INT64, required=2)

FUNCTIONS: tuple[Function, ...] = (
    Function("upper", _TEXT, plain(pc.utf8_upper), "upper case, character by character", ("upper", "ucase"), ("upper", "toupper")),
    Function("lower", _TEXT, plain(pc.utf8_lower), "lower case, character by character", ("lower", "lcase"), ("lower", "tolower")),
    Function(
        "trim",
        fixed(STRING, STRING, STRING, required=1),
        _trim(pc.utf8_trim),
        "without blanks at both ends",
        ("trim", "btrim"),
        ("trim",),
        literals=(1,),
    ),
    Function(
        "ltrim",
        fixed(STRING, STRING, STRING, required=1),
        _trim(pc.utf8_ltrim),
        "without blanks at the beginning",
        ("ltrim",),
        ("ltrim",),
        literals=(1,),
    ),
    Function(
        "rtrim",
        fixed(STRING, STRING, STRING, required=1),
        _trim(pc.utf8_rtrim),
        "without blanks at the end",
        ("rtrim",),
        ("rtrim",),
        literals=(1,),
    ),
    Function(
        "length",
        fixed(INT32, STRING),
        plain(pc.utf8_length),
        "number of characters",
        ("length", "len", "char_length", "character_length"),
        ("length", "len", "stringlength"),
    ),
    Function(
        "substring",
        _CUT,
        _substring(_sql_substring, 1),
        "substring(s, position from 1[, length]); a negative position counts from the end",
        ("substring", "substr"),
        ("mid", "substr"),
    ),
    Function(
        "substring_from_0", _CUT, _substring(_zero_substring, 0), "substring(s, position from 0[, length])", esp=("substring",)
    ),
    Function(
        "left",
        fixed(STRING, STRING, INT64),
        each_value((lambda t, n: t[: max(n, 0)])),
        "the first n characters",
        ("left",),
        ("left",),
    ),
    Function(
        "right",
        fixed(STRING, STRING, INT64),
        each_value((lambda t, n: t[-n:] if n > 0 else "")),
        "the last n characters",
        ("right",),
        ("right",),
    ),
    Function("reverse", _TEXT, plain(pc.utf8_reverse), "the characters backwards", ("reverse",), ("reverse",)),
    Function("concat", _any_text, plain(_concat), "all strings one after another", ("concat",), ("concat",)),
    Function(
        "concat_ws",
        _any_text,
        eager(_concat_with),
        "concat_ws(separator, ...); nulls are skipped",
        ("concat_ws",),
        ("concatdelim",),
    ),
    Function(
        "contains",
        _TEXT_PAIR,
        _by_pattern(pc.match_substring, lambda t, p: p in t),
        "whether the second stands in the first",
        ("contains",),
        ("contains",),
    ),
    Function(
        "startswith",
        _TEXT_PAIR,
        _by_pattern(pc.starts_with, lambda t, p: t.startswith(p)),
        "whether the first begins with the second",
        ("startswith",),
        ("startswith",),
    ),
    Function(
        "endswith",
        _TEXT_PAIR,
        _by_pattern(pc.ends_with, lambda t, p: t.endswith(p)),
        "whether the first ends with the second",
        ("endswith",),
        ("endswith",),
    ),
    Function(
        "instr",
        fixed(INT32, STRING, STRING),
        _place(1),
        "place of the second in the first, from 1; 0 if absent",
        ("instr",),
        ("instr",),
    ),
    Function(
        "indexof",
        fixed(INT32, STRING, STRING),
        _place(0),
        "place of the second in the first, from 0; -1 if absent",
        esp=("indexof", "index"),
    ),
    Function(
        "lastindexof",
        fixed(INT32, STRING, STRING),
        each_value(_last_place),
        "last place of the second in the first, from 0; -1 if absent",
        esp=("lastindexof",),
    ),
    Function(
        "replace", fixed(STRING, STRING, STRING, STRING), eager(_replace), "replace(s, search, new)", ("replace",), ("replace",)
    ),
    Function(
        "match_string",
        fixed(INT32, STRING, STRING),
        eager(_matches),
        "1 if the first equals the second, in which * and ? stand for any text and any character, else 0; null matches nothing",
        esp=("match_string",),
    ),
    Function("like", _TEXT_PAIR, eager(_like), "SQL pattern with % and _", literals=(1,)),
    Function("ilike", _TEXT_PAIR, eager(_like), "SQL pattern, upper and lower case alike", literals=(1,)),
    Function(
        "rlike",
        _TEXT_PAIR,
        eager(_regex),
        "whether a regular expression (RE2) is found",
        ("rlike", "regexp", "regexp_like"),
        ("rgxmatch",),
        patterns=(1,),
    ),
    Function(
        "regexp_replace",
        fixed(STRING, STRING, STRING, STRING),
        eager(_regex_replace),
        "every match of a regular expression (RE2) replaced; $1 is a group",
        ("regexp_replace",),
        ("rgxreplaceall",),
        patterns=(1,),
        replacements=(2,),
    ),
)
