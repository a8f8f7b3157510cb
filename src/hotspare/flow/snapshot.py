"""Encodes snapshots: a page is a small JSON index and flat little-endian buffers, the header is JSON.

A page contains the strings that it uses, numbered by their first occurrence in the page, so it can be read, moved and compared
alone. Equal states have equal bytes. Row pages of a paged part are separate pages, named `PAGE/PART/NUMBER`; the pieces of key
filters are named likewise, with the piece before the number. A row page that the store already has need not be written again, even
if some of its rows were deleted since. Checksums belong to the store; this module
checks everything that could make a restored engine wrong or crash.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from hotspare.base.call_place import Decision
from hotspare.base.errors import RESET_HINT, ProjectChanged, SnapshotDamaged, SnapshotFormat
from hotspare.flow.plan import Plan
from hotspare.flow.project_state import Passed, State, StreamState
from hotspare.flow.semantics import SEMANTICS, refuse_other_semantics
from hotspare.flow.step import fresh_state
from hotspare.rows.chunk import Int64s
from hotspare.table.memory import NO_BUDGET, PageCache
from hotspare.table.pages import Column, Columns, FilterPiece, KeyFilterPage, LazyPart, Page, Paged, RowPage, WholePart
from hotspare.table.strings import Dictionary, FrozenStrings, StringTable
from hotspare.table.unloaded import SnapshotRowPages

FORMAT = 1
"""The version of headers and pages; any other is refused."""
_MAGIC = b"hotspare page\n"
_ALIGNMENT = 64
_DTYPES = frozenset({"<i8", "<f8", "<u4", "|b1", "|u1"})
_DICTIONARY = "strings"
_DECISIONS = "decisions"
"""The key of the header with the decisions that were applied."""


@dataclass(frozen=True, slots=True)
class RowPageContent:
    """Implements `stores.contract.Content` for a row page, which is encoded on request."""

    part: str
    page: RowPage
    strings: FrozenStrings

    @property
    def store_key(self) -> object:
        return self.page.store_key

    def set_store_key(self, known: object) -> None:
        self.page.set_store_key(known)

    def encode(self) -> bytes:
        columns, strings = self.page.content()
        return _encode(_of_part(self.part, columns), self.strings if strings is None else strings)


@dataclass(frozen=True, slots=True)
class KeyFilterContent:
    """Implements `stores.contract.Content` for a piece of a key filter, which is encoded on request."""

    part: str
    page: KeyFilterPage
    strings: FrozenStrings

    @property
    def store_key(self) -> object:
        return self.page.store_key

    def set_store_key(self, known: object) -> None:
        self.page.set_store_key(known)

    def encode(self) -> bytes:
        return _encode(_of_part(self.part, self.page.columns(self.strings.hashes)), self.strings)


def _of_part(part: str, columns: Columns) -> Columns:
    return {f"{part}/{name}": column for name, column in columns.items()}


@dataclass(frozen=True, slots=True)
class FrozenProjectState:
    """A state at a batch boundary: the encoded `header`, and the frozen pages by name with their `strings`. Another thread may
    consume `contents` or `pages` while the engine continues.
    """

    header: bytes
    frozen_pages: dict[str, Page]
    strings: FrozenStrings

    def contents(self) -> Iterator[tuple[str, bytes | RowPageContent | KeyFilterContent]]:
        """Yields the name and content of every page. Windows' pages are encoded bytes; row pages and key filters are encoded when
        the caller calls `encode`."""
        for name in sorted(self.frozen_pages):
            page = self.frozen_pages[name]
            yield name, encode_page(page, self.strings)
            for part_name in sorted(page.parts):
                part = page.parts[part_name]
                for rows in part.row_pages() if isinstance(part, Paged) else ():
                    yield f"{name}/{part_name}/{rows.number}", RowPageContent(part_name, rows, self.strings)
                for keys in part.key_filters() if isinstance(part, LazyPart) else ():
                    yield f"{name}/{part_name}/{keys.piece.value}{keys.number}", KeyFilterContent(part_name, keys, self.strings)

    def pages(self) -> Iterator[tuple[str, bytes]]:
        """Yields the name and encoded bytes of every page, including row pages that a store already has."""
        for name, content in self.contents():
            yield name, content if isinstance(content, bytes) else content.encode()


def freeze(plan: Plan, state: State, only: Container[str] | None = None) -> FrozenProjectState:
    """Returns a frozen copy of the state. The copy shares the state's buffers copy-on-write, so freezing costs very little. `only`:
    freezes just the pages with these names."""
    return FrozenProjectState(
        header=_header(plan, state),
        frozen_pages={name: page.freeze() for name, page in state.pages.items() if page.parts and (only is None or name in only)},
        strings=state.strings.freeze(),
    )


def restore(
    plan: Plan, header: bytes, pages: Mapping[str, bytes], residence: PageCache = NO_BUDGET, only: Container[str] | None = None
) -> State:
    """Returns the state of a snapshot. Pages are requested one after the other, so `pages` need not be in memory. `only`: restores
    just the pages with these names; other windows remain empty. Raises SnapshotFormat, ProjectChanged or SnapshotDamaged;
    propagates errors of `pages`."""
    state = fresh_state(plan, residence=residence)
    with _raising_damage():
        _read_header(plan, state, json.loads(header))
        stateful = {name: page for name, page in state.pages.items() if page.parts}
        of_rows = _row_pages_of(pages, stateful)
        # pinned pages first: texts of the others may be evicted at once
        for name, page in sorted(stateful.items(), key=lambda each: not each[1].is_pinned):
            if only is not None and name not in only:
                continue
            if name not in pages:
                raise SnapshotDamaged("the snapshot has other pages than the project", detail=f"it lacks {name}")
            decode_page(page, pages[name], of_rows[name], state.strings)
            state.lazy_parts += [part for part in page.parts.values() if isinstance(part, LazyPart) and part.has_unloaded_pages]
    return state


def _row_pages_of(pages: Mapping[str, bytes], windows: Collection[str]) -> dict[str, WindowRowPages]:
    """Returns the row pages and key filters of each window. Raises SnapshotDamaged if a page belongs to none of the windows."""
    found = {name: WindowRowPages(pages, {}) for name in windows}
    prefix, of_part = "", PartPages()
    for name in pages:
        if name in found:
            continue
        before, _, last = name.rpartition("/")
        if before != prefix:
            owner, _, part = before.rpartition("/")
            if owner not in found:
                raise SnapshotDamaged("the snapshot has other pages than the project", detail=f"it has {name}")
            prefix, of_part = before, found[owner].parts.setdefault(part, PartPages())
        if not of_part.add(name, last):
            raise SnapshotDamaged("the snapshot has other pages than the project", detail=f"it has {name}")
    return found


def _header(plan: Plan, state: State) -> bytes:
    content = {
        "format": FORMAT,
        "semantics": SEMANTICS,
        "project": plan.project_hash,
        "time_us": state.time_us,
        "heartbeat_time_us": state.heartbeat_time_us,
        "passed": [[*key, *astuple(state.passed[key])] for key in sorted(state.passed)],
        "clocks": [[*key, state.clocks[key]] for key in sorted(state.clocks)],
        _DECISIONS: [each.to_list() for each in state.decisions],
        "streams": {
            name: {"sequence": s.sequence, "digest": f"{s.digest:016x}", "last_id": s.last} for name, s in state.streams.items()
        },
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def check_header(plan: Plan, content: dict[str, Any]) -> None:
    """Raises SnapshotFormat or ProjectChanged if `plan` cannot continue the snapshot with this header."""
    check_origin(plan, content)
    refuse_other_semantics(int(content["semantics"]), "the snapshot")


def check_origin(plan: Plan, content: dict[str, Any]) -> None:
    """Raises SnapshotFormat or ProjectChanged if the header is not that of a snapshot of `plan`. Does not check the version of
    windows' semantics."""
    _check_format("the snapshot", content["format"])
    if content["project"] != plan.project_hash:
        raise ProjectChanged(
            "the snapshot belongs to another project",
            detail=f"its hash is {content['project']}, the hash of this project is {plan.project_hash}",
            hint=f"use a new --prefix, or {RESET_HINT}",
        )


