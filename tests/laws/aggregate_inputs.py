"""Inputs of the kernels of an aggregate for the law Twin: a random changelog of rows of a few groups, in small pages."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from hotspare.flow.plan import compile_plan
from hotspare.model.events import Opcode
from hotspare.projects.load import load_text
from hotspare.rows.chunk import Chunk, Timeline
from hotspare.table.loops import slots
from hotspare.table.multi_index import MultiIndex
from hotspare.table.pages import Page
from hotspare.table.relation import Relation
from hotspare.table.strings import StringTable
from hotspare.windows.aggregate.groups import OrderedValues
from hotspare.windows.aggregate.loops import aggregate as k
from hotspare.windows.aggregate.loops import values as v
from hotspare.windows.shared.contract import Operator

Args = tuple[Any, ...]
PROJECT = """
project: p
queries:
  q:
    windows:
      rows: {type: source, opcodes: any, schema: "id*:int64,g:int64,x:double,n:int64,m:money"}
      groups: {type: aggregate, schema: "g*:int64,u:double,v:double,w:int64,x:double,y:double,z:double,nth:int64,cat:string,
                 a:double,b:double,c:double,d:double,e:double,f:double,h:double,i:int64,j:money,k:int64,l:int64,m:double,
                 n:int32,o:double,p:double,q:double,r:double,s:double,t:int64,least:money,greatest:money",
               outputs: {u: ESP_aMin(x), v: ESP_aMax(x), w: ESP_aCountDistinct(n), x: ESP_aMode(x), y: "percentile(x, 0.4)",
                         z: "ESP_aLag(x, 1)", nth: "nth(n, 2)", cat: "ESP_aCat(n, ',')", a: ESP_aSum(x), b: ESP_aAve(x),
                         c: ESP_aCSS(x), d: ESP_aVariance(x), e: ESP_aStd(x), f: ESP_aCV(x), h: "ESP_aWAve(n, x)",
                         i: ESP_aSum(n), j: ESP_aSum(m), k: ESP_aCount(), l: ESP_aCountNull(x), m: ESP_aLast(x),
                         n: ESP_aLastOpcode(), o: ESP_aLastNonDelete(x), p: "ESP_aSumTimed(x, 1)", q: "ESP_aMinTimed(x, 1)",
                         r: "ESP_aMaxTimed(x, 1)", s: ESP_aStd(n), t: ESP_aCountOpcodes(1),
                         least: ESP_aMin(m), greatest: ESP_aMax(m)}}
    edges: [rows -> groups]
"""
OF_TEXTS = """
project: p
queries:
  q:
    windows:
      rows: {type: source, opcodes: any, schema: "id*:int64,g:int64,s:string"}
      groups: {type: aggregate, schema: "g*:int64,a:string,b:string,c:string,d:string",
               outputs: {a: ESP_aMin(s), b: ESP_aMode(s), c: "ESP_aMinTimed(s, 1)", d: "ESP_aMaxTimed(s, 2)"}}
    edges: [rows -> groups]
"""
OF_NUMBERS = """
project: p
queries:
  q:
    windows:
      rows: {type: source, opcodes: any, schema: "id*:int64,g:int64,x:double,n:int64,m:money"}
      groups: {type: aggregate, schema: "g*:int64,a:double,b:double,c:double,d:double,e:int64,f:money,g1:int64,h:int64,i:double",
               outputs: {a: ESP_aSum(x), b: ESP_aAve(x), c: ESP_aMin(x), d: ESP_aMax(x), e: ESP_aSum(n), f: ESP_aSum(m),
                         g1: ESP_aCount(), h: ESP_aCountOpcodes(1), i: ESP_aStd(x)}}
    edges: [rows -> groups]
