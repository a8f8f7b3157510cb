"""Law of joins: folded, the outputs of a join are the join of both sides' rows, after every event; however it is cut (SPEC A27)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.tuning import Tuning
from hotspare.table.loops.multi_index import MOVES
from hotspare.table.multi_index import MultiIndex
from hotspare.windows.join.operator import JoinOperator
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws.model_windows import OPCODES, SECOND, Event, Index, Refused, Row
from tests.laws.test_cut import check_page_sizes, cut, fed, in_batches
from tests.laws.test_relations import as_text
from tests.tunings import tunings

pytestmark = pytest.mark.law

SHAPES = {
    ("inner", "x", "id"): "l",
    ("inner", "id", "x"): "r",
    ("inner", "id", "id"): "l",
    ("inner", "x", "x"): "lr",
    ("inner", "s", "s"): "lr",
    ("leftouter", "x", "id"): "l",
    ("leftouter", "id", "id"): "l",
    ("rightouter", "id", "x"): "r",
    ("rightouter", "id", "id"): "r",
    ("fullouter", "id", "id"): "shared",
}
"""Kind and condition, and the side whose key identifies a joined row."""
PLACE = {"id": 0, "x": 1, "s": 2}


@dataclass(frozen=True)
class Join:
    """`once`: facts, the side that identifies rows, are joined once."""

    kind: str
    left: str
    right: str
    sources: tuple[str, str] = ("", "")
    edges: str = "left -> joined as left, right -> joined as right"
    more: str = ""
    once: bool = False

    @property
    def identity(self) -> str:
        return SHAPES[self.kind, self.left, self.right]

    @property
    def plan(self) -> Plan:
        return compile_plan(
            load_text(f"""
project: p
queries:
  q:
    windows:
      left: {{type: source, schema: "id*:int64,x:int64,s:string,at:stamp"{self.sources[0]}}}
      right: {{type: source, schema: "id*:int64,x:int64,s:string,at:stamp"{self.sources[1]}}}
      joined: {{type: join, kind: {self.kind}, conditions: {{{self.left}: {self.right}}}, publish: true{self.more},
               outputs: {{ls: l_s, rx: r_x, rs: r_s, "sum:int64": "6 div coalesce(l_x, 1) + coalesce(r_x, 0)"}}}}
    edges: [{self.edges}]
""").resolved
        )

    def row(self, left: Row | None, right: Row | None) -> tuple[Any, ...] | None:
        """Returns the joined row, its key first; None if its expression fails."""
        x = 1 if left is None or left[1] is None else left[1]
        if x == 0:
            return None
        nothing = (None,) * 4
        a, b = left or nothing, right or nothing
        key = {"l": (a[0],), "r": (b[0],), "lr": (a[0], b[0]), "shared": (a[0] if left else b[0],)}[self.identity]
        return (key, a[2], b[1], b[2], int(6 / x) + (b[1] or 0))

    def meets(self, left: Row, right: Row) -> bool:
        value = left[PLACE[self.left]]
        return value is not None and value == right[PLACE[self.right]]

    def rows(self, left: list[Row], right: list[Row]) -> dict[Any, Any]:
        pairs: list[tuple[Row | None, Row | None]] = [(a, b) for a in left for b in right if self.meets(a, b)]
        if self.kind in ("leftouter", "fullouter"):
            pairs += [(a, None) for a in left if not any(self.meets(a, b) for b in right)]
        if self.kind in ("rightouter", "fullouter"):
            pairs += [(None, b) for b in right if not any(self.meets(a, b) for a in left)]
        made = [row for row in (self.row(a, b) for a, b in pairs) if row is not None]
        assert len({row[0] for row in made}) == len(made)
        return {row[0]: row for row in made}


@dataclass
class Plain:
    """Both sides' rows, and the joined rows, event by event."""

    join: Join
    sides: dict[str, Index] = field(default_factory=lambda: {"left": Index(), "right": Index()})
    joined: dict[Any, Any] = field(default_factory=dict)

    def take(self, side: str, event: Event) -> None:
        is_stream_record = "insert-only" in self.join.sources[side == "right"]
        if is_stream_record and event.opcode != "I":
            return
        is_fact = self.join.once and side == ("left" if self.join.identity == "l" else "right")
        if is_fact and is_stream_record and (event.row[0],) not in self.joined:
            self.sides[side].rows.pop(event.row[0], None)  # only emitted inserts are known
        try:
            resolved = self.sides[side].take(event, 0)
        except Refused:
            return
        left, right = ([row for row, _ in self.sides[name].rows.values()] for name in ("left", "right"))
        if not self.join.once:
            self.joined = self.join.rows(left, right)
        elif is_fact and resolved:
            self._join_once(side, resolved[0], left, right)

    def _join_once(self, side: str, event: Event, left: list[Row], right: list[Row]) -> None:
        key = (event.row[0],)
        self.joined.pop(key, None)
        if event.opcode != "D":
            made = self.join.rows([event.row], right) if side == "left" else self.join.rows(left, [event.row])
            self.joined |= {each: row for each, row in made.items() if each == key}


