"""Regular expressions of RE2, through Arrow. The time of a search is linear in the length of the text, because RE2 does not
backtrack.

A pattern is a constant. Arrow finds the first match in a whole column at once. All matches are found by replacing each match by
itself between two marks, characters that no text of the column contains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.frame import Frame, Value
from hotspare.expressions.function import INT32, INT64, LIST, STRING, Evaluate, Function, Signature, TypeMismatch, eager, fixed_rule
from hotspare.expressions.text import replacement
from hotspare.expressions.tree import TypedCall, ValueType
from hotspare.model.project import Dialect

_PRIVATE_CHARACTERS = range(0xE000, 0xF8FF)
"""The characters from which a mark is chosen; Unicode reserves them for private use, so texts rarely contain one."""
GROUPS_MAX = 50
PATTERNS_MAX = 100


class NamedPattern(NamedTuple):
    """A pattern in which group n is named `gn` and the whole match `g0`, together with the number of groups."""

    pattern: str
    groups: int


def named_groups(pattern: str) -> NamedPattern:
    """Returns the pattern with all groups named, because Arrow finds groups by name. Raises ValueError for more than GROUPS_MAX
    groups.
    """
    made: list[str] = []
    at, count, in_class = 0, 0, False
    while at < len(pattern):
        c = pattern[at]
        if c == "\\":
            end = pattern.find("\\E", at + 2) + 2 if pattern[at : at + 2] == "\\Q" else at + 2
            end = len(pattern) if end < at + 2 else end
            made.append(pattern[at:end])
            at = end
            continue
        if in_class:
            in_class = c != "]"
        elif c == "[":
            in_class = True
            begin = at + 2 if pattern[at + 1 : at + 2] == "^" else at + 1
            if pattern[begin : begin + 1] == "]":
                made.append(pattern[at : begin + 1])
                at = begin + 1
                continue
        elif c == "(":
            rest = pattern[at + 1 : at + 4]
            if not rest.startswith("?") or rest in ("?P<",) or rest[:2] == "?<":
                count += 1
                made.append(f"(?P<g{count}>")
                at = pattern.index(">", at) + 1 if rest.startswith("?") else at + 1
                continue
        made.append(c)
        at += 1
    if count > GROUPS_MAX:
        raise ValueError(f"the pattern has more than {GROUPS_MAX} groups")
    return NamedPattern(f"(?P<g0>{''.join(made)})", count)


def first_group(text: Value, pattern: str, group: int) -> Value:
    """Returns the group number `group` of the first match in each text; null without a match or without such a group."""
    named = named_groups(pattern)
    if not 0 <= group <= named.groups:
        return pa.nulls(len(text), pa.string())
    found = pc.extract_regex(text, named.pattern)
    return pc.if_else(found.is_valid(), found.field(f"g{group}"), pa.scalar(None, pa.string()))


def first_groups(text: Value, pattern: str) -> Value:
    """Returns, for each text, the list of all groups of the first match, or the match if the pattern has no group. Null without a
    match.
    """
    named = named_groups(pattern)
    found = pc.extract_regex(text, named.pattern)
    count = max(named.groups, 1)
    columns = [found.field(f"g{i + 1}" if named.groups else "g0") for i in range(count)]
    values = pa.concat_arrays(columns).take(pa.array(np.arange(count * len(text)).reshape(count, len(text)).T.ravel()))
    offsets = pa.array(np.arange(len(text) + 1, dtype=np.int32) * count)
    lists = pa.ListArray.from_arrays(offsets, values)
    return pc.if_else(found.is_valid(), lists, pa.scalar(None, lists.type))


def split_by_matches(text: Value, pattern: str, shown: int = 0) -> Value:
    """Returns, for each text, a list that alternates between the text outside of matches and the matches. It begins and ends
    outside, so its length is odd. `shown`: the group that represents a match; 0: all of the match.
    """
    mark = _unused(text)
    marked = pc.replace_substring_regex(text, f"(?:{pattern})" if not shown else pattern, f"{mark}\\{shown}{mark}")
    return pc.split_pattern(marked, mark)


def all_matches(text: Value, pattern: str, shown: int = 0) -> Value:
    """Returns, for each text, the list of all matches, each represented by its group `shown`; 0: all of the match. Null if the
    group does not exist.
    """
    if not 0 <= shown <= named_groups(pattern).groups:
        return pa.nulls(len(text), pa.list_(pa.string()))
    return every_other(split_by_matches(text, pattern, shown), 1)


def tokens_between(text: Value, pattern: str) -> Value:
    """Returns, for each text, the list of the parts before, between and after the matches."""
    return every_other(split_by_matches(text, pattern), 0)


def every_other(lists: Value, first: int) -> Value:
    """Returns, for each list, the items `first`, `first` + 2, ..."""
    offsets = lists.offsets.to_numpy().astype(np.int64)
    lengths = np.diff(offsets)
    number = np.arange(offsets[0], offsets[-1]) - np.repeat(offsets[:-1], lengths)
    kept = number % 2 == first
    ends = np.concatenate(([0], np.cumsum(kept)))[offsets - offsets[0]]
    values = lists.flatten() if not lists.null_count else lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    made = pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values.filter(pa.array(kept)))
    return pc.if_else(lists.is_valid(), made, pa.scalar(None, made.type)) if lists.null_count else made


def _unused(text: Value) -> str:
    """Returns a character for private use that no text of the column contains."""
    for code in _PRIVATE_CHARACTERS:
        if not pc.any(pc.match_substring(text, chr(code))).as_py():
            return chr(code)
    raise ValueError("the texts use every mark")


def _match_pieces(frame: Frame, text: Value, pattern: str) -> Sequence[list[str] | None]:
    """Returns, for each text, the list of `split_by_matches`, None for a null text. The result is cached per batch."""
    known = frame.memo.setdefault(("pieces", pattern), {})
    missing = sorted({t for t in text.to_pylist() if t is not None and t not in known})
    if missing:
        known.update(zip(missing, split_by_matches(pa.array(missing, pa.string()), pattern).to_pylist(), strict=True))
    return [None if t is None else known[t] for t in text.to_pylist()]


def _match(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Implements `match_start` and the function for the length of a match. Returns the position from 1 of a group of match number
    n, or its length; 0 without that match or group. n counts from 1.
    """
    text, number = frame.array(arguments[0]), frame.array(arguments[2])
    group = frame.array(arguments[3] if len(arguments) > 3 else pa.scalar(0, pa.int32()))
    pattern = arguments[1].as_py()
    wants_start = call.function == "match_start"
    made: list[int | None] = []
    rows = zip(_match_pieces(frame, text, pattern), number.to_pylist(), group.to_pylist(), strict=True)
    for pieces, n, g in rows:
        if pieces is None or n is None or g is None:
            made.append(None)
        elif not 1 <= n <= len(pieces) // 2:
            made.append(0)
        else:
            begin = sum(map(len, pieces[: 2 * n - 1]))
            begin, length = (begin, len(pieces[2 * n - 1])) if g == 0 else _within(pieces, n, begin, pattern, g)
            made.append((begin + 1 if length >= 0 else 0) if wants_start else max(length, 0))
    return pa.array(made, pa.int32())


