"""Which quotes of many lines open and close fields, and so which lines are one row: for all lines at once, as `csv.grammar` says.

Quotes that follow each other are a run. Whether a run is one that can open a field, or close one, is seen from what stands beside
it; what it does then depends on whether it stands in quotes:

    quotes   can open   can close   out of quotes                         in quotes
    even     no                     nothing                               nothing: each two are one quote
    even     yes        yes         the first opens, the last closes      nothing
    even     yes        no          the last closes, and is misplaced     nothing
    odd      no         yes         nothing                               the last closes
    odd      no         no          nothing                               the last closes, and is misplaced
    odd      yes        yes         the first opens                       the last closes
    odd      yes        no          the first opens                       the last closes, and is misplaced

So behind a run of an odd number that cannot do both, it is known whether one is in quotes, whatever was before: out of them if it
cannot open, and else in them, or the row is none. At any run it is as behind the last of these in its line, and turned round by
each run since then that can do both. Only where there was none does it hang on how the line begins. A line that begins a row begins
out of quotes, and one that goes on with a row in quotes; a row ends with the first line that ends out of quotes.

Nothing is read twice, and nothing is a loop over bytes, quotes or lines: the cost is that of the size, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.formats.csv import grammar
from hotspare.formats.csv.lines import LINE_FEED, RETURN, Bytes, TextLines, are_blanks, before, every_line
from hotspare.rows.elementwise import Rows

Bools = npt.NDArray[np.bool_]
_QUOTE, _ESCAPE = b'"\\'
_MARK_END = grammar.BYTE_ORDER_MARK[-1]
_NO_PLACES: Rows = np.empty(0, np.int64)
_STEPS_MAX = 4
"""At most so many blanks are passed one by one; where more follow each other, they are looked up."""


@dataclass(frozen=True, slots=True)
class SyntaxBytes:
    """Where quotes stand that no backslash before them takes, and the first bytes of pairs of a backslash and what it takes.

    `doubled`: of two quotes which can neither open nor close a field, the first; they are not among `quotes`. `is_taken`: which
    bytes backslashes take; None if there are none.
    """

    data: Bytes
    delimiter: int
    quotes: Rows
    doubled: Rows
    pairs: Rows
    is_taken: Bools | None

    @classmethod
    def of(cls, data: Bytes, delimiter: int) -> SyntaxBytes:
        is_quote, escapes = data == _QUOTE, np.flatnonzero(data == _ESCAPE)
        pairs, is_taken = escapes, None
        if len(escapes):
            follows = np.diff(escapes, prepend=-2) == 1
            if follows.any():  # of several in a row, each second one is taken itself
                first = np.maximum.accumulate(np.where(follows, 0, escapes))
                pairs = escapes[(escapes - first) & 1 == 0]
            is_taken = np.zeros(len(data), np.bool_)
            is_taken[pairs + 1] = True
            is_quote &= ~is_taken
        doubled = _doubled_within(data, delimiter, is_quote) if is_quote.any() else _NO_PLACES
        return cls(data, delimiter, np.flatnonzero(is_quote), doubled, pairs, is_taken)

    def delimiters(self, is_quoted: Bools | None) -> Rows:
        """Where delimiters stand that no backslash takes, out of quotes."""
        found = self.data == self.delimiter
        for others in (self.is_taken, is_quoted):
            if others is not None:
                found &= ~others
        return np.flatnonzero(found)


def _doubled_within(data: Bytes, delimiter: int, is_quote: Bools) -> Rows:
    """The first of each two quotes, and no more, that follow neither a delimiter nor the beginning of a line, nor such and blanks.
    They are taken out of `is_quote`. A few others may be left there: this is for speed."""
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
    """The lines of each row: the `tail` of a line is the one with which a row ends that begins with it; `goes_on`: lines that begin
    no row. `is_misplaced`: rows in which more than blanks follow a closing quote; `is_open`: others with a quote that is not
    closed within its message and ROW_BYTES_MAX. Both kinds are bad rows of one line."""

    tail: Rows
    goes_on: Bools
    is_misplaced: Bools
    is_open: Bools


@dataclass(frozen=True, slots=True)
class Quoting:
    """What quotes say of lines, and of what is in them.

    `rows` begin each with one of the lines and may end with another one; `is_none`: their quotes are bad, and they are one line.
    `is_quoted`: bytes that stand in quotes, None if none does; of quotes and what stands beside them outside it says nothing.
    `dropped`: bytes that are no part of what a field means, beside the quotes around it; rising. Those of rows that are none are
    not told.
    `has_quoted`: whether there are quoted fields. `has_escapes`: whether bytes of others may be dropped.
    """

    rows: TextLines
    is_none: Bools
    is_quoted: Bools | None
    dropped: Rows
    has_quoted: bool
    has_escapes: bool


@dataclass(frozen=True, slots=True)
class _Runs:
    """Quotes that follow each other, from `first` to `last`, and the line in which they stand. `lines`: those with any; `begins` is
    the number of the first in each. Behind `opened` there are only blanks up to a run, and so there are up to `closed` behind it.
    `doubled`: from where to where there are others, which do nothing but that in quotes each two are one."""

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
    """Whether one is in quotes `before` each run and `after` it, if its line begins out of quotes; where it hangs on that, it is
    the other way round in a line that begins in quotes."""

    before: Bools
    after: Bools
    before_hangs: Bools
    after_hangs: Bools

    def turned(self, in_quotes: Bools) -> _States:
        """Those of runs whose lines begin in quotes, where it is said."""
        before, after = self.before ^ (in_quotes & self.before_hangs), self.after ^ (in_quotes & self.after_hangs)
        return replace(self, before=before, after=after)


@dataclass(frozen=True, slots=True)
class _Fields:
    """Runs with which quoted fields begin, or end, or both, and those with a quote that is part of one."""

    begins: Bools
    ends: Bools
    is_inner: Bools

    @classmethod
    def of(cls, runs: _Runs, states: _States, is_good: Bools) -> _Fields:
        """Of good rows."""
        begins = runs.can_open & ~states.before & is_good
        is_inner = (states.before & is_good) | begins
        return cls(begins, is_inner & ~states.after, is_inner)


def rows_of(lines: TextLines, syntax: SyntaxBytes) -> RowLines:
    """Of lines that no line of their messages with quotes is missing from."""
    return _rows(lines, _runs(lines, syntax) if len(syntax.quotes) else None)[0]


def begin_open(texts: Sequence[bytes], delimiter: bytes = b",") -> list[bool]:
    """Of each text whether its first row has a quote that is not closed: rows that follow it in a message could close it."""
    if not any(b'"' in text for text in texts):
        return [False] * len(texts)
    lines = every_line(pa.array(texts, pa.binary()))
    is_first = np.append(True, lines.parent[1:] != lines.parent[:-1])
    found: list[bool] = rows_of(lines, SyntaxBytes.of(lines.data, delimiter[0])).is_open[is_first].tolist()
    return found


def quoting_of(lines: TextLines, syntax: SyntaxBytes) -> Quoting:
    """Of such lines."""
    runs = _runs(lines, syntax) if len(syntax.quotes) else None
    found, states = _rows(lines, runs)
    is_none = found.is_misplaced | found.is_open
    rows = lines
    if found.goes_on.any():
        begins = ~found.goes_on
        rows, is_none = replace(lines, end=lines.end[found.tail]).kept(begins), is_none[begins]
    if runs is None or states is None:
        dropped = _taken_away(syntax, None)
        return Quoting(rows, is_none, None, dropped, has_quoted=False, has_escapes=len(dropped) > 0)
    is_good = ~(found.is_misplaced | found.is_open)[runs.line]
    fields = _Fields.of(runs, states, is_good)
    is_quoted = _is_quoted(runs, fields.begins ^ fields.ends, len(lines.data))
    dropped = _dropped(runs, fields, syntax, is_quoted)
    has_escapes = len(syntax.pairs) > 0 and not (is_quoted is not None and is_quoted[syntax.pairs].all())
    return Quoting(rows, is_none, is_quoted, dropped, has_quoted=bool(fields.begins.any()), has_escapes=has_escapes)


def _rows(lines: TextLines, runs: _Runs | None) -> tuple[RowLines, _States | None]:
    """And where runs stand; None where quotes mean nothing, since none can open a field."""
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
    goes_on = np.add.accumulate(change[:-1], dtype=np.int8).view(np.bool_)
    is_misplaced[others] = True
    is_open[heads] = is_open[others] = False
    return RowLines(tail, goes_on, is_misplaced & ~goes_on, is_open & ~goes_on), states.turned(goes_on[runs.line])


def _per_line(lines: TextLines, runs: _Runs, states: _States) -> tuple[Bools, Bools]:
    """Returns for each line whether more than blanks follow a closing quote, and whether it ends in quotes if not. Lines without
    quotes do neither."""
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
        can_open[at] |= opened[at] < lines.begin[lines.of(first[at])]  # a byte order mark is no part of a line
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
    """The last places before blanks that stand there; -1 where there is none."""
    for _ in range(_STEPS_MAX):
        is_blank = are_blanks(data[at], delimiter)
        if not is_blank.any():
            return at
        at = at - is_blank
    left = np.flatnonzero((at >= 0) & are_blanks(data[at], delimiter))
    at[left] = before(are_blanks(data, delimiter), at[left])
    return at


def _behind_blanks(data: Bytes, delimiter: int, at: Rows) -> Rows:
    """The first places behind blanks that stand there. The last byte of all is none."""
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
    """Returns the runs with more than blanks behind the quote that closes. `in_quotes`: whether quotes are open before a run."""
    return ~runs.can_close & ((in_quotes & runs.is_odd) | (~in_quotes & ~runs.is_odd & runs.can_open))


def _closed_later(lines: TextLines, runs: _Runs, states: _States, heads: Rows) -> tuple[Rows, Rows, Rows]:
    """Of lines that end in quotes those that begin a row of several lines, the lines with which these rows end, and the lines whose
    quotes are closed by one that is misplaced."""
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
    """Numbers of the pairs that are left where each that begins within one before it is left out, from the first on.

    A tail is the first of some lines behind its head. So pairs of one tail stand together, and of these only the first can begin
    within a pair before: with its tail.
    """
    if not len(heads):
        return heads
    first = np.flatnonzero(np.diff(tails, prepend=-1))
    touches = np.append(False, heads[first[1:]] == tails[first[:-1]])
    is_alone = np.diff(np.append(first, len(heads))) == 1
    number = np.arange(len(first))
    known = np.maximum.accumulate(np.where(touches & is_alone, 0, number))
    is_taken = (number - known) & 1 == 0  # of a row of such that touch each other, each second one is left out
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
    """What is turned round at each of the places, as `np.logical_xor.accumulate` says it: of 64 at once."""
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
    parts = [_doubled(runs, fields), _taken_away(syntax, is_quoted)]
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
    """Of each two quotes that are one, one, where others beside them open or close."""
    at = np.flatnonzero((runs.last > runs.first) & fields.is_inner)
    begins, closes = fields.begins[at], runs.is_odd[at] & ~fields.begins[at]  # of what opens and closes, the last place is not met
    return _ranges(runs.first[at] + 2 * begins, runs.last[at] + 1 - closes, 2)


def _taken_away(syntax: SyntaxBytes, is_quoted: Bools | None) -> Rows:
    """Backslashes that go away with what they take."""
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
    """All numbers from each `begin` to before its `end`, one range after the other."""
    found: Rows = begin[end > begin]
    if (end - begin > step).any():
        counts = (end - begin + step - 1) // step
        behind = np.cumsum(counts)
        found = np.repeat(begin - step * (behind - counts), counts) + step * np.arange(behind[-1])
    return found
