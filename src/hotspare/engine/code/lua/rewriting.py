"""Rewrites people's Lua code: `#x` becomes a call of the machine's own `length`.

Lua answers `#t` of a table with gaps from how the table lies in memory, which a restore changes. The machine's own function looks
at what the table holds, and at nothing else. Lines stay where they are.
"""

from __future__ import annotations

import re
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
_TIDIED = frozenset({"__gc", "__mode"})
_UNARY = frozenset({"-", "not", "~", "#"})


class _Token(NamedTuple):
    kind: str
    text: str
    begin: int
    end: int


class Rewritten(NamedTuple):
    """The text, and the name by which it calls the function. `weak_line`: where a table that may be a metatable already is
    told to let go of what it holds when memory is tidied up; 0 is nowhere."""

    text: str
    name: str
    weak_line: int


@lru_cache(maxsize=64)
def rewritten(text: str) -> Rewritten:
    """Of a text that is Lua; of another one anything."""
    tokens = [_Token(str(found.lastgroup), found[0], *found.span()) for found in _TOKEN.finditer(text) if found["blank"] is None]
    name = "length_"
    while any(token.text == name for token in tokens):
        name += "_"
    pieces: list[tuple[int, int, str]] = []
    for at, token in enumerate(tokens):
        if token.text == "#" and token.kind == "mark" and (end := _expression_end(tokens, at + 1)) <= len(tokens):
            place = tokens[end - 1].end
            pieces += [(token.begin, token.end, f"{name}("), (place, place, ")")]
    made, at = [], 0
    for begin, end, piece in sorted(pieces):
        made += [text[at:begin], piece]
        at = end
    return Rewritten("".join((*made, text[at:])), name, _weak_line(text, tokens))


def _weak_line(text: str, tokens: list[_Token]) -> int:
    """`m.__mode = ...`, which no call of `setmetatable` sees; `{__mode = ...}` one does."""
    for before, token in pairwise(tokens):
        if (before.text == "." and token.text in _TIDIED) or token.text[1:-1] in _TIDIED:
            return text.count("\n", 0, token.begin) + 1
    return 0


def _expression_end(tokens: list[_Token], at: int) -> int:
    """Where the operand of a unary operator ends that begins at `at`; beyond the tokens where it has no end."""
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
    """Behind all that a variable or call may be followed by: fields, indexes, arguments."""
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
    """Behind what closes that which opens at `at`."""
    depth = 0
    while at < len(tokens):
        if tokens[at].kind in ("mark", "name"):
            depth += (tokens[at].text in opening) - (tokens[at].text in closing)
        at += 1
        if depth == 0:
            return at
    return at + 1
