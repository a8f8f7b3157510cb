"""Strings: the functions of SQL, and those that SAS expressions and functional windows add. Lengths and positions count Unicode
characters.

If Arrow has no kernel, or a kernel only for a constant pattern, values are processed row by row, which is about ten times slower.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import (
    BOOLEAN,
    INT32,
    INT64,
    STRING,
    Evaluate,
    Fallibility,
    Function,
    Signature,
    TypeMismatch,
    ValueFunction,
    eager,
    fixed_rule,
    infallible,
    variadic_rule,
)
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.elementwise import true_rows

BLANK = " "
DISTANCE_CHARACTERS_MAX = 1_000
"""The maximum length, in characters, of texts whose distance is computed: the time grows with the product of the lengths."""
BUILT_LENGTH_MAX = 1 << 20
"""The maximum length, in characters, of a text that is padded or repeated."""
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def python_kernel(function: Callable[..., object]) -> Callable[[Frame, TypedCall, list[Value]], Value]:
    """Returns a kernel that applies `function` to the arguments of each row. `function` gets no null; a null argument gives
    null.
    """

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        columns = [frame.array(a).to_pylist() for a in arguments]
        values = [None if None in row else function(*row) for row in zip(*columns, strict=True)]
        return pa.array(values, call.type.arrow)

    return kernel


def value_function(function: Callable[..., object]) -> Evaluate:
    """Returns the evaluation of `function` as by `python_kernel`, usable for single values too. `function` must not raise."""
    return ValueFunction(python_kernel(function), function)


def _by_pattern(vectorised: Callable[[Value, str], Value], function: Callable[[str, str], object]) -> Evaluate:
    """Returns an evaluation for (text, pattern). It uses `vectorised` if the pattern is a non-empty constant, else `function` for
    each row.
    """
    slow = python_kernel(function)

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        text, pattern = arguments
        if isinstance(text, pa.Array) and isinstance(pattern, pa.Scalar) and pattern.is_valid and pattern.as_py():
            return vectorised(text, pattern.as_py()).cast(call.type.arrow)
        return slow(frame, call, arguments)

    return ValueFunction(kernel, function)


def _place(origin: int) -> Evaluate:
    """Returns an evaluation of the position of the pattern's first occurrence, counted from `origin`; `origin` - 1 if the text
    lacks it.
    """

    def vectorised(text: Value, pattern: str) -> Value:
        if pc.all(pc.string_is_ascii(text)).as_py():
            return pc.add(pc.find_substring(text, pattern), origin)
        return pa.array([None if t is None else t.find(pattern) + origin for t in text.to_pylist()], pa.int32())

    return _by_pattern(vectorised, lambda text, pattern: text.find(pattern) + origin)


def _last_place(text: str, pattern: str) -> int:
    return text.rfind(pattern)


def _slice(text: str, begin: int, length: int | None) -> str:
    """Returns `length` characters of the text from the 0-based `begin`, all if None. If `begin` is negative, the part before the
    text is empty.
    """
    end = len(text) if length is None else begin + length
    return text[max(begin, 0) : max(end, 0)]


def _sql_substring(text: str, position: int, length: int | None = None) -> str:
    begin = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return _slice(text, begin, length)


def _zero_substring(text: str, position: int, length: int | None = None) -> str:
    return _slice(text, max(position, 0), length)


def _substring(function: Callable[..., str], origin: int) -> Evaluate:
    slow = python_kernel(function)

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
    return python_kernel(lambda t, s, n: t.replace(s, n) if s else t)(frame, call, arguments)


def _concat_with(frame: Frame, _call: TypedCall, arguments: list[Value]) -> Value:
    separator, *parts = (frame.array(a) for a in arguments)
    absent = reduce(pc.and_, [pc.is_null(part) for part in parts], pa.scalar(value=True))
    first = pc.if_else(absent, "", parts[0] if parts else "")  # Arrow drops a row if every part is null
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
    """Returns a regular expression for a pattern in which * is any text and ? any character."""
    return "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)


def _matches(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    text, pattern = arguments
    if isinstance(pattern, pa.Scalar) and pattern.is_valid:
        wanted = pattern.as_py()
        found = (
            pc.match_substring_regex(text, f"^(?s:{_wildcards(wanted)})$") if set(wanted) & set("*?") else pc.equal(text, pattern)
        )
    else:
        found = python_kernel(lambda t, p: re.fullmatch(_wildcards(p), t, re.DOTALL) is not None)(
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
    """Returns a replacement text with groups $1, $2 ... converted to the form of RE2."""
    return re.sub(r"\$([0-9])", r"\\\1", text)


def _any_text(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    if not types:
        raise TypeMismatch("no arguments given", "give at least one")
    return variadic_rule(STRING, STRING)(types, dialect)


def _normalized(text: Value) -> Value:
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(text, r"\s+", " "))


def _pattern(text: Value) -> Value:
    for letters, sign in ((r"[^\p{Lu}\p{Ll}\p{Nd}]", "*"), (r"\p{Nd}", "9"), (r"\p{Lu}", "A"), (r"\p{Ll}", "a")):
        text = pc.replace_substring_regex(text, letters, sign)
    return text


def _translated(text: str, old: str, new: str) -> str:
    """Returns the text with each character of `old` replaced by the one at the same index in `new`. Without such a character it is
    removed. If a character is twice in `old`, the first one counts.
    """
    table: dict[int, str | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place] if place < len(new) else None)
    return text.translate(table)


def _distance(a: str, b: str) -> int:
    """Returns the Levenshtein distance: the number of characters to insert, delete or change so that `a` becomes `b`."""
    if len(a) < len(b):
        a, b = b, a
    letters = np.array([ord(c) for c in b], np.int64)
    steps = np.arange(len(b) + 1)
    row = steps.copy()
    for number, letter in enumerate(a, 1):
        least = np.empty_like(row)
        least[0] = number
        least[1:] = np.minimum(row[1:] + 1, row[:-1] + (letters != ord(letter)))
        row = np.minimum.accumulate(least - steps) + steps
    return int(row[-1])


def _limited(function: object, length_of: object, message: str) -> Evaluate:
    """Returns an evaluation of `function`, applied row by row. `length_of(*arguments)` is called first: a row for which it returns
    true fails with `message`.
    """
    slow = python_kernel(function)  # type: ignore[arg-type]

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        columns = [frame.array(a).to_pylist() for a in arguments]
        beyond = pa.array([None not in row and length_of(*row) for row in zip(*columns, strict=True)], pa.bool_())  # type: ignore[operator]
        first = frame.fail_where(arguments[0], beyond, message, BadReason.EXPRESSION)
        return slow(frame, call, [first, *arguments[1:]])

    return eager(kernel)


def _sorted(text: str, *how: object) -> str:
    """Returns the characters of the text in order. `how`: whether the order ascends, and whether each character is returned only
    once.
    """
    return "".join(_in_order(list(text), how))


def _sorted_words(text: str, *how: object) -> str:
    return " ".join(_in_order(text.split(), how))


def _in_order(parts: Sequence[str], how: Sequence[object]) -> list[str]:
    kept = list(dict.fromkeys(parts)) if len(how) > 1 and how[1] else parts
    return sorted(kept, reverse=bool(how) and not how[0])


def _letter(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    number = frame.array(arguments[0])
    numbers = number.to_pylist()
    wrong = [n is not None and (not 0 < n <= _LAST_CHARACTER or n in _SURROGATES) for n in numbers]
    frame.fail(true_rows(pa.array(wrong, pa.bool_())), "the number is not a character")
    return pa.array([None if n is None or bad else chr(n) for n, bad in zip(numbers, wrong, strict=True)], pa.string())


def _filled(text: str, length: int, fill: str) -> str:
    missing = length - len(text)
    return text[: max(length, 0)] if missing <= 0 or not fill else (fill * (missing // len(fill) + 1))[:missing]


def _left_filled(text: str, length: int, fill: str = " ") -> str:
    made = _filled(text, length, fill)
    return made if length <= len(text) else made + text if fill else text


def _right_filled(text: str, length: int, fill: str = " ") -> str:
    made = _filled(text, length, fill)
    return made if length <= len(text) else text + made if fill else text


def _before_count(text: str, separator: str, count: int) -> str:
    """Returns the part before separator number `count`. If `count` is negative, returns the part after separator number `-count`
    from the end. With fewer separators the result is all of the text.
    """
    if not separator or not count:
        return ""
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[count:])


_TEXT, _TEXT_PAIR = fixed_rule(STRING, STRING), fixed_rule(BOOLEAN, STRING, STRING)
_CUT = fixed_rule(STRING, STRING, INT64, INT64, required=2)
_IS = fixed_rule(BOOLEAN, STRING)
_TWO = fixed_rule(STRING, STRING, STRING)
_SORT = fixed_rule(STRING, STRING, BOOLEAN, BOOLEAN, required=1)
_TOO_LONG = f"the text would have more than {BUILT_LENGTH_MAX} characters"
_PAD = fixed_rule(STRING, STRING, INT32, STRING, required=2)
ROW = Fallibility.ROW


def _is_long(text: str, length: int, fill: str = "") -> bool:
    return length > BUILT_LENGTH_MAX


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "upper", _TEXT, infallible(pc.utf8_upper), "upper case, character by character", ("upper", "ucase"), ("upper", "toupper")
    ),
    Function(
        "lower", _TEXT, infallible(pc.utf8_lower), "lower case, character by character", ("lower", "lcase"), ("lower", "tolower")
    ),
    Function(
        "trim",
        fixed_rule(STRING, STRING, STRING, required=1),
        _trim(pc.utf8_trim),
        "without blanks at both ends",
        ("trim", "btrim"),
        ("trim",),
        literal_arguments=(1,),
    ),
    Function(
        "ltrim",
        fixed_rule(STRING, STRING, STRING, required=1),
        _trim(pc.utf8_ltrim),
        "without blanks at the beginning",
        ("ltrim",),
        ("ltrim",),
        literal_arguments=(1,),
    ),
    Function(
        "rtrim",
        fixed_rule(STRING, STRING, STRING, required=1),
        _trim(pc.utf8_rtrim),
        "without blanks at the end",
        ("rtrim",),
        ("rtrim",),
        literal_arguments=(1,),
    ),
    Function(
        "length",
        fixed_rule(INT32, STRING),
        infallible(pc.utf8_length),
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
        "substring_from_0",
        _CUT,
        _substring(_zero_substring, 0),
        "substring(s, position from 0[, length])",
        esp_names=("substring",),
    ),
    Function(
        "left",
        fixed_rule(STRING, STRING, INT64),
        value_function((lambda t, n: t[: max(n, 0)])),
        "the first n characters",
        ("left",),
        ("left",),
    ),
    Function(
        "right",
        fixed_rule(STRING, STRING, INT64),
        value_function((lambda t, n: t[-n:] if n > 0 else "")),
        "the last n characters",
        ("right",),
        ("right",),
    ),
    Function("reverse", _TEXT, infallible(pc.utf8_reverse), "the characters backwards", ("reverse",), ("reverse",)),
    Function("concat", _any_text, infallible(_concat), "all strings one after another", ("concat",), ("concat",)),
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
        "whether the first contains the second",
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
        fixed_rule(INT32, STRING, STRING),
        _place(1),
        "place of the second in the first, from 1; 0 if absent",
        ("instr",),
        ("instr",),
    ),
    Function(
        "indexof",
        fixed_rule(INT32, STRING, STRING),
        _place(0),
        "place of the second in the first, from 0; -1 if absent",
        esp_names=("indexof", "index"),
    ),
    Function(
        "lastindexof",
        fixed_rule(INT32, STRING, STRING),
        value_function(_last_place),
        "last place of the second in the first, from 0; -1 if absent",
        esp_names=("lastindexof",),
    ),
    Function(
        "replace",
        fixed_rule(STRING, STRING, STRING, STRING),
        eager(_replace),
        "replace(s, search, new)",
        ("replace",),
        ("replace",),
    ),
    Function(
        "match_string",
        fixed_rule(INT32, STRING, STRING),
        eager(_matches),
        "1 if the first equals the second, in which * matches any text and ? any character, else 0; null matches nothing",
        esp_names=("match_string",),
    ),
    Function("like", _TEXT_PAIR, eager(_like), "SQL pattern with % and _", literal_arguments=(1,)),
    Function("ilike", _TEXT_PAIR, eager(_like), "SQL pattern, upper and lower case alike", literal_arguments=(1,)),
    Function(
        "rlike",
        _TEXT_PAIR,
        eager(_regex),
        "whether a regular expression (RE2) is found",
        ("rlike", "regexp", "regexp_like"),
        ("rgxmatch",),
        pattern_arguments=(1,),
    ),
    Function(
        "regexp_replace",
        fixed_rule(STRING, STRING, STRING, STRING),
        eager(_regex_replace),
        "every match of a regular expression (RE2) replaced; $1 is a group",
        ("regexp_replace",),
        ("rgxreplaceall",),
        pattern_arguments=(1,),
        replacement_arguments=(2,),
    ),
    Function(
        "substring_before",
        _TWO,
        value_function((lambda t, s: t.partition(s)[0] if s and s in t else "")),
        "the text before the first place of the second in the first; empty if it is absent",
        esp_names=("substringbefore",),
    ),
    Function(
        "substring_after",
        _TWO,
        value_function((lambda t, s: t.partition(s)[2] if s else t)),
        "the text after the first place of the second in the first; empty if it is absent",
        esp_names=("substringafter",),
    ),
    Function(
        "normalize_space",
        _TEXT,
        infallible(_normalized),
        "without blanks at both ends, each run of blanks being one",
        esp_names=("normalizespace",),
    ),
    Function(
        "translate",
        fixed_rule(STRING, STRING, STRING, STRING),
        value_function(_translated),
        "translate(s, old, new): each character of old becomes that at its place in new, or is removed",
        ("translate",),
        ("translate",),
    ),
    Function("pattern", _TEXT, infallible(_pattern), "each letter as A or a, each digit as 9, others as *", esp_names=("pattern",)),
    Function(
        "asc",
        fixed_rule(INT32, STRING),
        value_function(lambda t: ord(t[0]) if t else 0),
        "number of the first character; 0 if there is none",
        ("ascii",),
        ("asc",),
    ),
    Function("chr_of", fixed_rule(STRING, INT64), eager(_letter), "the character of a number", esp_names=("chr",), fallibility=ROW),
    Function(
        "edit_distance",
        fixed_rule(INT32, STRING, STRING),
        _limited(
            _distance,
            lambda a, b: max(len(a), len(b)) > DISTANCE_CHARACTERS_MAX,
            f"a text has more than {DISTANCE_CHARACTERS_MAX} characters",
        ),
        f"the characters to insert, delete or change (Levenshtein); of more than {DISTANCE_CHARACTERS_MAX} characters fails",
        ("levenshtein",),
        ("edit_distance",),
        ROW,
    ),
    Function(
        "has_control_chars",
        _IS,
        infallible(lambda t: pc.match_substring_regex(t, r"[\x00-\x1f\x7f]")),
        "whether there is a control character",
        esp_names=("has_control_chars",),
    ),
    Function(
        "isalpha",
        _IS,
        infallible(lambda t: pc.match_substring_regex(t, r"^\pL+$")),
        "whether there are letters and nothing else",
        esp_names=("isalpha",),
    ),
    Function(
        "isblank",
        _IS,
        infallible(lambda t: pc.match_substring_regex(t, r"^\s*$")),
        "whether empty, or nothing but blanks",
        esp_names=("isblank",),
    ),
    Function(
        "isnumber",
        _IS,
        infallible(lambda t: pc.match_substring_regex(t, r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$")),
        "whether a text is a number",
        esp_names=("isnumber", "isnumeric"),
    ),
    Function(
        "sort",
        _SORT,
        value_function(_sorted),
        "sort(s[, ascending[, without repetition]]): the characters in order",
        esp_names=("sort",),
    ),
    Function("sort_words", _SORT, value_function(_sorted_words), "the words in order; as sort", esp_names=("sort_words",)),
    Function(
        "lpad",
        _PAD,
        _limited(_left_filled, _is_long, _TOO_LONG),
        "lpad(s, length[, fill]): filled up at the beginning, or cut",
        ("lpad",),
        fallibility=ROW,
    ),
    Function(
        "rpad",
        _PAD,
        _limited(_right_filled, _is_long, _TOO_LONG),
        "rpad(s, length[, fill]): filled up at the end, or cut",
        ("rpad",),
        fallibility=ROW,
    ),
    Function(
        "repeat",
        fixed_rule(STRING, STRING, INT64),
        _limited(lambda t, n: t * max(n, 0), lambda t, n: len(t) * n > BUILT_LENGTH_MAX, _TOO_LONG),
        "repeat(s, n): n times; a result that is too long fails",
        ("repeat",),
        ("repeat",),
        ROW,
    ),
    Function(
        "substring_index",
        fixed_rule(STRING, STRING, STRING, INT32),
        value_function(_before_count),
        "substring_index(s, separator, n): the text before the n-th separator, from the end if n is negative",
        ("substring_index",),
    ),
)
