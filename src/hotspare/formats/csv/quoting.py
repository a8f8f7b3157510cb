"""Determines which quotes open and close fields, and which lines form one row, for many lines at once, by `csv.grammar`.

A run is a sequence of adjacent quotes. The bytes next to the run show whether it can open or close a field; its effect then depends
on whether the run is inside quotes:

    quotes   can open   can close   outside quotes                        inside quotes
    even     no                     nothing                               nothing: each pair is one quote
    even     yes        yes         the first opens, the last closes      nothing
    even     yes        no          the last closes, and is misplaced     nothing
    odd      no         yes         nothing                               the last closes
    odd      no         no          nothing                               the last closes, and is misplaced
    odd      yes        yes         the first opens                       the last closes
    odd      yes        no          the first opens                       the last closes, and is misplaced

So after an odd run that cannot both open and close, the state is known whatever came before: outside quotes if it cannot open, else
inside, or the row is bad. The state at any run is that after the last such run of its line, toggled by each run since then that can
do both. Only if the line has no such run before does the state depend on the start of the line. A line that begins a row starts
outside quotes, a continuation line inside; a row ends with the first line that ends outside quotes.

No byte is read twice, and no Python loop runs over bytes, quotes or lines: the cost depends on the size alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.formats.csv import grammar
from hotspare.formats.csv.lines import LINE_FEED, RETURN, Bytes, TextLines, are_blanks, every_line, last_not_passed
from hotspare.rows.elementwise import Rows

Bools = npt.NDArray[np.bool_]
_QUOTE, _ESCAPE = b'"\\'
_MARK_END = grammar.BYTE_ORDER_MARK[-1]
_NO_PLACES: Rows = np.empty(0, np.int64)
_STEPS_MAX = 4
"""At most this many adjacent blanks are skipped one by one; further blanks are skipped by a search."""


@dataclass(frozen=True, slots=True)
class SyntaxBytes:
    """The bytes of `data` that matter for the syntax. `quotes`: places of quotes that no backslash escapes, without those of
    `doubled`. `doubled`: the first place of each pair of quotes that can neither open nor close a field. `pairs`: places of
    backslashes that escape the next byte. `is_taken`: whether each byte is escaped by a backslash; None if there are no
    backslashes.
    """

    data: Bytes
    delimiter: int
    quotes: Rows
    doubled: Rows
    pairs: Rows
    is_taken: Bools | None

    @classmethod
    def from_buffer(cls, data: Bytes, delimiter: int) -> SyntaxBytes:
        is_quote, escapes = data == _QUOTE, np.flatnonzero(data == _ESCAPE)
        pairs, is_taken = escapes, None
        if len(escapes):
            follows = np.diff(escapes, prepend=-2) == 1
            if follows.any():  # of several in a row, each second one is escaped itself
                first = np.maximum.accumulate(np.where(follows, 0, escapes))
                pairs = escapes[(escapes - first) & 1 == 0]
            is_taken = np.zeros(len(data), np.bool_)
            is_taken[pairs + 1] = True
            is_quote &= ~is_taken
        doubled = _doubled_within(data, delimiter, is_quote) if is_quote.any() else _NO_PLACES
        return cls(data, delimiter, np.flatnonzero(is_quote), doubled, pairs, is_taken)

    def delimiters(self, is_quoted: Bools | None) -> Rows:
        """Returns the places of delimiters that are outside quotes and that no backslash escapes. `is_quoted`: whether each byte is
        inside quotes; None if no byte is."""
        found = self.data == self.delimiter
        for others in (self.is_taken, is_quoted):
            if others is not None:
                found &= ~others
        return np.flatnonzero(found)


def _doubled_within(data: Bytes, delimiter: int, is_quote: Bools) -> Rows:
    """Returns the first place of each isolated pair of quotes that does not follow the start of a field, not counting blanks.
    Removes these pairs from `is_quote`. Some pairs may remain there: the function only saves time later.
    """
    is_first = is_quote[1:-2] & is_quote[2:-1]
    if not is_first.any():
        return _NO_PLACES
    begins, is_blank = data == delimiter, are_blanks(data, delimiter)
    begins |= data == LINE_FEED
    begins |= data == _MARK_END
    begins[0] |= is_blank[0]
    begins[1:] |= is_blank[1:] & (begins[:-1] | is_blank[:-1])
    is_first &= ~(is_quote[:-3] | is_quote[3:] | begins[:-3])
    found = np.flatnonzero(is_first) + 1
    is_quote[found] = is_quote[found + 1] = False
    return found


@dataclass(frozen=True, slots=True)
class RowLines:
    """The rows that lines form, with an entry per line. `tail`: the last line of the row that the line begins. `continues_row`:
    whether the line continues a row. `is_misplaced`: whether more than blanks follow a closing quote in the row. `is_open`: whether
    another quote of the row is not closed within the message and ROW_BYTES_MAX. In both cases the line is a bad row."""

    tail: Rows
    continues_row: Bools
    is_misplaced: Bools
    is_open: Bools


@dataclass(frozen=True, slots=True)
class Quoting:
    """The rows of lines, and the effect of quotes on their bytes.

    `rows`: a row begins with one line and may end with a later line. `is_none`: rows with bad quotes, each one line. `is_quoted`:
    whether each byte is inside quotes; None without such bytes; undefined for the quotes themselves and the blanks next to them.
    `dropped`: rising places of bytes, other than enclosing quotes, that are not part of a field's value; undefined for bad rows.
    `has_quoted`: whether quoted fields exist. `has_escapes`: whether bytes of unquoted fields may be dropped.
    """

    rows: TextLines
    is_none: Bools
    is_quoted: Bools | None
    dropped: Rows
    has_quoted: bool
    has_escapes: bool


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of adjacent quotes. `first`, `last`, `line`: the first and last place of each run, and its line. `lines`: the lines with
    runs; `begins`: the first run of each such line. `opened`, `closed`: the nearest byte before and after each run that is not a
    blank. `doubled`: first and last places of the even runs that cannot open a field, which are not among the runs above."""

    first: Rows
    last: Rows
    line: Rows
    lines: Rows
    begins: Rows
    is_odd: Bools
    can_open: Bools
    can_close: Bools
    opened: Rows
    closed: Rows
    doubled: tuple[Rows, Rows]