def _within(pieces: list[str], number: int, begin: int, pattern: str, group: int) -> tuple[int, int]:
    """Returns the position of the group in match `number` and its length, in characters; (0, -1) without that group. `begin`: the
    position of the match.
    """
    named = named_groups(pattern)
    if not 0 < group <= named.groups:
        return 0, -1
    rest = "".join(pieces[2 * number - 1 :])
    span = pc.extract_regex_span(pa.array([rest]), f"^{named.pattern}")[0].as_py()
    if span is None or span[f"g{group}"] is None:
        return 0, -1
    at, length = span[f"g{group}"]
    data = rest.encode()
    return begin + len(data[:at].decode()), len(data[at : at + length].decode())


def _with_pattern(found: Callable[[Frame, Value, str, list[Value]], Value]) -> Evaluate:
    """Returns a kernel that calls `found(frame, texts, pattern, other arguments)`; a null pattern gives null."""

    def kernel(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
        pattern = arguments[1].as_py()
        if pattern is None:
            return pa.scalar(None, call.type.arrow)
        return found(frame, frame.array(arguments[0]), pattern, arguments[2:])

    return eager(kernel)


def _rgx(frame: Frame, text: Value, pattern: str, rest: list[Value]) -> Value:
    group = rest[0].as_py() if rest else 0
    return pa.scalar(None, pa.string()) if group is None else first_group(text, pattern, int(group))


def _token(frame: Frame, text: Value, pattern: str, rest: list[Value]) -> Value:
    index = frame.array(rest[0]) if rest else pa.array(np.zeros(frame.length, np.int64))
    return item_at_index(tokens_between(text, pattern), index)


def _last_token(frame: Frame, text: Value, pattern: str, rest: list[Value]) -> Value:
    lists = tokens_between(text, pattern)
    back = frame.array(rest[0]) if rest else pa.array(np.zeros(frame.length, np.int64))
    return item_at_index(lists, pc.subtract(pc.subtract(pc.cast(pc.list_value_length(lists), pa.int64()), 1), back))


def _replace_first(frame: Frame, text: Value, pattern: str, rest: list[Value]) -> Value:
    new = rest[0].as_py()
    if new is None:
        return pa.scalar(None, pa.string())
    return pc.replace_substring_regex(text, pattern, replacement(new), max_replacements=1)


def _index(frame: Frame, call: TypedCall, arguments: list[Value]) -> Value:
    """Returns, for each text, the index from 0 of the first pattern that matches; -1 if none matches, null for a null text."""
    text = frame.array(arguments[0])
    found = pa.array(np.full(frame.length, -1, np.int32))
    for number in range(len(arguments) - 1, 0, -1):
        pattern = arguments[number].as_py()
        if pattern is not None:
            hit = pc.fill_null(pc.match_substring_regex(text, pattern), fill_value=False)
            found = pc.if_else(hit, pa.scalar(number - 1, pa.int32()), found)
    return pc.if_else(text.is_valid(), found, pa.scalar(None, pa.int32()))


def item_at_index(lists: Value, index: Value) -> Value:
    """Returns, for each list, the item at its index from 0; null if the index is out of range."""
    begins, ends = (lists.offsets.to_numpy()[part].astype(np.int64) for part in (slice(0, -1), slice(1, None)))
    wanted = index.fill_null(-1).to_numpy().astype(np.int64)
    there = (wanted >= 0) & (wanted < ends - begins) & lists.is_valid().to_numpy(zero_copy_only=False)
    return lists.values.take(pa.array(begins + np.where(there, wanted, 0), mask=~there))


def _index_rule(types: Sequence[ValueType], dialect: Dialect) -> Signature:
    if not 2 <= len(types) <= PATTERNS_MAX + 1:
        raise TypeMismatch(f"the arguments are not a text and 1 to {PATTERNS_MAX} patterns", "write rgxIndex(text, 'a.*', 'b.*')")
    return fixed_rule(INT32, *(STRING,) * len(types))(types, dialect)


FUNCTIONS: tuple[Function, ...] = (
    Function(
        "match_start",
        fixed_rule(INT32, STRING, STRING, INT32, INT32, required=3),
        eager(_match),
        "where a match of a regular expression begins",
        pattern_arguments=(1,),
    ),
    Function(
        "match_length",
        fixed_rule(INT32, STRING, STRING, INT32, INT32, required=3),
        eager(_match),
        "how long a match of a regular expression is",
        pattern_arguments=(1,),
    ),
    Function(
        "rgx",
        fixed_rule(STRING, STRING, STRING, INT64, required=2),
        _with_pattern(_rgx),
        "rgx(pattern, text[, group]): a group of the first match, by default 0, which is all of it; null without a match",
        esp_names=("rgx",),
        literal_arguments=(2,),
        pattern_arguments=(1,),
    ),
    Function(
        "rgx_token",
        fixed_rule(STRING, STRING, STRING, INT64, required=2),
        _with_pattern(_token),
        "rgxToken(pattern, text[, index]): the text between matches, from 0",
        esp_names=("rgxtoken",),
        pattern_arguments=(1,),
    ),
    Function(
        "rgx_last_token",
        fixed_rule(STRING, STRING, STRING, INT64, required=2),
        _with_pattern(_last_token),
        "rgxLastToken(pattern, text[, index]): the text between matches, counted from the end, the last being 0",
        esp_names=("rgxlasttoken",),
        pattern_arguments=(1,),
    ),
    Function(
        "rgx_replace",
        fixed_rule(STRING, STRING, STRING, STRING),
        _with_pattern(_replace_first),
        "rgxReplace(pattern, text, new): the first match replaced; $1 is a group",
        esp_names=("rgxreplace",),
        pattern_arguments=(1,),
        replacement_arguments=(2,),
    ),
    Function(
        "rgx_groups",
        fixed_rule(LIST, STRING, STRING),
        _with_pattern(lambda _frame, text, pattern, _rest: first_groups(text, pattern)),
        "rgxV(pattern, text): the groups of the first match, as a list",
        esp_names=("rgxv",),
        pattern_arguments=(1,),
    ),
    Function(
        "rgx_matches",
        fixed_rule(LIST, STRING, STRING, INT32, required=2),
        _with_pattern(lambda _frame, text, pattern, rest: all_matches(text, pattern, (rest[0].as_py() or 0) if rest else 0)),
        "rgxMatches(pattern, text[, group]): every match, or a group of each, as a list",
        esp_names=("rgxmatches",),
        literal_arguments=(2,),
        pattern_arguments=(1,),
    ),
    Function(
        "rgx_index",
        _index_rule,
        eager(_index),
        "rgxIndex(text, pattern, ...): the first pattern of several that is found, from 0; -1 if none is",
        esp_names=("rgxindex",),
        pattern_arguments=tuple(range(1, PATTERNS_MAX + 1)),
    ),
)
