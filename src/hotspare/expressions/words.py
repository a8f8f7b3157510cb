"""Strings: what SAS expressions and functional windows have beyond SQL, and what Spark has and Arrow has no kernel for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import BOOLEAN, INT32, INT64, STRING, Evaluate, Fallibility, Function, eager, fixed, plain
from hotspare.expressions.text import each_value, row_by_row
from hotspare.expressions.tree import TypedCall
from hotspare.rows.bad_reasons import BadReason
from hotspare.rows.elementwise import true_rows

DISTANCE_LETTERS_MAX = 1_000
"""Longer texts are not compared letter by letter: the time rises with the product of their lengths."""
MADE_LENGTH_MAX = 1 << 20
"""Limit on the characters of a text that is filled up or repeated."""
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def _normalized(text: Value) -> Value:
    return pc.utf8_trim_whitespace(pc.replace_substring_regex(text, r"\s+", " "))


def _pattern(text: Value) -> Value:
    for letters, sign in ((r"[^\p{Lu}\p{Ll}\p{Nd}]", "*"), (r"\p{Nd}", "9"), (r"\p{Lu}", "A"), (r"\p{Ll}", "a")):
        text = pc.replace_substring_regex(text, letters, sign)
    return text


def _translated(text: str, old: str, new: str) -> str:
    """Of characters that `old` has twice the first place counts."""
    table: dict[int, str | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place] if place < len(new) else None)
    return text.translate(table)


def _distance(a: str, b: str) -> int:
    """How many letters have to be put in, left out or changed (Levenshtein)."""
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
    """A function of values that are checked before: where `length_of` gives more than 1, the row fails."""
    slow = row_by_row(function)  # type: ignore[arg-type]

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        columns = [frame.array(a).to_pylist() for a in arguments]
        beyond = pa.array([None not in row and length_of(*row) for row in zip(*columns, strict=True)], pa.bool_())  # type: ignore[operator]
        first = frame.refuse(arguments[0], beyond, message, BadReason.EXPRESSION)
        return slow(frame, call, [first, *arguments[1:]])

    return eager(kernel)


def _sorted(text: str, *how: object) -> str:
    """`how`: whether upwards, and whether each only once."""
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
    frame.fail(true_rows(pa.array(wrong, pa.bool_())), "the number is no character")
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
    """What stands before a number of separators, counted from the end where it is negative."""
    if not separator or not count:
        return ""
    parts = text.split(separator)
    return separator.join(parts[:count] if count > 0 else parts[count:])


_IS = fixed(BOOLEAN, STRING)
_ONE = fixed(STRING, STRING)
_TWO = fixed(STRING, STRING, STRING)
_SORT = fixed(STRING, STRING, BOOLEAN, BOOLEAN, required=1)
_TOO_LONG = f"the text would have more than {MADE_LENGTH_MAX} characters"
_PAD = fixed(STRING, STRING, INT32, STRING, required=2)
ROW = Fallibility.ROW


def _is_long(text: str, length: int, fill: str = "") -> bool:
    return length > MADE_LENGTH_MAX


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "substring_before",
        _TWO,
        each_value((lambda t, s: t.partition(s)[0] if s and s in t else "")),
        "what stands before the first place of the second in the first; empty if it is absent",
        esp=("substringbefore",),
    ),
    Function(
        "substring_after",
        _TWO,
        each_value((lambda t, s: t.partition(s)[2] if s else t)),
        "what stands behind the first place of the second in the first; empty if it is absent",
        esp=("substringafter",),
    ),
    Function(
        "normalize_space",
        _ONE,
        plain(_normalized),
        "without blanks at both ends, each run of blanks being one",
        esp=("normalizespace",),
    ),
    Function(
        "translate",
        fixed(STRING, STRING, STRING, STRING),
        each_value(_translated),
        "translate(s, old, new): each character of old becomes that at its place in new, or goes",
        ("translate",),
        ("translate",),
    ),
    Function("pattern", _ONE, plain(_pattern), "each letter as A or a, each digit as 9, all else as *", esp=("pattern",)),
    Function(
        "asc",
        fixed(INT32, STRING),
        each_value(lambda t: ord(t[0]) if t else 0),
        "number of the first character; 0 if there is none",
        ("ascii",),
        ("asc",),
    ),
    Function("chr_of", fixed(STRING, INT64), eager(_letter), "the character of a number", esp=("chr",), fallibility=ROW),
    Function(
        "edit_distance",
        fixed(INT32, STRING, STRING),
        _limited(
            _distance,
            lambda a, b: max(len(a), len(b)) > DISTANCE_LETTERS_MAX,
            f"a text has more than {DISTANCE_LETTERS_MAX} characters",
        ),
        f"letters to put in, leave out or change (Levenshtein); of more than {DISTANCE_LETTERS_MAX} characters fails",
        ("levenshtein",),
        ("edit_distance",),
        ROW,
    ),
    Function(
        "has_control_chars",
        _IS,
        plain(lambda t: pc.match_substring_regex(t, r"[\x00-\x1f\x7f]")),
        "whether there is a control character",
        esp=("has_control_chars",),
    ),
    Function(
        "isalpha",
        _IS,
        plain(lambda t: pc.match_substring_regex(t, r"^\pL+$")),
        "whether there are letters and nothing else",
        esp=("isalpha",),
    ),
    Function(
        "isblank",
        _IS,
        plain(lambda t: pc.match_substring_regex(t, r"^\s*$")),
        "whether empty, or nothing but blanks",
        esp=("isblank",),
    ),
    Function(
        "isnumber",
        _IS,
        plain(lambda t: pc.match_substring_regex(t, r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$")),
        "whether a text is a number",
        esp=("isnumber", "isnumeric"),
    ),
    Function(
        "sort",
        _SORT,
        each_value(_sorted),
        "sort(s[, ascending[, without repetition]]): the characters in order",
        esp=("sort",),
    ),
    Function("sort_words", _SORT, each_value(_sorted_words), "the words in order; as sort", esp=("sort_words",)),
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
        fixed(STRING, STRING, INT64),
        _limited(lambda t, n: t * max(n, 0), lambda t, n: len(t) * n > MADE_LENGTH_MAX, _TOO_LONG),
        "repeat(s, n): n times; a result that is too long fails",
        ("repeat",),
        ("repeat",),
        ROW,
    ),
    Function(
        "substring_index",
        fixed(STRING, STRING, STRING, INT32),
        each_value(_before_count),
        "substring_index(s, separator, n): what stands before the n-th separator, from the end where n is negative",
        ("substring_index",),
    ),
)