@dataclass(frozen=True, slots=True)
class _States:
    """`before`, `after`: whether the bytes before and after each run are inside quotes, if the run's line begins outside quotes.
    `before_hangs`, `after_hangs`: whether that state depends on the start of the line; if the line begins inside quotes, such a
    state is inverted."""

    before: Bools
    after: Bools
    before_hangs: Bools
    after_hangs: Bools

    def turned(self, in_quotes: Bools) -> _States:
        """Returns these states with those inverted that depend on a line's start, for each run whose line begins in quotes
        (`in_quotes`)."""
        before, after = self.before ^ (in_quotes & self.before_hangs), self.after ^ (in_quotes & self.after_hangs)
        return replace(self, before=before, after=after)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The effect of each run on fields: whether it begins a quoted field, ends one, and whether it has quotes inside a field."""

    begins: Bools
    ends: Bools
    is_inner: Bools

    @classmethod
    def from_runs(cls, runs: _Runs, states: _States, is_good: Bools) -> _Fields:
        """Computes the effect of each run. Runs of rows that are not good have none."""
        begins = runs.can_open & ~states.before & is_good
        is_inner = (states.before & is_good) | begins
        return cls(begins, is_inner & ~states.after, is_inner)


def rows_of(lines: TextLines, syntax: SyntaxBytes) -> RowLines:
    """Returns the rows that the lines form. `lines` must include every line of their messages that has quotes."""
    return _rows(lines, _runs(lines, syntax) if len(syntax.quotes) else None)[0]


def begin_open(texts: Sequence[bytes], delimiter: bytes = b",") -> list[bool]:
    """Whether the first row of each text has an unclosed quote. If the text were joined with later rows in a message, these could
    close the quote."""
    if not any(b'"' in text for text in texts):
        return [False] * len(texts)
    lines = every_line(pa.array(texts, pa.binary()))
    is_first = np.append(True, lines.parent[1:] != lines.parent[:-1])
    found: list[bool] = rows_of(lines, SyntaxBytes.from_buffer(lines.data, delimiter[0])).is_open[is_first].tolist()
    return found


def quoting_of(lines: TextLines, syntax: SyntaxBytes) -> Quoting:
    """Returns the rows that the lines form (as `rows_of`), and the quoting of their bytes."""
    runs = _runs(lines, syntax) if len(syntax.quotes) else None
    found, states = _rows(lines, runs)
    is_none = found.is_misplaced | found.is_open
    rows = lines
    if found.continues_row.any():
        begins = ~found.continues_row
        rows, is_none = replace(lines, end=lines.end[found.tail]).kept(begins), is_none[begins]
    if runs is None or states is None:
        dropped = _dropped_backslashes(syntax, None)
        return Quoting(rows, is_none, None, dropped, has_quoted=False, has_escapes=len(dropped) > 0)
    is_good = ~(found.is_misplaced | found.is_open)[runs.line]
    fields = _Fields.from_runs(runs, states, is_good)
    is_quoted = _is_quoted(runs, fields.begins ^ fields.ends, len(lines.data))
    dropped = _dropped(runs, fields, syntax, is_quoted)
    has_escapes = len(syntax.pairs) > 0 and not (is_quoted is not None and is_quoted[syntax.pairs].all())
    return Quoting(rows, is_none, is_quoted, dropped, has_quoted=bool(fields.begins.any()), has_escapes=has_escapes)


def _rows(lines: TextLines, runs: _Runs | None) -> tuple[RowLines, _States | None]:
    """Returns the rows, and the states at runs. The states are None if no run can open a field, so that quotes have no meaning."""
    count = len(lines.begin)
    tail, nowhere = np.arange(count), np.zeros(count, np.bool_)
    if runs is None or not runs.can_open.any():
        return RowLines(tail, nowhere, nowhere, nowhere), None
    states = _states(runs)
    is_misplaced, is_open = _per_line(lines, runs, states)
    if not is_open.any():
        return RowLines(tail, nowhere, is_misplaced, is_open), states
    heads, tails, others = _closed_later(lines, runs, states, np.flatnonzero(is_open))
    tail[heads] = tails
    change = np.zeros(count + 1, np.int8)
    change[heads + 1], change[tails + 1] = 1, -1
    continues_row = np.add.accumulate(change[:-1], dtype=np.int8).view(np.bool_)
    is_misplaced[others] = True
    is_open[heads] = is_open[others] = False
    return RowLines(tail, continues_row, is_misplaced & ~continues_row, is_open & ~continues_row), states.turned(
        continues_row[runs.line]
    )


def _per_line(lines: TextLines, runs: _Runs, states: _States) -> tuple[Bools, Bools]:
    """Returns two masks over the lines: whether more than blanks follow a closing quote in the line; and, for the other lines,
    whether the line ends inside quotes. Both are false for lines without quotes."""
    is_misplaced, stays_open = np.zeros(len(lines.begin), np.bool_), np.zeros(len(lines.begin), np.bool_)
    stays_open[runs.lines] = states.after[np.append(runs.begins[1:], len(runs.line)) - 1]
    if len(at := np.flatnonzero(_is_misplaced(runs, states.before))):
        is_misplaced[runs.line[at]] = True
        stays_open &= ~is_misplaced
    return is_misplaced, stays_open


def _runs(lines: TextLines, syntax: SyntaxBytes) -> _Runs:
    data, first, last = lines.data, syntax.quotes, syntax.quotes
    ends = np.flatnonzero(np.diff(first) != 1)
    is_odd = np.ones(len(first), np.bool_)
    if len(ends) < len(first) - 1:
        first, last = first[np.append(0, ends + 1)], last[np.append(ends, len(last) - 1)]
        is_odd = (last - first) & 1 == 0
    opened = first - 1
    before_it = data[opened]
    if len(at := np.flatnonzero(are_blanks(before_it, syntax.delimiter))):
        opened[at] = _before_blanks(data, syntax.delimiter, opened[at])
        before_it = data[opened]
    can_open = before_it == syntax.delimiter
    if syntax.is_taken is not None:
        can_open &= ~syntax.is_taken[opened]
    can_open |= before_it == LINE_FEED
    if len(at := np.flatnonzero(before_it == _MARK_END)):
        can_open[at] |= opened[at] < lines.begin[lines.lines_at(first[at])]  # a byte order mark is not part of a line
    acts = is_odd | can_open
    doubled = _NO_PLACES, _NO_PLACES
    if not acts.all():
        at = np.flatnonzero(~acts)
        doubled, at = (first[at], last[at]), np.flatnonzero(acts)
        first, last, is_odd, can_open, opened = first[at], last[at], is_odd[at], can_open[at], opened[at]
    closed = last + 1
    behind_it = data[closed]
    if len(at := np.flatnonzero(are_blanks(behind_it, syntax.delimiter))):
        closed[at] = _behind_blanks(data, syntax.delimiter, closed[at])
        behind_it = data[closed]
    of_line = np.searchsorted(first, lines.begin)
    count = np.diff(np.append(of_line, len(first)))
    line, has_any = np.repeat(np.arange(len(count)), count), np.flatnonzero(count)
    can_close = (behind_it == syntax.delimiter) | (behind_it == LINE_FEED)
    if len(at := np.flatnonzero(behind_it == RETURN)):
        can_close[at] = closed[at] >= lines.end[line[at]]
    return _Runs(first, last, line, has_any, of_line[has_any], is_odd, can_open, can_close, opened, closed, doubled)


def _before_blanks(data: Bytes, delimiter: int, at: Rows) -> Rows:
    """Returns each place, moved back over blanks to the nearest byte that is not a blank; -1 if there is none."""
    for _ in range(_STEPS_MAX):
        is_blank = are_blanks(data[at], delimiter)
        if not is_blank.any():
            return at
        at = at - is_blank
    left = np.flatnonzero((at >= 0) & are_blanks(data[at], delimiter))
    at[left] = last_not_passed(are_blanks(data, delimiter), at[left])
    return at


def _behind_blanks(data: Bytes, delimiter: int, at: Rows) -> Rows:
    """Returns each place, moved forward over blanks to the nearest byte that is not a blank. The last byte of `data` must not be a
    blank."""
    for _ in range(_STEPS_MAX):
        is_blank = are_blanks(data[at], delimiter)
        if not is_blank.any():
            return at
        at = at + is_blank
    left = np.flatnonzero(are_blanks(data[at], delimiter))
    others = np.flatnonzero(~are_blanks(data, delimiter))
    at[left] = others[np.searchsorted(others, at[left])]
    return at


def _states(runs: _Runs) -> _States:
    turns = runs.is_odd & runs.can_open & runs.can_close
    settles = runs.is_odd & ~turns
    hangs = np.zeros(len(turns), np.bool_)
    hangs[runs.begins] = True
    in_quotes = np.append(False, runs.can_open[:-1]) & ~hangs
    if not settles.all():
        is_known = np.append(True, settles[:-1]) | hangs
        known = np.maximum.accumulate(np.where(is_known, np.arange(len(turns)), 0))
        turned = np.logical_xor.accumulate(turns) ^ turns
        in_quotes, hangs = in_quotes[known] ^ turned ^ turned[known], hangs[known]
    after = (settles & runs.can_open) | (~settles & (in_quotes ^ turns))
    return _States(in_quotes, after, hangs, hangs & ~settles)


def _is_misplaced(runs: _Runs, in_quotes: Bools) -> Bools:
    """Whether each run closes a field and is followed by more than blanks. `in_quotes`: whether the bytes before each run are
    inside quotes."""
    return ~runs.can_close & ((in_quotes & runs.is_odd) | (~in_quotes & ~runs.is_odd & runs.can_open))


def _closed_later(lines: TextLines, runs: _Runs, states: _States, heads: Rows) -> tuple[Rows, Rows, Rows]:
    """Finds rows of several lines. `heads`: the lines that end inside quotes. Returns the lines that begin such rows, the last line
    of each of these rows, and the heads whose quote is closed by a misplaced quote."""
    states = states.turned(np.ones(len(runs.line), np.bool_))
    is_misplaced, stays_open = _per_line(lines, runs, states)
    ends = runs.lines[~stays_open[runs.lines]]
    after = np.searchsorted(ends, heads, side="right")
    after = after[: np.searchsorted(after, len(ends))]
    heads, tails = heads[: len(after)], ends[after]
    is_here = lines.parent[tails] == lines.parent[heads]
    is_closed, others = is_here, heads[:0]
    if is_misplaced.any():
        others, is_closed = heads[is_here & is_misplaced[tails]], is_here & ~is_misplaced[tails]
    if len(lines.data) > grammar.ROW_BYTES_MAX:
        is_closed &= lines.feed[tails] - lines.whole_begin(heads) <= grammar.ROW_BYTES_MAX
    if not is_closed.all():
        heads, tails = heads[is_closed], tails[is_closed]
    at = _disjoint(heads, tails)
    return heads[at], tails[at], others


def _disjoint(heads: Rows, tails: Rows) -> Rows:
    """Returns the indexes of the (head, tail) pairs that remain if each pair that begins within an earlier remaining pair is
    dropped.

    A tail is the first closing line after its head. So pairs with one tail are adjacent, and only the first of them can begin
    within an earlier pair, at the tail of that pair.
    """
    if not len(heads):
        return heads
    first = np.flatnonzero(np.diff(tails, prepend=-1))
    touches = np.append(False, heads[first[1:]] == tails[first[:-1]])
    is_alone = np.diff(np.append(first, len(heads))) == 1
    number = np.arange(len(first))
    known = np.maximum.accumulate(np.where(touches & is_alone, 0, number))
    is_taken = (number - known) & 1 == 0  # of a chain of pairs that touch, each second one is dropped
    is_second = touches & np.append(False, is_taken[:-1])
    taken: Rows = (first + is_second)[is_taken]
    return taken


def _is_quoted(runs: _Runs, turns: Bools, size: int) -> Bools | None:
    if not turns.any():
        return None
    places = np.zeros(size, np.bool_)
    places[runs.first[turns]] = True
    return _turned_at(places)


_SHIFTS = [np.uint64(1 << power) for power in range(6)]


def _turned_at(places: Bools) -> Bools:
    """Returns a state per byte that toggles at each of the places, as `np.logical_xor.accumulate` does, but 64 bytes at once."""
    bits = np.zeros((len(places) + 63) // 64 * 8, np.uint8)
    bits[: (len(places) + 7) // 8] = np.packbits(places, bitorder="little")
    words = bits.view("<u8")
    for shift in _SHIFTS:
        words ^= words << shift
    turns = words >> np.uint64(63) != 0
    words ^= np.where(np.logical_xor.accumulate(turns) ^ turns, ~np.uint64(0), np.uint64(0))
    turned: Bools = np.unpackbits(bits, count=len(places), bitorder="little").view(np.bool_)
    return turned


def _dropped(runs: _Runs, fields: _Fields, syntax: SyntaxBytes, is_quoted: Bools | None) -> Rows:
    parts = [_doubled(runs, fields), _dropped_backslashes(syntax, is_quoted)]
    if is_quoted is not None:
        first, last = (each[is_quoted[runs.doubled[0]]] for each in runs.doubled)
        parts += [syntax.doubled[is_quoted[syntax.doubled]], _ranges(first, last, 2)]
    at = np.flatnonzero(fields.begins & (runs.opened < runs.first - 1))
    parts.append(_ranges(runs.opened[at] + 1, runs.first[at], 1))
    at = np.flatnonzero(fields.ends & (runs.closed > runs.last + 1))
    parts.append(_ranges(runs.last[at] + 1, runs.closed[at], 1))
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else _NO_PLACES
    is_dropped = np.zeros(len(syntax.data), np.bool_)
    for part in parts:
        is_dropped[part] = True
    return np.flatnonzero(is_dropped)


def _doubled(runs: _Runs, fields: _Fields) -> Rows:
    """Returns the place of one quote of each doubled quote, in runs that also open or close a field."""
    at = np.flatnonzero((runs.last > runs.first) & fields.is_inner)
    begins, closes = fields.begins[at], runs.is_odd[at] & ~fields.begins[at]  # if a run does both, its last is never reached
    return _ranges(runs.first[at] + 2 * begins, runs.last[at] + 1 - closes, 2)


def _dropped_backslashes(syntax: SyntaxBytes, is_quoted: Bools | None) -> Rows:
    """Returns the places of backslashes that are not part of a value: before a delimiter outside quotes, before a quote or
    backslash inside."""
    if not len(syntax.pairs):
        return syntax.pairs
    taken = syntax.data[syntax.pairs + 1]
    goes = taken == syntax.delimiter
    if is_quoted is not None:
        inner = is_quoted[syntax.pairs]
        goes = (goes & ~inner) | (((taken == _QUOTE) | (taken == _ESCAPE)) & inner)
    dropped: Rows = syntax.pairs[goes]
    return dropped


def _ranges(begin: Rows, end: Rows, step: int) -> Rows:
    """Returns the numbers from each `begin` to before its `end`, in steps of `step`, one range after the other."""
    found: Rows = begin[end > begin]
    if (end - begin > step).any():
        counts = (end - begin + step - 1) // step
        behind = np.cumsum(counts)
        found = np.repeat(begin - step * (behind - counts), counts) + step * np.arange(behind[-1])
    return found
