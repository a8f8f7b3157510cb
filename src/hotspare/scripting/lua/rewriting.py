"""Rewrites user code in Lua: `#x` becomes a call of the VM's own function `length`, and `x .. y` a call of its `joined`.

Lua computes `#t` of a table with gaps from the table's layout in memory, which a restore changes. `length` depends on the table's
content alone. `..` is one instruction for a text of any length, but `joined` counts the bytes. So texts that double reach the limit
of steps, which is the same in every engine, before the memory limit, which is not. Line numbers do not change.
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
"""The marks of operators that bind more strongly than `..`. A `~` with one operand does so too, but is not in the set."""
_WORDS = frozenset(
    {"and", "break", "do", "else", "elseif", "end", "for", "function", "goto", "if", "in", "local", "or"}
) | frozenset({"repeat", "return", "then", "until", "while"})
"""The keywords that end an operand. A `function` where a value is expected begins an operand instead."""
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
    """The rewritten text. `names`: the names by which the text calls `length`, `joined` and `joined_all`, separated by commas.

    `gc_metafield_line`: the first line that may give an existing metatable a `__gc` or `__mode` field; 0 for none.
    """

    text: str
    names: str
    gc_metafield_line: int


class _Piece(NamedTuple):
    """A replacement for the characters of the text from `begin` to before `end`."""

    begin: int
    end: int
    text: str


@lru_cache(maxsize=64)
def rewrite_lua(text: str) -> Rewritten:
    """Returns the rewritten text. The result is undefined if the text is not Lua; compiling it then reports the error."""
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
    """Returns the first line in which `.` is followed by `__gc` or `__mode`, also to read it, or in which a quoted text is one of
    these names; 0 for none. Such code could change an existing metatable, which no call of `setmetatable` sees."""
    for before, token in pairwise(tokens):
        if (before.text == "." and token.text in _GC_METAFIELDS) or token.text[1:-1] in _GC_METAFIELDS:
            return text.count("\n", 0, token.begin) + 1
    return 0


class _Level:
    """The state within one pair of brackets or one block. `start`: the first token of the current operand. `closing`: the tokens
    that end the level. `chain`: the `..` operands so far.
    """

    def __init__(self, start: int, closing: frozenset[str]) -> None:
        self.start = start
        self.closing = closing
        self.chain: list[int] = []
        """The first tokens of the operands of the current chain of `..`, without the last operand, which begins at `start`."""


class _Chains:
    """Finds chains of `..` and their operands. An operand is an expression of operators that bind more strongly. It ends before a
    keyword or a mark that binds more weakly. It also ends before a name that follows another operand, because a statement begins
    there.
    """

    def __init__(self, tokens: list[_Token], names: Sequence[str]) -> None:
        """Stores the tokens. `names`: the function that joins two values, and the function that joins more than two."""
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
        """Whether the token at `at`, which opens a level, begins a new statement instead of continuing the operand."""
        token = self._tokens[at]
        if token.text == "(":
            return at > 0 and self._tokens[at - 1].text == "end"
        return token.kind == "name" and token.text != "function"

    def _ended(self, level: _Level, at: int) -> Iterator[_Piece]:
        """Yields the replacements that turn the level's chain, which ends before the token at `at`, into a call. Empties
        the chain.
        """
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
    """Returns the index after the operand of a unary operator, which begins at `at`. The index is beyond the tokens if the operand
    has no end.
    """
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
    """Returns the index after all suffixes of the variable or call at `at`: fields, indexes and arguments."""
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
    """Returns the index after the token that closes the level that the token at `at` opens."""
    depth = 0
    while at < len(tokens):
        if tokens[at].kind in ("mark", "name"):
            depth += (tokens[at].text in opening) - (tokens[at].text in closing)
        at += 1
        if depth == 0:
            return at
    return at + 1