"""
"""A project in which a group may keep all its state in its row."""
OF_EVICTIONS = OF_NUMBERS.replace(
    "      groups:", "      newest: {type: copy, retention: {bycount_sliding: 2, by: [g], evict: before}}\n      groups:"
).replace("rows -> groups", "rows -> newest -> groups")
_I, _UB, _D, _DR = (Opcode.INSERT, 1), (Opcode.UPDATE_BLOCK, 1), (Opcode.DELETE, 1), (Opcode.DELETE, 4)
EVICTIONS = [
    *((0, _I, 0, 0), (1, _I, 1, 0), (2, _I, 2, 1)),
    *((3, _DR, 0, 0), (3, _I, 3, 0)),
    *((4, _DR, 1, 0), (4, _UB, 2, 0), (4, _D, 2, 1)),
    *((5, _DR, 3, 0), (5, _UB, 2, 0), (5, _D, 2, 0)),
    *((6, _DR, 2, 0), (6, _I, 4, 1)),
]
"""Rank, opcode with flags, key and group: evictions for an insert, a row that changes its group, an update, and another group."""
TEXTS = pa.array(["b", "a", "ba", "b\u00e9", ""])
DOUBLES = np.array([0.1, -0.1, 12.5, 3.0, -0.0, 7e5, 1e22, 1e300, -1e300, 1e308, 5e-324, 1e-200, np.nan, np.inf, -np.inf])
WHOLE = np.array([0, 1, -5, 2**62, -(2**63), 2**63 - 1])


def operator_of(project: str, page_slots: int = 2) -> tuple[Operator, Page]:
    plan = compile_plan(load_text(project).resolved)
    (node,) = [node for node in plan.nodes if node.window.endswith("groups")]
    page = node.operator.open()
    for part in page.parts.values():
        rows = part.rows if isinstance(part, OrderedValues | MultiIndex) else part
        if isinstance(rows, Relation):
            rows.pages.page_slots = page_slots
            rows.pages.rows.state[[slots.PAGE_SLOTS, slots.SPARE]] = page_slots, 0
    return node.operator, page


def some_events(random: np.random.Generator, count: int, plainly: int) -> Chunk:
    """Upserts and deletes of keys 0 to 31; the first `plainly` doubles are small."""
    opcode = random.choice(np.array([Opcode.UPSERT, Opcode.UPSERT, Opcode.SAFE_DELETE], np.uint8), count)
    lanes = np.zeros((count, 5), np.int64)
    lanes[:, 0], lanes[:, 1] = random.integers(0, 32, count), random.integers(0, 2, count)
    some = DOUBLES[random.integers(0, len(DOUBLES), count)]
    some[:plainly] = DOUBLES[random.integers(0, 6, plainly)]
    lanes.view(np.float64)[:, 2] = some
    lanes[:, 3], lanes[:, 4] = WHOLE[random.integers(0, len(WHOLE), count)], random.integers(-9, 9, count)
    valid = np.column_stack([np.ones((count, 2), np.bool_), random.random((count, 3)) < 0.9])
    return Chunk(np.arange(count), opcode, np.ones(count, np.uint8), lanes * valid, valid)


def _texts(random: np.random.Generator, count: int, strings: StringTable) -> Chunk:
    """Returns a chunk as `some_events`, with texts."""
    chunk, codes = some_events(random, count, 0), strings.intern(TEXTS)[0]
    lanes = chunk.lanes[:, :3].copy()
    lanes[:, 2] = codes[random.integers(0, len(codes), count)]
    valid = chunk.valid[:, :3].copy()
    return Chunk(chunk.rank, chunk.opcode, chunk.flags, lanes * valid, valid)


def evictions() -> Chunk:
    rank, what, key, group = zip(*EVICTIONS, strict=True)
    lanes, flags = np.zeros((len(rank), 5), np.int64), np.array([flag for _, flag in what], np.uint8)
    lanes[:, 0], lanes[:, 1] = key, group
    lanes[:, 3] = np.array(key) * 3
    return Chunk(np.array(rank), np.array([opcode for opcode, _ in what], np.uint8), flags, lanes, np.ones_like(lanes, np.bool_))


def _calls(name: str) -> list[Args]:
    """Returns the arguments of each call of a kernel while chunks are processed."""
    (operator, page), (of_texts, its_page) = operator_of(PROJECT), operator_of(OF_TEXTS)
    of_numbers, other_page = operator_of(OF_NUMBERS, 8)
    random, strings, calls = np.random.default_rng(20_261_123), StringTable(), list[Args]()
    called = getattr(k, name)

    def tapped(*args: Any) -> Any:
        calls.append(copy.deepcopy(args))
        return called(*args)

    setattr(k, name, tapped)
    try:
        for batch in range(6):
            time_us = 400_000 * np.arange(40) + 16_000_000 * batch
            timeline = Timeline(time_us, _NO_BEATS)
            operator.process_chunks(page, [some_events(random, 40, 40 - 20 * batch if batch < 2 else 0)], timeline, strings)
            of_texts.process_chunks(its_page, [_texts(random, 40, strings)], timeline, strings)
            numbers = some_events(random, 40, 40 if batch < 4 else 36)
            numbers.lanes[:, 1] = numbers.lanes[:, 0] % 8
            of_numbers.process_chunks(other_page, [numbers], timeline, strings)
        of_evictions, evicting = operator_of(OF_EVICTIONS)
        of_evictions.process_chunks(evicting, [evictions()], Timeline(np.zeros(8, np.int64), _NO_BEATS), strings)
    finally:
        setattr(k, name, called)
    return calls


_NO_BEATS = np.empty(0, np.int64)


def aggregate() -> Iterator[Args]:
    """Yields arguments, some with pages that may be absent, so that the kernel asks before it clears one."""
    for at, args in enumerate(_calls("run_aggregate")):
        if at % 3 == 2:
            yield copy.deepcopy(args)
            args[-1].counts[k.ASKS] = k.ASK
        yield args


def gather_groups() -> Iterator[Args]:
    yield from _calls("gather_groups")


def fill_trees() -> Iterator[Args]:
    """Yields values of three sets, two of numbers and one of texts, without trees or heaps."""
    random, strings = np.random.default_rng(7), StringTable()
    codes = strings.intern(TEXTS)[0]
    for count, compare_doubles, of_texts in ((1, v.PLACES, v.MODES), (30, v.PLACES, v.MODES), (30, v.EXTREMES, v.EXTREMES)):
        kinds, asked = np.array([v.PLAIN, v.DOUBLE, v.TEXT]), np.array([v.EXTREMES, compare_doubles, of_texts])
        rows = np.array([[n % 2, n % 3, n, 0, n % 4 + 1] for n in random.permutation(count)])
        rows[:, 3] = np.where(rows[:, 1] == v.TEXT, codes[rows[:, 2] % len(codes)], 0)
        rows[:, 2] = np.where(rows[:, 1] == v.TEXT, 0, rows[:, 2])
        values = OrderedValues(1, (), kinds, asked)
        chunk = Chunk(np.arange(count), np.full(count, Opcode.UPSERT, np.uint8), np.ones(count, np.uint8), rows, rows == rows)
        values.rows.change(chunk, Timeline(np.zeros(count, np.int64), _NO_BEATS))
        values.load_pages(values.columns(), {page.number: page.columns() for page in values.row_pages()})
        values._follow_pages()
        yield values.trees(strings), values.rows.pages.slots_in_arrival_order(), np.int64(0)
