"""Rewrites user code in Lua: `#x` becomes a call of the machine's own `length`, and `x .. y` one of `joined`.

Lua computes `#t` of a table with gaps from the table's layout in memory, which a restore changes. The machine's own function
depends on the table's content alone. `..` is one instruction for a text of any length. The machine's own function counts the bytes,
so texts that double reach the limit of steps, which is the same in every engine, before that of memory, which is not. Line numbers
do not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<blank> \s+ | --\[(?P<c>=*)\[ .*? \](?P=c)\] | --[^\n]* )
    | (?P<text> \[(?P<t>=*)\[ .*? \](?P=t)\] | "(?:\\z\s*|\\.|[^"\\\n])*" | '(?:\\z\s*|\\.|[^'\\\n])*' )
    | (?P<name> [A-Za-z_]\w* )
    | (?P<number> 0[xX](?:[pP][+-]?|[\w.])* | \.?\d(?:[eE][+-]?|[\w.])* )
    | (?P<mark> \.\.\. | \.\. | :: | . )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_BLOCK_OPEN, _BLOCK_CLOSE = frozenset({"function", "if", "do", "repeat"}), frozenset({"end", "until"})
_GC_METAFIELDS = frozenset({"__gc", "__mode"})
_UNARY = frozenset({"-", "not", "~", "#"})
_CALLED = ("length", "joined", "joined_all")
_STRONGER = frozenset("+-*/%^#.:") | {"..."}
"""The marks of operators that bind stronger than `..`; so does `~` with one operand."""
_WORDS = frozenset(
    {"and", "break", "do", "else", "elseif", "end", "for", "function", "goto", "if", "in", "local", "or"}
) | frozenset({"repeat", "return", "then", "until", "while"})
"""The words that end an operand; `function` begins one if a value is expected."""
_END, _UNTIL = frozenset({"end"}), frozenset({"until"})
_CLOSED_BY = {
    "(": frozenset(")"),
    "[": frozenset("]"),
    "{": frozenset("}"),
    "function": _END,
    "if": _END,
    "do": _END,
    "repeat": _UNTIL,
}


class _Token(NamedTuple):
    kind: str
    text: str
    begin: int
    end: int


class Rewritten(NamedTuple):
    """The text, and the names by which it calls `length`, `joined` and `joined_all`, with commas between. `gc_metafield_line`:
    the first line that makes a table weak or finalised, if it may be a metatable already; 0 for none."""

    text: str
    names: str
    gc_metafield_line: int


class _Piece(NamedTuple):
    """A replacement of the characters from `begin` to before `end`."""

    begin: int
    end: int
    text: str


@lru_cache(maxsize=64)
def rewrite_lua(text: str) -> Rewritten:
    """Rewrites a text; if it is not Lua, the result is undefined."""
    tokens = [_Token(str(found.lastgroup), found[0], *found.span()) for found in _TOKEN.finditer(text) if found["blank"] is None]
    used, behind = {token.text for token in tokens}, "_"
    while any(name + behind in used for name in _CALLED):
        behind += "_"
    length, *joins = (name + behind for name in _CALLED)
    pieces = list(_Chains(tokens, joins).pieces())
    for at, token in enumerate(tokens):
        if token.text == "#" and token.kind == "mark" and (end := _expression_end(tokens, at + 1)) <= len(tokens):
            place = tokens[end - 1].end
            pieces += [_Piece(token.begin, token.end, f"{length}("), _Piece(place, place, ")")]
    made, at = [], 0
    for piece in sorted(pieces):
        made += [text[at : piece.begin], piece.text]
        at = piece.end
    return Rewritten("".join((*made, text[at:])), ", ".join((length, *joins)), _find_gc_metafield(tokens, text))


def _find_gc_metafield(tokens: list[_Token], text: str) -> int:
    """Returns the first line with `m.__mode = ...`, which no call of `setmetatable` sees, unlike `{__mode = ...}`; 0 for none."""
    for before, token in pairwise(tokens):
        if (before.text == "." and token.text in _GC_METAFIELDS) or token.text[1:-1] in _GC_METAFIELDS:
            return text.count("\n", 0, token.begin) + 1
    return 0


class _Level:
    """The tokens within one pair of brackets or one block: where the current operand begins, and the chain of `..` around it."""

    def __init__(self, start: int, closing: frozenset[str]) -> None:
        self.start = start
        self.closing = closing
        self.chain: list[int] = []
        """The first tokens of its operands, without the last one, which is `start`."""


class _Chains:
    """Finds operands of `..`, which are expressions of operators that bind stronger. An operand ends before a word or
    mark that binds weaker, and before a name that follows another operand, because a statement begins there."""

    def __init__(self, tokens: list[_Token], names: Sequence[str]) -> None:
        """`names`: the functions that join two values, and more than two."""
        self._tokens, self._names = tokens, names

    def pieces(self) -> Iterator[_Piece]:
        levels, is_operand = [_Level(0, frozenset())], False
        for at, token in enumerate(self._tokens):
            level = levels[-1]
            is_mark, is_word = token.kind == "mark", token.kind == "name" and token.text in _WORDS
            if is_mark and token.text == "..":
                level.chain.append(level.start)
                level.start, is_operand = at + 1, False
            elif token.text in level.closing and (is_mark or is_word):
                yield from self._ended(level, at)
                levels.pop()
                is_operand = token.text != "until"
                if token.text == "until":
                    levels[-1].start = at + 1
            elif (is_mark or is_word) and token.text in _CLOSED_BY:
                if self._is_apart(at) or (is_word and is_operand):
                    yield from self._ended(level, at)
                    level.start = at
                levels.append(_Level(at + 1, _CLOSED_BY[token.text]))
                is_operand = False
            elif is_word or (is_mark and token.text not in _STRONGER and not (token.text == "~" and not is_operand)):
                yield from self._ended(level, at)
                level.start, is_operand = at + 1, False
            elif token.kind == "name" and is_operand:
                yield from self._ended(level, at)
                level.start = at
            else:
                is_operand = token.text == "..." or not (is_mark or token.text == "not")
        yield from self._ended(levels[0], len(self._tokens))

    def _is_apart(self, at: int) -> bool:
        """Whether the token, which opens a level, begins a statement."""
        token = self._tokens[at]
        if token.text == "(":
            return at > 0 and self._tokens[at - 1].text == "end"
        return token.kind == "name" and token.text != "function"

    def _ended(self, level: _Level, at: int) -> Iterator[_Piece]:
        """Yields the pieces of the level's chain, which ends before the token at `at`."""
        if level.chain:
            first, last, end = self._tokens[level.chain[0]], self._tokens[level.start], self._tokens[at - 1].end
            yield _Piece(first.begin, first.begin, f"{self._names[len(level.chain) > 1]}(")
            for begin in (*level.chain[1:], level.start):
                join = self._tokens[begin - 1]
                yield _Piece(join.begin, join.end, ",")
            yield _Piece(last.begin, last.begin, "(")
            yield _Piece(end, end, "))")
            level.chain = []


