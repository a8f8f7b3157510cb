"""Decodes JSON texts to events by their tokens: the rules of `json.plain`, for many flat objects at once. Used for texts that
Arrow's parser refuses, and for bad rows, which show their original text and cost no more than good rows. Texts that `json.tokens`
cannot judge are left to another decoder.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.formats.csv.decode import DecodedRows
from hotspare.formats.csv.lines import null_where, numbered, strings_of
from hotspare.formats.json.plain import (
    DEPTH_MAX,
    EVENT_MEMBER,
    is_unicode,
    json_syntax_error,
    names_wanted,
    not_unicode,
    takes_numbers,
    typed,
    wrong_kind,
)
from hotspare.formats.json.tokens import BLANKS, Bools, Texts, Token, Tokens, TokenVerdict, tokens_of
from hotspare.model.types import Schema
from hotspare.rows.bad_reasons import RowReason
from hotspare.rows.elementwise import Rows, true_rows
from hotspare.rows.refusals import NOTHING_REFUSED, BadRows, Refusals, clipped

_NULL = ord("n")
_BEGINS_NUMBER = np.isin(np.arange(256), list(b"-0123456789"))


@dataclass(frozen=True, slots=True)
class FlatRows:
    """The result of `read_flat`. `rows`: the events; None without one. `bad`: the bad rows. `undecoded`: the numbers of
    messages that another decoder has to read from the start: neither `rows` nor `bad` has any of their rows."""

    rows: DecodedRows | None
    bad: BadRows
    undecoded: Rows


@dataclass(frozen=True, slots=True)
class _Members:
    """The wanted members of objects. `token[object, member]`: the index of the value's token, -1 if the member is missing. `odd`:
    objects that another decoder must judge, for example because a wanted member occurs twice or a name has backslashes."""

    token: npt.NDArray[np.int64]
    odd: Rows


def read_flat(texts: Texts, parents: Rows, schema: Schema) -> FlatRows:
    """Decodes texts to events and bad rows. `parents`: the message of each text, which never falls."""
    tokens = tokens_of(texts)
    verdict = tokens.verdict.copy()
    verdict[_unsure(texts, verdict)] = TokenVerdict.UNKNOWN
    found = _Objects.from_tokens(texts, tokens, verdict, schema)
    is_left = np.isin(parents, parents[np.concatenate([np.flatnonzero(verdict == TokenVerdict.UNKNOWN), found.odd_texts()])])
    left = np.unique(parents[is_left])
    is_broken = (verdict != TokenVerdict.FLAT) & ~is_left
    row_text = np.sort(np.concatenate([found.text, np.flatnonzero(is_broken)]))
    index, of_object = numbered(parents[row_text]), ~is_broken[row_text]
    kept = ~is_left[found.text]
    bad = _broken(texts, row_text[~of_object], parents, index[~of_object], verdict)
    if not kept.any():
        return FlatRows(None, bad, left)
    rows, refused = found.kept(kept).events(parents, index[of_object][kept], schema)
    return FlatRows(rows, BadRows.joined([bad, refused]), left)


def _unsure(texts: Texts, verdict: npt.NDArray[np.uint8]) -> Rows:
    """Returns the indexes of invalid texts that may be several rows (`json.cutting`), or may have another error first.

    A text is certainly one row if it ends within a string, or has one brace at each end and none inside. A text that ends within a
    string and has blanks at its end is unsure, too, because the blanks would be shown. So is a text with many brackets: it may be
    nested too deep, which is reported first.
    """
    broken = np.flatnonzero(verdict != TokenVerdict.FLAT)
    if not len(broken):
        return broken
    is_brace = (texts.data == ord("{")) | (texts.data == ord("}"))
    begin, end = texts.begin[broken], texts.end[broken]
    braces, brackets = (_counted(np.flatnonzero(each), begin, end) for each in (is_brace, texts.data == ord("[")))
    last = texts.data[end - 1]
    is_row = (verdict[broken] == TokenVerdict.CLOSED) & ~np.isin(last, list(BLANKS))
    is_row |= (braces == 2) & (last == ord("}"))
    unsure: Rows = broken[~is_row | (brackets >= DEPTH_MAX)]
    return unsure


def _counted(places: Rows, begin: Rows, end: Rows) -> Rows:
    """Returns how many of the rising `places` are from each `begin` to before its `end`."""
    counts: Rows = np.searchsorted(places, end) - np.searchsorted(places, begin)
    return counts


def _broken(texts: Texts, at: Rows, parents: Rows, index: npt.NDArray[np.int32], verdict: npt.NDArray[np.uint8]) -> BadRows:
    """Returns the texts with indexes `at` as bad rows. `index`: the row's index in its message; `verdict`: the verdict on each
    text."""
    sentences = pa.array(_SENTENCES).take(pa.array(verdict[at]))
    shown = clipped(strings_of(texts.data, texts.begin[at], texts.end[at]))
    return BadRows(parents[at], index.astype(np.int64), pa.repeat(str(RowReason.FORMAT), len(at)), sentences, shown)


_EXAMPLES = {
    TokenVerdict.NAME: "{1}",
    TokenVerdict.NO_COMMA: '{"a":1,}',
    TokenVerdict.COLON: '{"a" 1}',
    TokenVerdict.VALUE: '{"a":}',
    TokenVerdict.COMMA: '{"a":1 1}',
    TokenVerdict.CLOSED: '{"a":"',
}
_SENTENCES = [json_syntax_error(_EXAMPLES[verdict]) if verdict in _EXAMPLES else "" for verdict in TokenVerdict]


@dataclass(frozen=True, slots=True)
class _Objects:
    """Flat objects in order: the index of the text that contains each, its bounds in the bytes, and the tokens of its wanted
    members."""

    texts: Texts
    tokens: Tokens
    text: Rows
    begin: Rows
    end: Rows
    members: _Members

    @classmethod
    def from_tokens(cls, texts: Texts, tokens: Tokens, verdict: npt.NDArray[np.uint8], schema: Schema) -> _Objects:
        """Returns the objects of all texts whose verdict is FLAT."""
        is_flat = verdict == TokenVerdict.FLAT
        names = np.flatnonzero(tokens.is_name)
        opens, closes = (np.flatnonzero(tokens.kind == kind) for kind in (Token.OPEN, Token.CLOSE))
        if not is_flat.any():
            names, opens, closes = names[:0], opens[:0], closes[:0]
        elif not is_flat.all():
            names, opens, closes = (at[is_flat[tokens.texts(at)]] for at in (names, opens, closes))
        members = _members(texts, tokens, names, opens, schema)
        return cls(texts, tokens, tokens.texts(opens), tokens.begin[opens], tokens.end[closes], members)

    def odd_texts(self) -> Rows:
        return self.text[self.members.odd]

    def kept(self, mask: Bools) -> _Objects:
        if mask.all():
            return self
        members = _Members(self.members.token[mask], self.members.odd[:0])
        return _Objects(self.texts, self.tokens, self.text[mask], self.begin[mask], self.end[mask], members)

    def events(self, parents: Rows, index: npt.NDArray[np.int32], schema: Schema) -> tuple[DecodedRows | None, BadRows]:
        """Returns the good events (None without any) and the bad rows. `index`: the index of each object in its message."""
        kinds = _WrongKinds()
        numbers = takes_numbers(schema)
        columns = [self._texts(place, numbers, kinds) for place in range(len(numbers))]
        return typed(parents[self.text], index, columns, kinds.refusals(names_wanted(schema)), schema, self._shown)

    def _texts(self, place: int, numbers: list[bool], kinds: _WrongKinds) -> pa.Array:
        """Returns the texts of the wanted member number `place`; null if the value is null, missing, or of a wrong kind. Adds
        values of a wrong kind to `kinds`. `numbers`: whether each member may be a number."""
        token = self.members.token[:, place]
        given = token >= 0
        is_string = given & (self.tokens.kind[token] == Token.STRING)
        letter = self.texts.data[self.tokens.begin[token]]
        is_number = given & ~is_string & _BEGINS_NUMBER[letter]
        is_word = given & ~is_string & ~is_number & (letter != _NULL)
        is_text = is_string | is_number if numbers[place] else is_string
        kinds.add(np.flatnonzero(is_number & ~is_text), token, place, _Kind.NUMBER)
        kinds.add(np.flatnonzero(is_word), token, place, _Kind.WORD)
        begin, end = np.where(is_text, self.tokens.begin[token], self.begin), np.where(is_text, self.tokens.end[token], self.begin)
        column = null_where(~is_text, strings_of(self.texts.data, begin, end))
        escaped = np.flatnonzero(is_string & self.tokens.has_escapes[token])
        if not len(escaped):
            return column
        values = [json.loads(f'"{text}"') for text in column.take(pa.array(escaped)).to_pylist()]
        halves = [row for row, value in zip(escaped.tolist(), values, strict=True) if not is_unicode(value)]
        kinds.add(np.array(halves, np.int64), token, place, _Kind.NO_UNICODE)
        mask = np.zeros(len(column), np.bool_)
        mask[escaped] = True
        return pc.replace_with_mask(column, pa.array(mask), pa.array([v if is_unicode(v) else None for v in values], pa.string()))

    def _shown(self, rows: Rows) -> pa.Array:
        """Returns the original texts of the objects with these indexes."""
        return strings_of(self.texts.data, self.begin[rows], self.end[rows])


def _members(texts: Texts, tokens: Tokens, names: Rows, opens: Rows, schema: Schema) -> _Members:
    """Finds the wanted members of objects. `names`: the tokens that are names of members; `opens`: the tokens that open the
    objects."""
    wanted = [*names_wanted(schema), *([] if EVENT_MEMBER in schema.index else [EVENT_MEMBER])]
    places = pc.index_in(strings_of(texts.data, tokens.begin[names], tokens.end[names]), pa.array(wanted, pa.string()))
    known = true_rows(places.is_valid())
    token, place = names[known], places.take(pa.array(known)).to_numpy().astype(np.int64)
    owner = np.searchsorted(opens, token) - 1
    found = np.full((len(opens), len(wanted)), -1, np.int64)
    found[owner, place] = token + 2
    odd = [owner[found[owner, place] != token + 2]]
    odd.append(np.searchsorted(opens, names[tokens.has_escapes[names]]) - 1)
    if EVENT_MEMBER not in schema.index:
        event = found[:, -1]
        is_null = (tokens.kind[event] == Token.SCALAR) & (texts.data[tokens.begin[event]] == _NULL)
        odd.append(np.flatnonzero((event >= 0) & ~is_null))
    return _Members(found, np.concatenate(odd))


class _Kind(IntEnum):
    """The kinds of values that a member may not have."""

    NUMBER = 0
    WORD = 1
    NO_UNICODE = 2


class _WrongKinds:
    """Collects values of a wrong kind. `refusals` reports only the first of each object."""

    def __init__(self) -> None:
        self._rows, self._tokens, self._causes = list[Rows](), list[Rows](), list[Rows]()

    def add(self, rows: Rows, token: Rows, place: int, kind: _Kind) -> None:
        """Adds the objects `rows`, whose member number `place` has a value of the wrong `kind`. `token`: the value's token for all
        objects, not only for `rows`."""
        if len(rows):
            self._rows.append(rows)
            self._tokens.append(token[rows])
            self._causes.append(np.full(len(rows), place * len(_Kind) + kind, np.int64))

    def refusals(self, names: list[str]) -> Refusals:
        if not self._rows:
            return NOTHING_REFUSED
        rows, tokens, causes = (np.concatenate(parts) for parts in (self._rows, self._tokens, self._causes))
        if len(self._rows) > 1:
            order = np.argsort(tokens, kind="stable")
            rows, causes = rows[order], causes[order]
            first = np.flatnonzero(np.diff(rows, prepend=-1))
            rows, causes = rows[first], causes[first]
        told = []
        for place, name in enumerate(names):
            told += [wrong_kind(place, name, "a number"), wrong_kind(place, name, "true or false"), not_unicode(name)]
        return Refusals.from_causes(rows, causes, told)