Script = list[tuple[int, str, list[Event]]]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    ids, numbers, texts = ([1, 2, 3, None], [None, 0, 1, 2, 3], [None, "a", "b"])
    row = st.tuples(st.sampled_from(ids), st.sampled_from(numbers), st.sampled_from(texts), st.none())
    flags = st.sampled_from([frozenset("N")] * 4 + [frozenset("NP")])
    event = st.builds(Event, st.sampled_from(["I", "I", "I", "P", "P", "U", "D", "SD"]), flags, row)
    messages = draw(st.lists(st.tuples(st.sampled_from(["left", "right"]), st.lists(event, min_size=1, max_size=4)), max_size=14))
    return [(SECOND + i, side, events) for i, (side, events) in enumerate(messages)]


EDGES = ("left -> joined as left, right -> joined as right", "right -> joined as right, left -> joined as left")
OF_SOURCES = ("", ", index: empty, opcodes: any", ", index: empty, opcodes: insert-only")


@st.composite
def joins(draw: st.DrawFn) -> Join:
    kind, left, right = draw(st.sampled_from(sorted(SHAPES)))
    sources = draw(st.sampled_from(OF_SOURCES)), draw(st.sampled_from(OF_SOURCES))
    return Join(kind, left, right, sources, draw(st.sampled_from(EDGES)))


@st.composite
def joins_once(draw: st.DrawFn) -> Join:
    join = draw(joins().filter(lambda each: each.identity in ("l", "r")))
    side = "left" if join.identity == "l" else "right"
    return replace(join, once=True, more=draw(st.sampled_from([", regenerates: never", f", streaming: {side}"])))


@st.composite
def joins_at_once(draw: st.DrawFn) -> Join:
    """Draws joins of facts that are inserts, whose outputs are kept in no index."""
    join, facts = draw(joins_once()), ", index: empty, opcodes: insert-only"
    sources = (facts, join.sources[1]) if join.identity == "l" else (join.sources[0], facts)
    return replace(join, sources=sources, more=f"{join.more}, index: empty")


def case_of(plan: Plan, script: Script) -> Case:
    messages = [Message(time, side, " | ".join(map(as_text, events))) for time, side, events in script]
    return Case(plan, (*messages, Message(9 * SECOND, "", "")), ())


def decoded(case: Case) -> pa.RecordBatch:
    return Head.from_plan(case.plan).decode(pa.concat_batches(raw_batches(case)))


def key_of(join: Join, row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["id"], row["r_id"]) if join.identity == "lr" else (row["id"],)


def check(join: Join, plan: Plan, script: Script) -> None:
    outputs = Pipeline.fresh(plan).feed(decoded(case_of(plan, script)))
    made: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for row in outputs["q/joined"].to_pylist() if "q/joined" in outputs else ():
        made.setdefault((row["hs:topic"], row["hs:offset"], row["hs:index"]), []).append(row)
    plain, rows = Plain(join), dict[Any, Any]()
    offsets = {"left": 0, "right": 0}
    for _, side, events in script:
        for index, event in enumerate(events):
            plain.take(side, event)
            fold(join, rows, made.pop((int(side == "right"), offsets[side], index), []))
            assert rows == plain.joined, f"after {side} {event}"
        offsets[side] += 1
    assert made == {}


def fold(join: Join, rows: dict[Any, Any], events: list[dict[str, Any]]) -> None:
    """Applies the outputs; every event must be possible, and a deleted row must equal the stored one."""
    replaced: Any = None
    for each in events:
        row = (key_of(join, each), each["ls"], each["rx"], each["rs"], each["sum"])
        opcode = OPCODES[each["hs:opcode"]]
        if opcode == "I":
            assert row[0] not in rows
            rows[row[0]] = row
        elif opcode == "UB":
            replaced, rows[row[0]] = rows[row[0]], row
        else:
            assert opcode == "D"
            was = rows.pop(row[0]) if replaced is None else replaced
            assert was == row
            replaced = None
    assert replaced is None


@examples(2.5)
@given(joins(), scripts())
def test_joins(join: Join, script: Script) -> None:
    check(join, join.plan, script)


@examples(1.3)
@given(joins_once(), scripts())
def test_joins_once(join: Join, script: Script) -> None:
    """A later change of the dimension does not change earlier joined rows."""
    check(join, join.plan, script)


@examples(0.7)
@given(st.one_of(joins(), joins_once()), scripts(), st.lists(st.integers(0, 60), max_size=60), st.integers(1, 5))
def test_cut_and_parts(join: Join, script: Script, places: list[int], extra_rows_max: int) -> None:
    """Law Cut: bad events included, and with one output at a time."""
    case = case_of(join.plan, script)
    rows = decoded(case)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole


@examples(1.3)
@given(joins_at_once(), scripts(), st.lists(st.integers(0, 60), max_size=60))
def test_facts_that_meet_at_once(join: Join, script: Script, places: list[int]) -> None:
    """Their outputs equal those of one after the other, however they are cut; bad events included."""
    case, one_by_one = case_of(join.plan, script), case_of(join.plan, script)
    for operator in operators_of(one_by_one.plan):
        assert operator._meets_at_once
        operator._meets_at_once = False
    rows = decoded(case)
    assert fed(case, cut(rows, places)) == fed(one_by_one, [rows])