def _check_format(what: str, found: object) -> None:
    if found != FORMAT:
        raise SnapshotFormat(
            f"{what} has format {found}, this hotspare reads {FORMAT}", hint="use the version of hotspare that wrote it"
        )


def _read_header(plan: Plan, state: State, content: dict[str, Any]) -> None:
    check_header(plan, content)
    state.time_us = int(content["time_us"])
    state.heartbeat_time_us = int(content["heartbeat_time_us"])
    state.passed = {(int(t), int(p)): Passed(int(o), int(i), int(us)) for t, p, o, i, us in content["passed"]}
    state.clocks = {(int(t), int(p)): int(us) for t, p, us in content["clocks"]}
    state.decisions = _decisions_in(content)
    for name, stream in content["streams"].items():
        if name not in state.streams:
            raise SnapshotDamaged(f"the snapshot has a stream {name} that the project does not have")
        last = stream["last_id"]
        topic, partition, offset, index, ordinal = map(int, last or [0] * 5)
        last_id = (topic, partition, offset, index, ordinal) if last is not None else None
        state.streams[name] = StreamState(int(stream["sequence"]), int(stream["digest"], 16), last_id)


def _decisions_in(content: dict[str, Any]) -> tuple[Decision, ...]:
    return tuple(Decision.from_list(each) for each in content.get(_DECISIONS, []))


