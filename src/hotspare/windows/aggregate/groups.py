"""The state of an aggregate, as parts of a page, and the class that applies events to it with `windows.aggregate.loops.aggregate`.

groups          a row for each group
wide            the rows of those groups whose sums need more words than a row of `groups` has
values          values in order, for functions that need them; small sets are in the row of their group instead
arrivals        rows in order of arrival, for functions that need it
changes         the count of changes of groups
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.expressions.aggregates import AggregateCall
from hotspare.model.types import Field, FieldType
from hotspare.rows.arrays import packed
from hotspare.rows.chunk import OUTPUT_BYTES_MAX, Chunk, Int64s, Timeline, all_true
from hotspare.rows.values import parse
from hotspare.table.derived_parts import DerivedPart
from hotspare.table.lanes import CODED, to_arrow
from hotspare.table.loops.interning import SIZE
from hotspare.table.loops.relation import DELETE, repeat_moves
from hotspare.table.memory import longer
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Columns, Counters, Page
from hotspare.table.relation import Relation, Shape
from hotspare.table.row_index import empty_index, grown_index, index_bytes
from hotspare.table.strings import StringTable
from hotspare.table.unloaded import LoadMode, SnapshotRowPages
from hotspare.table.unloaded_relation import load_page_to_clear
from hotspare.windows.aggregate.loops import aggregate as k
from hotspare.windows.aggregate.loops import components, exact
from hotspare.windows.aggregate.loops.arrivals import Arrivals
from hotspare.windows.aggregate.loops.ordered import fill_trees
from hotspare.windows.aggregate.loops.results import ENTRIES, LISTS, OrderedState
from hotspare.windows.aggregate.loops.values import CODE, NODES_WIDTH, OF_SET, Trees
from hotspare.windows.aggregate.program import Planner

GROUPS, WIDE_GROUPS, VALUES, ARRIVALS, CHANGES = "groups", "wide", "values", "arrivals", "changes"
_ENTRIES_MIN = 1 << 12


class GroupOutputs(NamedTuple):
    """Outputs of groups, one row each. `chunk`: keys and results; `source`: the index of the event that caused the output.
    `failed`: the number of the first result with an error, counted from 1, or 0.
    """

    chunk: Chunk
    source: Int64s
    failed: Int64s


class AggregateGroups:
    """Applies events to the groups of an aggregate. Immutable: all state is in the page.

    The columns of an event are, in this order: the key of its group, the arguments of the planner, and the fields `identity`, the
    key of the event's row. The last are read only if the planner lists rows in order of arrival.
    """

    def __init__(self, keys: Sequence[Field], identity: Sequence[Field], calls: Sequence[AggregateCall], planner: Planner) -> None:
        self._keys, self._width = len(keys), len(keys) + len(calls)
        self._codes = tuple(i for i, f in enumerate(keys) if f.type in CODED)
        self._narrow, self._wide = planner.narrow(self._codes), planner.wide(self._codes)
        self._kinds, self._asked = planner.kinds, planner.queries_by_set
        self._lists = [(len(keys) + i, _Listing.for_call(calls[i])) for i in planner.lists]
        listed, at = planner.listed, len(keys) + len(planner.arguments)
        of_row, of_group = range(at, at + len(identity)), range(len(keys))
        columns = [*of_row, *of_group, *(len(keys) + each for each in listed)] if listed else []
        self._columns = np.array(columns, np.int64)
        self._of_row, self._of_group = np.array(of_row, np.int64), np.array(of_group, np.int64)
        coded = [*(f.type in CODED for f in (*identity, *keys)), *(each in planner.coded for each in listed)]
        condition = tuple(range(len(identity), len(identity) + len(keys)))
        codes = tuple(i for i, is_coded in enumerate(coded) if is_coded)
        self._rows = Shape(max(len(columns), len(identity) + len(keys)), tuple(range(len(identity))), codes, condition)
        self._nothing = OrderedValues(self._keys, (), self._kinds, self._asked), MultiIndex(self._rows)
        """Arguments for the kernel if the window keeps no values or arrivals; the kernel does not read them."""

    def open(self, page: Page) -> None:
        page.parts[CHANGES] = Counters(1)
        for name, tables in ((GROUPS, self._narrow), (WIDE_GROUPS, self._wide)):
            shape = Shape(tables.width, tuple(range(self._keys)), tables.codes)
            page.parts[name] = Relation(shape, reading=LoadMode.AT_USE)
        if len(self._kinds):
            page.parts[VALUES] = OrderedValues(self._keys, self._codes, self._kinds, self._asked)
        if len(self._columns):
            page.parts[ARRIVALS] = MultiIndex(self._rows, reading=LoadMode.AT_USE)

    def apply_events(self, page: Page, events: Chunk, timeline: Timeline, strings: StringTable) -> GroupOutputs:
        """Applies resolved events, in order, to the groups in `page`. Returns the outputs that they cause, at most two per row."""
        narrow, wide = (cast(Relation, page.parts[name]) for name in (GROUPS, WIDE_GROUPS))
        changes = cast(Counters, page.parts[CHANGES]).values
        out = self._allocate_outputs(2 * len(events))
        out.counts[k.EVENT] = changes[0]
        for relation in (narrow, wide):
            relation.pages.prefetch_for_keys(events.lanes)
        self._load_ordered(page, events)
        lists = self._run(page, events, timeline, strings, out)
        changes[0] = out.counts[k.EVENT]
        if self._lists:
            self._write_lists(narrow, wide, out, lists, strings)
        for name in (GROUPS, WIDE_GROUPS):
            cast(Relation, page.parts[name]).release_outputs()
        for name in (VALUES, ARRIVALS):
            if name in page.parts:
                cast("OrderedValues | MultiIndex", page.parts[name]).settle()
        made = slice(0, int(out.counts[k.MADE]))
        chunk = Chunk(out.rank[made], out.opcode[made], out.flags[made], out.lanes[made], out.valid[made], is_whole=True)
        return GroupOutputs(chunk, out.source[made], out.failed[made])

    def current_results(self, page: Page) -> Chunk:
        """Returns keys and results of all groups without an error, in the order in which groups were created; those in part
        WIDE_GROUPS last."""
        stored = [cast(Relation, page.parts[name]).stored()[:2] for name in (GROUPS, WIDE_GROUPS)]
        can_evict_pages = [lanes[:, self._width] == 0 for lanes, _ in stored]
        found = [
            (lanes[chosen, : self._width], valid[chosen, : self._width])
            for (lanes, valid), chosen in zip(stored, can_evict_pages, strict=True)
        ]
        return Chunk.from_stored_rows(*map(np.concatenate, zip(*found, strict=True)))

    def _load_ordered(self, page: Page, events: Chunk) -> None:
        """Loads the ordered state of the groups of these events, if a restore left it in the store."""
        groups, values, arrivals = events.lanes[:, : self._keys], page.parts.get(VALUES), page.parts.get(ARRIVALS)
        if isinstance(values, OrderedValues) and values.has_unloaded_pages:
            values.load_group_sets(groups)
        if isinstance(arrivals, MultiIndex) and arrivals.has_unloaded_pages:
            arrivals.rows.pages.prefetch_for_keys(events.lanes[:, self._columns])
            arrivals.load_matches(groups)

    def _allocate_outputs(self, count: int) -> k.Outputs:
        """Allocates arrays for `count` outputs."""
        rank, failed, source = (np.empty(count, np.int64) for _ in range(3))
        opcode, flags = np.empty(count, np.uint8), np.empty(count, np.uint8)
        lanes, valid = np.empty((count, self._width), np.int64), np.empty((count, self._width), np.bool_)
        places = np.empty((count if self._lists else 0, k.PLACES_WIDTH), np.int64)
        return k.Outputs(rank, opcode, flags, lanes, valid, failed, source, places, np.zeros(k.COUNTS_WIDTH, np.int64))

    def _run(self, page: Page, events: Chunk, timeline: Timeline, strings: StringTable, out: k.Outputs) -> OrderedState:
        """Runs the kernel over all events and fills `out`. Provides room and pages when the kernel requests them. Returns the
        ordered state with the lists that the kernel collected.
        """
        narrow, wide = (cast(Relation, page.parts[name]).pages for name in (GROUPS, WIDE_GROUPS))
        values = cast(OrderedValues, page.parts.get(VALUES, self._nothing[0]))
        arrivals = cast(MultiIndex, page.parts.get(ARRIVALS, self._nothing[1]))
        if VALUES in page.parts:
            values.prepare_kernel(strings)
        if ARRIVALS in page.parts:
            arrivals.begin_in_kernel()
        for pages in (narrow, wide) if self._lists else ():
            pages.record_moves()
        given = components.GroupEvents(events.rank, events.opcode, events.flags, events.lanes, events.valid, timeline.time_us)
        small, large = _allocate_group(self._narrow.width), _allocate_group(self._wide.width)
        change = k.GroupChange(self._narrow.program, self._wide.program, small, large, _scratch())
        entries, ends = (np.empty(_ENTRIES_MIN if self._lists else 0, np.int64) for _ in range(2))
        counts = np.array([0, 0, len(self._lists)])
        while True:
            if out.counts[k.ASKS] != k.ANSWERED:
                kept_in = (narrow, wide, values.rows.pages, arrivals.rows.pages)
                out.counts[k.ASKS] = k.ASK if any(pages.unloaded is not None for pages in kept_in) else k.NEVER
            rows = Arrivals(arrivals.rows.pages.rows, arrivals.lists, self._columns, self._of_row, self._of_group)
            kept = OrderedState(values.trees(strings), rows, entries, ends, counts)
            state = int(k.run_aggregate(narrow.rows, wide.rows, change, kept, given, out))
            if state == k.DONE:
                return kept
            if state == k.NEEDS_TREE_ROOM:
                values.make_room()
            elif state == k.NEEDS_ROW_ROOM:
                arrivals.make_more_room()
            elif state == k.NEEDS_PAGES:
                for pages in (narrow, wide):
                    load_page_to_clear(pages)
                values.load_page_to_clear(strings)
                arrivals.load_page_to_clear()
                out.counts[k.ASKS] = k.ANSWERED
            elif state == k.NEEDS_LIST_ROOM:
                entries = np.concatenate([entries, np.empty_like(entries)])
                ends = np.concatenate([ends, np.empty_like(ends)])
            else:
                (narrow if state == k.NEEDS_ROOM else wide).make_room()

    def _write_lists(self, narrow: Relation, wide: Relation, out: k.Outputs, lists: OrderedState, strings: StringTable) -> None:
        """Replaces the number of each list by the code of its text or array, in new versions of groups and in the outputs. The
        kernel only numbers lists, since it cannot build texts.
        """
        ends = lists.ends[: int(lists.counts[LISTS])]
        codes, offsets = lists.entries[: int(lists.counts[ENTRIES])], np.concatenate((np.zeros(1, np.int64), ends))
        made = int(out.counts[k.MADE])
        places, is_new = out.places[:made], out.opcode[:made] != DELETE
        for relation, is_wide in ((narrow, 0), (wide, 1)):
            slots = places[is_new & (places[:, k.IS_WIDE] == is_wide), k.SLOT]
            for column, listing in self._lists:
                there = slots[relation.valid[slots, column]]
                relation.lanes[there, column] = _joined(codes, offsets, relation.lanes[there, column], listing, strings)
            repeat_moves(relation.pages.rows)
        k.gather_groups(narrow.pages.rows, wide.pages.rows, out)


class _Listing(NamedTuple):
    """The format of a result that lists all values of a group: a text with `separator` between values, or, if `array` is set, an
    array of that type.
    """

    separator: str
    array: FieldType | None

    @classmethod
    def for_call(cls, call: AggregateCall) -> _Listing:
        type_ = FieldType(call.type.value)
        return cls(";", type_) if type_.is_array else cls(str(call.constants[0]), None)

    def format_lists(self, texts: pa.ListArray) -> pa.Array:
        """Returns for each list of texts the joined text, or the bytes of the array."""
        joined = pc.binary_join(texts, self.separator)
        if self.array is None:
            return joined
        arrays, _ = parse(pc.binary_join_element_wise("[", joined, "]", ""), self.array)
        return packed(arrays)


def _joined(codes: Int64s, offsets: Int64s, numbers: Int64s, listing: _Listing, strings: StringTable) -> Int64s:
    """Returns the codes of the texts or arrays of the lists `numbers`, built piece by piece. List n has the values with the codes
    `codes[offsets[n]:offsets[n + 1]]`.
    """
    made = [np.empty(0, np.int64)]
    sizes = strings.texts[0][:, SIZE][codes] + len(listing.separator.encode())
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    bytes_ = before[offsets[numbers + 1]] - before[offsets[numbers]]
    for begin, end in _pieces(bytes_):
        chosen = numbers[begin:end]
        lengths = offsets[chosen + 1] - offsets[chosen]
        places = np.repeat(offsets[chosen] - np.concatenate(([0], np.cumsum(lengths)[:-1])), lengths) + np.arange(lengths.sum())
        values = to_arrow(codes[places], all_true(len(places)), FieldType.STRING, strings)
        lists = pa.ListArray.from_arrays(pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)), values)
        made.append(strings.intern(listing.format_lists(lists))[0])
    return np.concatenate(made)


def _pieces(sizes: Int64s) -> Iterator[tuple[int, int]]:
    """Yields (begin, end) of consecutive pieces of entries with these sizes in bytes. A piece has at most OUTPUT_BYTES_MAX bytes,
    or is one larger entry.
    """
    ends, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        done = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + OUTPUT_BYTES_MAX, side="right")))
        yield begin, end
        begin = end


def _allocate_group(width: int) -> components.Group:
    lanes = np.empty((1, width), np.int64)
    return components.Group(lanes, lanes.view(np.float64), np.empty((1, width), np.bool_))


def _scratch() -> exact.Scratch:
    words = exact.PRODUCT_LIMBS + 1
    number, other, square = (np.empty(length, np.uint64) for length in (words, words, 2 * words))
    return exact.Scratch(number, other, square, np.empty((1, exact.NUMERATOR_LIMBS + 1), np.int64))


class OrderedValues(DerivedPart):
    """Ordered multisets of values, for extremes, percentiles and modes. A row is a value of a set, with its multiplicity.

    A set is identified by the key of its group and by a number. The key has `keys` columns; those listed in `codes` hold codes of
    strings. `kinds` and `asked` have the kind of values and the queries of each set, as in `windows.aggregate.loops.values`.

    Trees over the rows are derived and in no snapshot; so are the heaps of sets that need extremes alone. After a restore they have
    only the rows that were loaded: call `load_group_sets` before a set is changed or queried. A kernel changes `trees`. Call
    `make_room` when it requests room, and `settle` at its end.
    """

    def __init__(self, keys: int, codes: tuple[int, ...], kinds: Int64s, asked: Int64s) -> None:
        self._keys, self._codes, self._kinds, self._asked = keys, codes, kinds, asked
        width = keys + OF_SET
        shape = Shape(
            width,
            tuple(range(width - 1)),
            (*codes, width - CODE),
            tuple(range(keys + 1)),
            unloaded_lookup_fields=tuple(range(keys)),
        )
        self.rows = Relation(shape, reading=LoadMode.AT_USE)
        self._strings: StringTable | None = None
        """The strings of a restored state, whose codes the rows in the store have; None without a restore."""
        self._nodes = np.empty((0, NODES_WIDTH), np.int64)
        self._roots = empty_index()
        self._probe = np.zeros((1, width), np.int64)
        self._is_built = True

    @property
    def pinned_bytes(self) -> int:
        return index_bytes(self._roots) + 8 * NODES_WIDTH * self.rows.pages.slots_used

    def load_group_sets(self, groups: Int64s) -> None:
        """Loads the sets of the groups with these keys, if a restore left them in the store. Call it before they are changed or
        queried.
        """
        self.rows.pages.load_matches(groups)

    def prepare_kernel(self, strings: StringTable) -> None:
        """Prepares for a kernel: inserts rows that were loaded into the trees, and records moved rows from now on."""
        self._insert_loaded_rows(strings)
        self.rows.pages.record_moves()

    def load_page_to_clear(self, strings: StringTable) -> None:
        """Loads the sparse page whose rows the next change may move, if it is unloaded, and inserts its rows into the trees."""
        load_page_to_clear(self.rows.pages)
        self._insert_loaded_rows(strings)

    def load_some_pages(self, rows: int) -> bool:
        is_left = self.rows.load_some_pages(rows)
        if self._strings is not None:
            self._insert_loaded_rows(self._strings)
        return is_left

    def trees(self, strings: StringTable) -> Trees:
        """Returns the arguments of kernels; call it again after each `make_room`, which replaces arrays."""
        places, data = strings.texts
        return Trees(self.rows.pages.rows, self._nodes, self._roots, self._kinds, self._asked, places, data, self._probe)

    def make_room(self) -> None:
        """Makes room for at least one more value."""
        self.rows.pages.make_room()
        self._roots = grown_index(self._roots)
        self._follow_pages()

    def settle(self) -> None:
        """Ends the changes of a kernel: releases old versions of rows."""
        self.rows.release_outputs()

    def load_pages(self, columns: Columns, pages: Mapping[int, Columns]) -> None:
        self._strings = pages.strings if isinstance(pages, SnapshotRowPages) else None
        super().load_pages(columns, pages)

    def _loaded(self) -> None:
        self._is_built = False

    def __reduce__(self) -> tuple[Callable[..., OrderedValues], tuple[object, ...]]:
        return _received, (self._keys, self._codes, self._kinds, self._asked, self.rows)

    def _follow_pages(self) -> None:
        """Extends the nodes of the trees to all slots of the pages."""
        length = len(self.rows.lanes)
        if len(self._nodes) < length:
            self._nodes = longer(self._nodes, len(self._nodes), length)

    def _insert_loaded_rows(self, strings: StringTable) -> None:
        """Inserts rows that were loaded since the last call into the trees; after a restore, all rows in memory."""
        if self._is_built:
            self._insert_rows(self.rows.pages.pop_loaded_slots(), strings)
            return
        self._roots, self._is_built = empty_index(), True
        self._insert_rows(self.rows.pages.loaded_slots_in_order(), strings)
        self.rows.pages.record_loaded_slots()

    def _insert_rows(self, slots: Int64s, strings: StringTable) -> None:
        """Inserts the rows at `slots` into the trees. Texts are ordered with `strings`, since a snapshot stores them apart from
        rows.
        """
        self._follow_pages()
        at = 0
        while at < len(slots) and (at := int(fill_trees(self.trees(strings), slots, np.int64(at)))) < len(slots):
            self._roots = grown_index(self._roots)


def _received(keys: int, codes: tuple[int, ...], kinds: Int64s, asked: Int64s, rows: Relation) -> OrderedValues:
    values = OrderedValues(keys, codes, kinds, asked)
    values.rows = rows
    values._loaded()
    values._register_derived()
    return values