def operators_of(plan: Plan) -> list[JoinOperator]:
    return [node.operator for node in plan.nodes if isinstance(node.operator, JoinOperator)]


@examples(0.35)
@given(st.one_of(joins(), joins_once()), scripts(), st.integers(0, 60))
def test_restart(join: Join, script: Script, place: int) -> None:
    """A snapshot that is written while the engine continues, and restored, continues with the same bits."""
    check_restart(case_of(join.plan, script), place)


@examples(0.4)
@given(st.one_of(joins(), joins_once()), scripts(), st.lists(st.integers(0, 60), max_size=12), tunings())
def test_page_sizes(join: Join, script: Script, places: list[int], tuning: Tuning) -> None:
    """Outputs do not depend on the page size, nor on the places to which rows are moved."""
    case = case_of(join.plan, script)
    check_page_sizes(case, decoded(case), places, tuning)


@pytest.mark.parametrize(("kind", "left", "right"), [("inner", "x", "x"), ("leftouter", "x", "id"), ("fullouter", "id", "id")])
def test_rows_that_are_moved_while_others_meet_them(kind: str, left: str, right: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are cleared in the middle of a batch whose later events meet the rows that were in them."""
    moved, settle, random = [], MultiIndex.settle, np.random.default_rng(3)

    def counted(index: MultiIndex) -> None:
        moved.append(int(index.lists.counts[MOVES]))
        settle(index)

    monkeypatch.setattr(MultiIndex, "settle", counted)
    messages = [
        Message(SECOND, side, " | ".join(f"P,N,{key},{x},a," for key, x in random.integers((0, 1), (40, 9), (40, 2)).tolist()))
        for side in ["left", "right"] * 6
    ]
    case = Case(Join(kind, left, right).plan, (*messages, Message(9 * SECOND, "", "")), ())
    check_page_sizes(case, decoded(case), [50, 130, 333], Tuning(page_slots=2, spare_slots=0, late_index_rows_max=2))
    assert sum(moved) > 100


def check_restart(case: Case, place: int) -> None:
    """Restores a snapshot taken between two messages; rows waiting in the merge are read again."""
    raw = raw_batches(case)
    place %= len(raw) + 1
    head, none = Head.from_plan(case.plan), raw[0].slice(0, 0)
    first, rest = (head.decode(pa.concat_batches([none, *part])) for part in (raw[:place], raw[place:]))
    pipeline = Pipeline.fresh(case.plan)
    pipeline.feed(first)
    frozen = pipeline.freeze()
    expected = pipeline.feed(rest)
    restored = Pipeline.restore(case.plan, frozen.header, dict(frozen.pages()))
    restored.collect_all_strings()
    following = restored.next_offsets
    again = [restored.feed(unread(piece, following)) for piece in (first, rest)]
    assert tables(again) == tables([expected])


def tables(outputs: list[dict[str, pa.RecordBatch]]) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {}
    for each in outputs:
        for name, batch in each.items():
            made.setdefault(name, []).extend(batch.to_pylist())
    return made


def unread(rows: pa.RecordBatch, following: dict[tuple[int, int], int]) -> pa.RecordBatch:
    topic, offset = rows.column("topic").to_pylist(), rows.column("offset").to_pylist()
    return rows.filter(pa.array([o >= following.get((t, 0), 0) for t, o in zip(topic, offset, strict=True)], pa.bool_()))


def test_one_event_that_meets_very_many_rows() -> None:
    """It is processed in parts of bounded size, with complete outputs."""
    join = Join("inner", "x", "id", ("", ""))
    facts = " | ".join(f"I,N,{i},7,a," for i in range(3000))
    tick, last = Message(SECOND, "", ""), Message(9 * SECOND, "", "")
    messages = (Message(SECOND, "left", facts), tick, Message(2 * SECOND, "right", "I,N,7,1,b,"), last)
    case = Case(join.plan, messages, ())
    rows = decoded(case)
    whole = fed(case, [rows])
    assert whole[0]["q/joined"].num_rows == 3000
    pipeline = Pipeline.fresh(case.plan, extra_rows_max=100)
    pipeline.feed(rows.slice(0, 3002))
    sizes = [part["q/joined"].num_rows for part in pipeline.compute_parts(rows.slice(3002)) if "q/joined" in part]
    assert sum(sizes) == 3000
    assert max(sizes) <= 3 + 100


def test_the_law_bites() -> None:
    """A left outer join that loses rows without a match is found."""
    from hotspare.windows.join import operator

    join, rules_of = Join("leftouter", "x", "id"), operator._rules
    script = [(SECOND, "left", [Event("I", frozenset("N"), (1, 1, "a", None))])]
    check(join, join.plan, script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "_rules", lambda *given: rules_of(*given) * (np.arange(6) != operator.k.KEEPS_OWN))
        broken = join.plan
    with pytest.raises(AssertionError):
        check(join, broken, script)