def decisions_of(header: bytes) -> tuple[Decision, ...]:
    """Returns the decisions about calls of user code that the state of a snapshot with this header has applied, in the order of the
    rows. Raises SnapshotDamaged."""
    with _raising_damage():
        return _decisions_in(json.loads(header))


def encode_page(page: Page, strings: FrozenStrings) -> bytes:
    """Returns the bytes of a window's page in canonical form, without its row pages."""
    columns = {
        f"{part_name}/{name}": column
        for part_name in sorted(page.parts)
        for name, column in sorted(page.parts[part_name].columns().items())
    }
    return _encode(columns, strings)


def _encode(columns: Columns, known: FrozenStrings) -> bytes:
    """Returns the bytes of a page: the columns in order of their names, and the strings that they use."""
    buffers: list[tuple[str, npt.NDArray[Any], tuple[int, ...]]] = []
    used = [np.zeros(1, np.int64)]
    for name in sorted(columns):
        array, codes = columns[name].array, columns[name].codes
        used += [array[:, j] for j in codes]
        buffers.append((name, array, codes))
    distinct, first, local = np.unique(np.concatenate(used), return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    at = 1
    for i, (name, array, codes) in enumerate(buffers):
        if codes:
            array = array.copy()
            for j in codes:
                array[:, j] = rank[local[at : at + len(array)]]
                at += len(array)
            buffers[i] = name, array, codes
    strings = known.subset(distinct[np.argsort(first)])
    buffers += [(f"{_DICTIONARY}/data", strings.data, ()), (f"{_DICTIONARY}/offsets", strings.offsets, ())]
    return _pack(buffers)


def _pack(buffers: list[tuple[str, npt.NDArray[Any], tuple[int, ...]]]) -> bytes:
    index = [{"name": n, "dtype": a.dtype.str, "shape": list(a.shape), "codes": list(codes)} for n, a, codes in buffers]
    text = json.dumps({"format": FORMAT, "buffers": index}, sort_keys=True, separators=(",", ":")).encode()
    pieces = [_MAGIC, len(text).to_bytes(8, "little"), text]
    size = sum(len(piece) for piece in pieces)
    for _, array, _ in buffers:
        raw = np.ascontiguousarray(array).tobytes()
        pieces += [bytes(-size % _ALIGNMENT), raw]
        size += -size % _ALIGNMENT + len(raw)
    return b"".join(pieces)


def unpack(data: bytes) -> dict[str, Column]:
    """Returns the columns of an encoded page by name. String codes are indexes into this page's own strings. Raises
    SnapshotDamaged, SnapshotFormat, or a built-in error for damaged bytes."""
    begin = len(_MAGIC) + 8
    if data[: len(_MAGIC)] != _MAGIC:
        raise SnapshotDamaged("a page has an invalid beginning")
    length = int.from_bytes(data[len(_MAGIC) : begin], "little")
    index = json.loads(data[begin : begin + length])
    _check_format("a page", index["format"])
    at = begin + length
    columns: dict[str, Column] = {}
    for entry in index["buffers"]:
        if entry["dtype"] not in _DTYPES:
            raise SnapshotDamaged(f"a page holds a buffer of type {entry['dtype']}")
        dtype = np.dtype(entry["dtype"])
        shape = tuple(int(n) for n in entry["shape"])
        at += -at % _ALIGNMENT
        count = int(np.prod(shape, dtype=object))
        array = np.frombuffer(data, dtype, count, at).reshape(shape)
        columns[entry["name"]] = Column(array.copy(), tuple(int(j) for j in entry["codes"]))
        at += array.nbytes
    if at != len(data):
        raise SnapshotDamaged(f"a page has {len(data)} bytes, its index describes {at}")
    return columns


@runtime_checkable
class PagesInStore(Protocol):
    """Pages that remain in the store, so that they can be read at any later time. A mapping of pages in memory does not implement
    this."""

    def store_key_of(self, page: str) -> object:
        """Returns the value that the store passed to `Content.set_store_key` for this page."""

    def prefetch_pages(self, pages: Sequence[str]) -> None:
        """Announces that the caller will read these pages soon. Best effort."""


@dataclass(frozen=True, slots=True)
class PartPages:
    """The names of a part's row pages by number, and those of its key filters by piece and number."""

    rows: dict[int, str] = field(default_factory=dict)
    filters: Mapping[FilterPiece, dict[int, str]] = field(default_factory=lambda: {piece: {} for piece in FilterPiece})

    def add(self, name: str, last: str) -> bool:
        """Adds a page, given the last part of its name. Returns False if the name is not that of a row page or key filter."""
        if last.isdecimal():
            self.rows[int(last)] = name
            return True
        for piece, names in self.filters.items():
            number = last.removeprefix(piece.value)
            if number != last and number.isdecimal():
                names[int(number)] = name
                return True
        return False


@dataclass(frozen=True, slots=True)
class WindowRowPages:
    """The row pages and key filters of one window by part, read from `pages` on request."""

    pages: Mapping[str, bytes]
    parts: dict[str, PartPages]
    in_store: PagesInStore | None = field(init=False)
    """`pages` if it is a `PagesInStore`, else None. Checked once, because a protocol check is slow and there may be many pages."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "in_store", self.pages if isinstance(self.pages, PagesInStore) else None)

    def part(self, name: str) -> PartPages:
        return self.parts.get(name) or PartPages()

    def prefetch_pages(self, names: Sequence[str]) -> None:
        if self.in_store is not None:
            self.in_store.prefetch_pages(names)

    def store_key_of(self, name: str | None) -> object:
        return None if self.in_store is None or name is None else self.in_store.store_key_of(name)


class _Decoded(SnapshotRowPages):
    """The row pages of one part by number, decoded on request. Decoding a page adds its strings to the string table."""

    def __init__(self, part: str, of_rows: WindowRowPages, strings: StringTable, hold: Callable[[Int64s], object]) -> None:
        self._part, self._of_window, self._strings, self._hold = part, of_rows, strings, hold
        self._pages, self._names = of_rows.pages, of_rows.part(part)

    def __getitem__(self, number: int) -> Columns:
        with _raising_damage():
            return _decode(self._pages[self._names.rows[number]], [self._part], self._strings, self._hold)[self._part]

    def __contains__(self, number: object) -> bool:
        return number in self._names.rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._names.rows)

    def __len__(self) -> int:
        return len(self._names.rows)

    def page_with_strings(self, number: int) -> tuple[Columns, FrozenStrings]:
        with _raising_damage():
            columns = unpack(self._pages[self._names.rows[number]])
            dictionary = _dictionary(columns)
            _check_codes(columns, len(dictionary))
            return _of_parts(columns, [self._part])[self._part], dictionary.frozen()

    @property
    def is_lazy(self) -> bool:
        return self._of_window.in_store is not None

    @property
    def key_filter_numbers(self) -> Sequence[int]:
        return sorted(self._names.filters[FilterPiece.OUTLINE]) if self.is_lazy else []

    def key_filter_columns(self, piece: FilterPiece, number: int) -> Columns:
        with _raising_damage():
            columns = unpack(self._pages[self._names.filters[piece][number]])
            return _of_parts(columns, [self._part])[self._part]

    def prefetch_row_pages(self, numbers: Sequence[int]) -> None:
        names = self._names.rows
        self._of_window.prefetch_pages([names[number] for number in numbers if number in names])

    def prefetch_key_filters(self, piece: FilterPiece, numbers: Sequence[int]) -> None:
        names = self._names.filters[piece]
        self._of_window.prefetch_pages([names[number] for number in numbers if number in names])

    def row_page_store_key(self, number: int) -> object:
        return self._of_window.store_key_of(self._names.rows.get(number))

    def key_filter_store_key(self, piece: FilterPiece, number: int) -> object:
        return self._of_window.store_key_of(self._names.filters[piece].get(number))

    @property
    def strings(self) -> StringTable:
        return self._strings


@contextmanager
def _raising_damage() -> Iterator[None]:
    """Turns the errors that malformed pages cause into SnapshotDamaged."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, AttributeError) as error:
        raise unreadable("the snapshot", error) from error


def unreadable(what: str, error: Exception) -> SnapshotDamaged:
    """Returns the SnapshotDamaged that `what` cannot be read because of `error`. Content that is not text is probably encrypted, so
    the hint then names the key option."""
    hint = "if it is encrypted, name its key: ?key_file=/run/secrets/key" if isinstance(error, UnicodeDecodeError) else ""
    return SnapshotDamaged(f"{what} cannot be read", detail=str(error), hint=hint)


def _pin_nothing(codes: Int64s) -> None:
    """Pins no strings: the `hold` function for pages whose texts may be evicted."""


def decode_page(page: Page, data: bytes, of_rows: WindowRowPages, strings: StringTable) -> None:
    """Fills a fresh page from its canonical bytes `data` and from its row pages, and adds its strings to `strings`. Row pages in a
    store may be read later. Raises SnapshotDamaged or a built-in error for damaged bytes."""
    hold = strings.pin_codes if page.is_pinned else _pin_nothing
    for name, columns in _decode(data, list(page.parts), strings, hold).items():
        part, row_pages = page.parts[name], _Decoded(name, of_rows, strings, hold)
        if isinstance(part, Paged):
            part.load_pages(columns, row_pages)
        elif row_pages or not isinstance(part, WholePart):
            raise SnapshotDamaged("a page has row pages that it cannot have")
        else:
            part.load(columns)


def _decode(data: bytes, parts: list[str], strings: StringTable, hold: Callable[[Int64s], object]) -> dict[str, dict[str, Column]]:
    """Returns the columns of an encoded page by part. String codes are those of the table `strings`; they are also passed to
    `hold`."""
    columns = unpack(data)
    dictionary = _dictionary(columns)
    _check_codes(columns, len(dictionary))
    codes = strings.intern_dictionary(dictionary)
    hold(codes)
    for column in columns.values():
        for j in column.codes:
            column.array[:, j] = codes[column.array[:, j]]
    return _of_parts(columns, parts)


def _check_codes(columns: Columns, count: int) -> None:
    for column in columns.values():
        for j in column.codes:
            local = column.array[:, j]
            if len(local) and not 0 <= int(local.min()) <= int(local.max()) < count:
                raise SnapshotDamaged("a page names a string that it does not hold")


def _of_parts(columns: Columns, parts: list[str]) -> dict[str, dict[str, Column]]:
    """Groups a page's columns by part and returns them, without the columns of the page's strings."""
    found: dict[str, dict[str, Column]] = {name: {} for name in parts}
    for name, column in columns.items():
        part, _, buffer = name.rpartition("/")
        if part != _DICTIONARY:
            found[part][buffer] = column
    return found


def _dictionary(columns: dict[str, Column]) -> Dictionary:
    data = columns[f"{_DICTIONARY}/data"].array
    offsets = columns[f"{_DICTIONARY}/offsets"].array
    rising = len(offsets) >= 2 and offsets[0] == 0 and bool((np.diff(offsets) >= 0).all())
    if data.dtype != np.uint8 or offsets.dtype != np.int64 or not rising or int(offsets[-1]) != len(data):
        raise SnapshotDamaged("the strings of a page cannot be read")
    return Dictionary(data, offsets)
