"""Finds the tokens of many JSON texts at once, and with them flat objects, arrays of flat objects, their members, and errors.

A text is judged by its tokens in order, each by the two tokens before it. That suffices for every object without inner objects or
arrays, and every array of such objects. Any other text, or one with an error inside a token, is left to the plain decoder. The
result for a text depends on that text alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from hotspare.formats.csv.lines import strings_of
from hotspare.rows.elementwise import Rows

Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]


class TokenVerdict(IntEnum):
    """The verdict on a text. FLAT: valid; UNKNOWN: not decided; all others: not JSON, named by the token expected at the first
    error."""

    FLAT = 0
    NAME = 1
    NO_COMMA = 2
    COLON = 3
    VALUE = 4
    COMMA = 5
    CLOSED = 6
    """A text that is not JSON: it ends inside a string."""
    UNKNOWN = 7
    """The text is not decided here: the plain decoder reads it."""


class Token(IntEnum):
    """The kind of token that begins at a byte; NONE if none begins there. In a list of tokens, each text ends with END."""

    NONE = 0
    OPEN = 1
    CLOSE = 2
    OPEN_ARRAY = 3
    CLOSE_ARRAY = 4
    COLON = 5
    COMMA = 6
    STRING = 7
    SCALAR = 8
    """A number, true, false, null, or any other text that is not blank."""
    END = 9


_KINDS = 12
_VALUE_STRING, _COMMA_OF_ARRAY = 10, 11
"""Kinds for tokens that mean something else after a certain token: a string after a colon, a comma after an object."""
_SEEN_OTHERWISE = ((Token.COLON, Token.STRING, _VALUE_STRING), (Token.CLOSE, Token.COMMA, _COMMA_OF_ARRAY))
_DIGIT = 10
BLANKS = b" \t\r\n"


def _classes() -> Bytes:
    table = np.full(256, Token.SCALAR, np.uint8)
    table[list(BLANKS + b'"')] = Token.NONE
    for letter, token in zip(b"{}[]:,", range(Token.OPEN, Token.COMMA + 1), strict=True):
        table[letter] = token
    table[ord("0") : ord("9") + 1] = _DIGIT
    return table


def _follow() -> Bytes:
    """Returns the verdict on each pair of adjacent tokens, at index: first token * _KINDS + second token. The first token's kind is
    that of `_SEEN_OTHERWISE` if it has one."""
    table = np.full((_KINDS, _KINDS), TokenVerdict.UNKNOWN, np.uint8)
    expected = {
        Token.OPEN: (TokenVerdict.NAME, (Token.STRING, Token.CLOSE)),
        Token.STRING: (TokenVerdict.COLON, (Token.COLON,)),
        Token.COLON: (TokenVerdict.VALUE, (Token.STRING, Token.SCALAR)),
        _VALUE_STRING: (TokenVerdict.COMMA, (Token.COMMA, Token.CLOSE)),
        Token.SCALAR: (TokenVerdict.COMMA, (Token.COMMA, Token.CLOSE)),
        Token.COMMA: (TokenVerdict.NAME, (Token.STRING,)),
        Token.CLOSE: (TokenVerdict.UNKNOWN, (Token.END, Token.COMMA, Token.CLOSE_ARRAY)),
        _COMMA_OF_ARRAY: (TokenVerdict.UNKNOWN, (Token.OPEN,)),
        Token.OPEN_ARRAY: (TokenVerdict.UNKNOWN, (Token.OPEN, Token.CLOSE_ARRAY)),
        Token.CLOSE_ARRAY: (TokenVerdict.UNKNOWN, (Token.END,)),
        Token.END: (TokenVerdict.UNKNOWN, (Token.OPEN, Token.OPEN_ARRAY)),
    }
    for token, (otherwise, allowed) in expected.items():
        table[token] = otherwise
        table[token, list(allowed)] = TokenVerdict.FLAT
    table[Token.COLON, [Token.OPEN, Token.OPEN_ARRAY]] = TokenVerdict.UNKNOWN
    table[Token.COMMA, Token.CLOSE] = TokenVerdict.NO_COMMA
    return table.reshape(-1)


_CLASS, _FOLLOWS = _classes().tobytes(), _follow()
_ESCAPED = np.isin(np.arange(256), list(b'"\\/bfnrtu'))
_HEX = np.isin(np.arange(256), list(b"0123456789abcdefABCDEF"))
_SCALAR = r"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null)$"
_BEGINS_AS_SCALAR = r"^(-?[0-9]|true|false|null)"


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts in one buffer: text i is `data[begin[i]:end[i]]` and begins with a brace or square bracket. At least one blank follows
    each text, and only blanks are between texts."""

    data: Bytes
    begin: Rows
    end: Rows


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of texts in order.

    `kind`, `begin`, `end`: kind and bounds of each token; the bounds of strings exclude the quotes. `is_name`: whether the token is
    a member's name; in a flat text, the next tokens are the colon and the value. `has_escapes`: whether it is a string with
    backslashes. `last`: the index of the END token of each text. `verdict`: the verdict on each text.
    """

    kind: Bytes
    begin: Rows
    end: Rows
    is_name: Bools
    has_escapes: Bools
    last: Rows
    verdict: Bytes

    def texts(self, tokens: Rows) -> Rows:
        """Returns the index of the text to which each token belongs."""
        return np.searchsorted(self.last, tokens)


@dataclass(frozen=True, slots=True)
class _Strings:
    """The strings of all texts. `opens`, `closes`: places of the quotes. `escaped`: indexes of strings with backslashes. `inside`:
    whether each byte is in a string or is an opening quote. `literal`: places of escaped bytes outside strings. `unclosed`: texts
    whose last string is not closed. `odd`: texts with an error inside a string."""

    opens: Rows
    closes: Rows
    escaped: Rows
    inside: Bools
    literal: Rows
    unclosed: Rows
    odd: Rows


def tokens_of(texts: Texts) -> Tokens:
    """Returns the tokens of all texts, with the verdict on each text."""
    strings = _strings(texts)
    code = np.frombuffer(texts.data.tobytes().translate(_CLASS), np.uint8) * ~strings.inside
    code[strings.literal] = Token.SCALAR
    is_scalar = code >= Token.SCALAR
    edges = np.flatnonzero(is_scalar[1:] != is_scalar[:-1]) + 1
    scalar_begin, scalar_end = edges[0::2], edges[1::2]
    letters = np.flatnonzero(code == Token.SCALAR)
    code *= ~is_scalar
    code[scalar_begin], code[strings.opens], code[texts.end] = Token.SCALAR, Token.STRING, Token.END
    begin = np.flatnonzero(code != Token.NONE)
    kind = code[begin]
    is_string = kind == Token.STRING
    string, scalar = np.flatnonzero(is_string), np.flatnonzero(kind == Token.SCALAR)
    begin += is_string
    end, has_escapes = begin + 1, np.zeros(len(begin), np.bool_)
    end[string], end[scalar] = strings.closes, scalar_end
    has_escapes[string[strings.escaped]] = True
    last, seen = np.flatnonzero(kind == Token.END), kind.copy()
    for before, token, together in _SEEN_OTHERWISE:
        seen[1:] += ((kind[:-1] == before) & (kind[1:] == token)) * np.uint8(together - token)
    verdicts = _FOLLOWS.take(np.append(np.uint8(Token.END), seen[:-1]) * np.uint8(_KINDS) + kind)
    _judge_scalars(texts.data, scalar_begin, scalar_end, letters, scalar, verdicts)
    return Tokens(kind, begin, end, seen == Token.STRING, has_escapes, last, _judged(kind, seen, verdicts, last, strings))


def array_objects(texts: Texts) -> tuple[Rows, Rows]:
    """Returns the begins and ends of the objects in arrays. Each text must be a valid array of objects without inner arrays."""
    data = texts.data
    braces = np.flatnonzero(((data == ord("{")) | (data == ord("}"))) & ~_strings(texts).inside)
    opens = data[braces] == ord("{")
    depth = np.cumsum(np.where(opens, 1, -1))
    return braces[opens & (depth == 1)], braces[depth == 0] + 1


def _strings(texts: Texts) -> _Strings:
    data, nothing = texts.data, np.empty(0, np.int64)
    is_quote = data == ord('"')
    escapes = np.flatnonzero(data == ord("\\"))
    if len(escapes):
        first = np.maximum.accumulate(np.where(np.diff(escapes, prepend=-2) > 1, escapes, 0))
        escapes = escapes[(escapes - first) % 2 == 0]  # of several in a row, each second one is escaped itself
        is_quote[escapes + 1] = False
    quotes = np.flatnonzero(is_quote)
    count = np.searchsorted(quotes, texts.end) - np.searchsorted(quotes, texts.begin)
    unclosed = np.flatnonzero(count % 2)
    if len(unclosed):
        is_quote[texts.end[unclosed]] = True
        quotes = np.flatnonzero(is_quote)
    inside = np.logical_xor.accumulate(is_quote)
    opens, closes = quotes[0::2], quotes[1::2]
    escaped, literal, odd = nothing, nothing, [np.flatnonzero((data < ord(" ")) & inside)]
    if len(escapes):
        is_in = inside[escapes]
        literal, escapes = escapes[~is_in] + 1, escapes[is_in]
        literal = literal[~np.isin(data[literal], list(BLANKS))]
        escaped = np.unique(np.searchsorted(opens, escapes) - 1)
        odd.append(escapes[~_are_escapes(data, escapes)])
    wrong = [np.searchsorted(texts.end, np.concatenate(odd))]
    if len(unclosed) and len(escaped):
        wrong.append(unclosed[np.isin(texts.end[unclosed], closes[escaped])])
    return _Strings(opens, closes, escaped, inside, literal, unclosed, np.concatenate(wrong))


def _are_escapes(data: Bytes, at: Rows) -> Bools:
    """Whether the backslash at each place of `at` begins a valid JSON escape."""
    letter = data[at + 1]
    known: Bools = _ESCAPED[letter]
    unicode = np.flatnonzero(letter == ord("u"))
    for place in range(2, 6):
        known[unicode] &= _HEX[data[np.minimum(at[unicode] + place, len(data) - 1)]]
    return known


def _judge_scalars(data: Bytes, begin: Rows, end: Rows, letters: Rows, tokens: Rows, verdicts: Bytes) -> None:
    """Sets the verdict on invalid scalars in `verdicts`, where a scalar is allowed. `begin`, `end`, `tokens`: bounds and token of
    each scalar. `letters`: places of bytes in scalars that are not digits."""
    unsure = (data[begin] == ord("0")) & (end - begin > 1)
    unsure[np.searchsorted(begin, letters, side="right") - 1] = True
    unsure &= verdicts[tokens] == TokenVerdict.FLAT
    at = np.flatnonzero(unsure)
    texts = strings_of(data, begin[at], end[at])
    wrong = np.flatnonzero(~pc.match_substring_regex(texts, _SCALAR).to_numpy(zero_copy_only=False))
    if len(wrong):
        begins = pc.match_substring_regex(texts.take(wrong), _BEGINS_AS_SCALAR).to_numpy(zero_copy_only=False)
        verdicts[tokens[at[wrong]]] = np.where(begins, TokenVerdict.COMMA, TokenVerdict.VALUE)


def _judged(kind: Bytes, seen: Bytes, verdicts: Bytes, ends: Rows, strings: _Strings) -> Bytes:
    """Returns the verdict on each text: the verdict on its first bad token, FLAT without bad tokens. The verdict on an array is
    FLAT or UNKNOWN."""
    is_array = kind[np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])] == Token.OPEN_ARRAY
    of_array = np.flatnonzero((seen == _COMMA_OF_ARRAY) | (seen == Token.CLOSE_ARRAY))
    verdicts[of_array[~is_array[np.searchsorted(ends, of_array)]]] = TokenVerdict.UNKNOWN
    found = np.zeros(len(ends), np.uint8)
    wrong = np.flatnonzero(verdicts)
    text = np.searchsorted(ends, wrong)
    first = np.flatnonzero(np.diff(text, prepend=-1))
    text, wrong = text[first], wrong[first]
    found[text] = verdicts[wrong]
    unclosed = np.zeros(len(ends), np.bool_)
    unclosed[strings.unclosed] = True
    found[text[unclosed[text] & (wrong == ends[text])]] = TokenVerdict.CLOSED
    is_wrong = is_array & ((found != TokenVerdict.FLAT) | (kind[ends - 1] != Token.CLOSE_ARRAY))
    is_wrong[strings.odd] = True
    found[is_wrong] = TokenVerdict.UNKNOWN
    return found