def _expression_end(tokens: list[_Token], at: int) -> int:
    """Returns the end of a unary operator's operand that begins at `at`; beyond the tokens if it has no end."""
    while at < len(tokens) and tokens[at].text in _UNARY:
        at += 1
    if at >= len(tokens):
        return at + 1
    first = tokens[at]
    if first.text == "function":
        at = _matched(tokens, at, _BLOCK_OPEN, _BLOCK_CLOSE)
    elif first.text == "{":
        at = _matched(tokens, at, _OPEN, _CLOSE)
    elif first.text == "(" or (first.kind == "name" and first.text not in ("nil", "true", "false")):
        at = _suffixed(tokens, _matched(tokens, at, _OPEN, _CLOSE) if first.text == "(" else at + 1)
    else:
        at += 1
    return _expression_end(tokens, at + 1) if at < len(tokens) and tokens[at].text == "^" else at


def _suffixed(tokens: list[_Token], at: int) -> int:
    """Returns the index after all suffixes of a variable or call: fields, indexes, arguments."""
    while at < len(tokens):
        token = tokens[at]
        if token.text in (".", ":") and token.kind == "mark":
            at += 2
        elif token.text in _OPEN:
            at = _matched(tokens, at, _OPEN, _CLOSE)
        elif token.kind == "text":
            at += 1
        else:
            break
    return at


def _matched(tokens: list[_Token], at: int, opening: frozenset[str], closing: frozenset[str]) -> int:
    """Returns the index after the token that closes the one at `at`."""
    depth = 0
    while at < len(tokens):
        if tokens[at].kind in ("mark", "name"):
            depth += (tokens[at].text in opening) - (tokens[at].text in closing)
        at += 1
        if depth == 0:
            return at
    return at + 1
