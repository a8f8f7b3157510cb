"""Law of aggregates: folded, the outputs are the results over all rows of each group, to the bit, after every event (SPEC A28)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.tuning import Tuning
from tests.cases.case import Case, Message
from tests.examples import examples
from tests.laws import model_aggregates as model
from tests.laws.model_aggregates import Group, Groups, known
from tests.laws.model_windows import OPCODES, SECOND, Event, Index, Limits, Refused
from tests.laws.test_cut import check_page_sizes, cut, fed
from tests.laws.test_joins import check_restart, decoded
from tests.laws.test_relations import as_text
from tests.tunings import tunings

pytestmark = pytest.mark.law

X, N, S = 2, 3, 4
"""Columns of a row (id, group, x, n, s)."""
Function = Callable[[Group], Any]


def over(column: int, function: Callable[[Any], Any]) -> Function:
    return lambda group: function(known(list(group.rows.values()), column))


def pairs(function: Callable[[Any], Any]) -> Function:
    def result(group: Group) -> Any:
        found = [(row[X], float(row[N])) for row in group.rows.values() if row[X] is not None and row[N] is not None]
        return function(found) if found else None

    return result


def nth(group: Group, column: int, place: int) -> Any:
    rows = list(group.rows.values())
    return rows[place][column] if -len(rows) <= place < len(rows) else None


def kept(group: Group) -> Any:
    return [row for opcode, row in group.events if opcode != "D"][-1][X]


DOUBLES: dict[str, tuple[str, Function]] = {
    "ESP_aSum(x)": ("double", over(X, model.some(model.exact))),
    "ESP_aAve(x)": ("double", over(X, model.some(model.mean))),
    "ESP_aUSS(x)": ("double", over(X, model.some(lambda values: model.of_products([(v, v) for v in values])))),
    "ESP_aCSS(x)": ("double", over(X, model.some(model.css))),
    "ESP_aVariance(x)": ("double", over(X, model.some(model.variance))),
    "ESP_aStd(x)": ("double", over(X, model.some(model.deviation))),
    "ESP_aCV(x)": ("double", over(X, model.some(model.variation))),
    "ESP_aWAve(n, x)": ("double", pairs(model.weighted)),
    "ESP_aAve(n)": ("double", over(N, model.some(lambda values: model.nearest(model.Fraction(sum(values))) / len(values)))),
    "ESP_aCount()": ("int64", lambda group: len(group.rows)),
    "ESP_aCountNonNull(x)": ("int64", over(X, len)),
    "ESP_aCountNull(x)": ("int64", lambda group: sum(row[X] is None for row in group.rows.values())),
    "ESP_aCountOpcodes('D')": ("int64", lambda group: sum(opcode == "D" for opcode, _ in group.events)),
    "ESP_aLastOpcode()": ("int32", lambda group: {"I": 1, "U": 2, "D": 3}[group.events[-1][0]]),
    "ESP_aLast(x)": ("double", lambda group: group.events[-1][1][X]),
    "ESP_aLastNonDelete(x)": ("double", kept),
}
ORDERED: dict[str, tuple[str, Function]] = {
    "ESP_aMin(x)": ("double", over(X, model.some(lambda values: model.in_order(values)[0]))),
    "ESP_aMax(x)": ("double", over(X, model.some(lambda values: model.in_order(values)[-1]))),
    "ESP_aMin(n)": ("int64", over(N, model.some(min))),
    "ESP_aMax(s)": ("string", over(S, model.some(lambda values: model.in_order(values)[-1]))),
    "ESP_aMode(x)": ("double", over(X, model.some(model.mode))),
    "ESP_aMode(s)": ("string", over(S, model.some(model.mode))),
    "ESP_aCountDistinct(x)": ("int64", over(X, model.distinct)),
    "ESP_aCountDistinct(s)": ("int64", over(S, model.distinct)),
    "median(x)": ("double", over(X, model.some(lambda values: model.percentile(values, 0.5)))),
    "percentile(n, 0.3)": ("double", over(N, model.some(lambda values: model.percentile(values, 0.3)))),
    "ESP_aFirst(x)": ("double", lambda group: nth(group, X, 0)),
    "nth(s, 2)": ("string", lambda group: nth(group, S, 1)),
    "ESP_aLag(n, 0)": ("int64", lambda group: nth(group, N, -1)),
    "ESP_aLag(x, 2)": ("double", lambda group: nth(group, X, -3)),
    "ESP_aLag(s, 20)": ("string", lambda group: nth(group, S, -21)),
    "ESP_aCat(n, '; ')": ("string", over(N, model.some(lambda values: "; ".join(map(str, values))))),
}
EXTREMES: dict[str, tuple[str, Function]] = {
    "ESP_aMin(x)": ("double", over(X, model.some(lambda values: model.in_order(values)[0]))),
    "ESP_aMax(x)": ("double", over(X, model.some(lambda values: model.in_order(values)[-1]))),
    "ESP_aMin(n)": ("int64", over(N, model.some(min))),
    "ESP_aMax(s)": ("string", over(S, model.some(lambda values: model.in_order(values)[-1]))),
}
"""Functions that need only the extremes of their values."""
WHOLE: dict[str, tuple[str, Function]] = {
    "ESP_aSum(n)": ("int64", over(N, model.some(model.whole_sum))),
    "ESP_aSum(n) / ESP_aCount()": ("double", lambda group: _ratio(group)),
}


def _ratio(group: Group) -> float | None:
    total = over(N, model.some(model.whole_sum))(group)
    return None if total is None else float(total) / len(group.rows)


WINDOWS = {"doubles": DOUBLES, "ordered": ORDERED, "extremes": EXTREMES, "whole": WHOLE}
SCHEMA = "id*:int64,g:string,x:double,n:int64,s:string"
RETENTION = ", retention: {bycount_sliding: 3, evict: before}"
MORE = ", retention: {bycount_sliding: 12, evict: before}"
"""More rows than a group has in its row: sets go to trees, and stay there until the group is empty."""
WAYS = {
    "published": ("type: source, opcodes: any, index: empty", "type: union, index: empty"),
    "resolved": ("type: source, opcodes: any", "type: copy"),
    "retained": ("type: source, opcodes: any", f"type: copy{RETENTION}"),
    "inserts": ("type: source, index: empty, opcodes: insert-only, keys: autogenerated", "type: copy, index: empty"),
    "oldest": ("type: source, index: empty, opcodes: insert-only, keys: autogenerated", f"type: copy{MORE}"),
    "evicted after": ("type: source, opcodes: any", f"type: copy{RETENTION.replace('before', 'after')}"),
    "evicted by group": ("type: source, opcodes: any", f"type: copy{RETENTION[:-1]}, by: [g]}}"),
}
"""The kinds of changelog that enter the aggregates."""


@cache
def plan_of(way: str) -> Plan:
    source, between = WAYS[way]
    windows = []
    for name, functions in WINDOWS.items():
        fields = ",".join(f"f{i}:{type_}" for i, (type_, _) in enumerate(functions.values()))
        outputs = ", ".join(f'f{i}: "{text}"' for i, text in enumerate(functions))
        windows.append(f'      {name}: {{type: aggregate, schema: "g*:string,{fields}", outputs: {{{outputs}}}, publish: true}}')
    text = "\n".join(windows)
    return compile_plan(
        load_text(f"""
project: p
queries:
  q:
    windows:
      source: {{{source}, schema: "{SCHEMA}"}}
      between: {{{between}}}
{text}
    edges: [source -> between, between -> doubles, between -> ordered, between -> extremes, between -> whole]
""").resolved
    )


XS = ["nan", "inf", "-inf", "1e308", "-1e308", "1.7e308", "5e-324", "-5e-324", "1e-300", "0.1", "-0.1", "12.5", "-0.0", "3", "1e22"]
FINITE = [x for x in XS if x.strip("-")[0].isdigit()]
ORDINARY = ["0.1", "-0.1", "12.5", "3", "1000000.7", "1e-3", "7"]
NS = [None, 0, 1, -5, 3, 2**63 - 1, -(2**63)]
SS = [None, "a", "b", "é", "aa", "nan"]
Script = list[tuple[int, list[Event]]]


@st.composite
def scripts(draw: st.DrawFn, strange: list[str]) -> tuple[str, Script]:
    """Draws scripts with the given strange doubles, or ordinary ones."""
    way = draw(st.sampled_from(sorted(WAYS)))
    xs = [None, *map(float, draw(st.sampled_from([strange, ORDINARY])))]
    ids = [*range(1, draw(st.sampled_from([4, 4, 20])) + 1), None]
    row = st.tuples(
        st.sampled_from(ids), st.sampled_from(["a", "a", "b", None]), st.sampled_from(xs), st.sampled_from(NS), st.sampled_from(SS)
    )
    opcodes = ["I"] if way in ("inserts", "oldest") else ["I", "I", "I", "P", "P", "U", "D", "SD"]
    event = st.builds(Event, st.sampled_from(opcodes), st.sampled_from([frozenset("N")] * 4 + [frozenset("NP")]), row)
    messages = draw(st.lists(st.lists(event, min_size=1, max_size=4), max_size=14))
    return way, [(SECOND + i, events) for i, events in enumerate(messages)]


def case_of(way: str, script: Script) -> Case:
    messages = [Message(time, "source", " | ".join(map(as_text, events))) for time, events in script]
    return Case(plan_of(way), (*messages, Message(9 * SECOND, "", "")), ())


def resolved(way: str, tables: list[Index], event: Event, number: int) -> list[Event]:
    """Returns the events that reach the aggregates because of an event."""
    if way in ("inserts", "oldest"):
        event = Event("I", event.flags, (number, *event.row[1:]))
    made = [event]
    for table in tables:
        made = [out for each in _steps(made) for out in _taken(table, each)]
    return made


def _taken(table: Index, event: Event) -> list[Event]:
    """Returns what the table makes of an event; of a refused one what it made before, such as the delete of the old row."""
    try:
        return table.take(event, 0)
    except Refused as refused:
        return refused.made


def _steps(events: list[Event]) -> list[Event]:
    """Returns the events to apply: the index that stores a row knows its old values."""
    return [each for i, each in enumerate(events) if i == 0 or events[i - 1].opcode != "UB"]


def tables_of(way: str) -> list[Index]:
    kept = Index(Limits("bycount_sliding", 3, evicts_first=way != "evicted after", by=(1,) if way == "evicted by group" else ()))
    return {
        "published": [Index()],
        "resolved": [Index()],
        "retained": [Index(), kept],
        "inserts": [],
        "oldest": [Index(Limits("bycount_sliding", 12, evicts_first=True))],
        "evicted after": [Index(), kept],
        "evicted by group": [Index(), kept],
    }[way]


def bits(value: Any) -> Any:
    """Returns the bits of a value; all NaN are equal."""
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("<d", value)
    return value


def expected(groups: Groups, functions: dict[str, tuple[str, Function]]) -> dict[Any, Any]:
    rows = {}
    for key, group in groups.groups.items():
        try:
            rows[key] = [bits(function(group)) for _, function in functions.values()]
        except model.Unfit:
            continue
    return rows


def fold(rows: dict[Any, Any], events: list[dict[str, Any]]) -> None:
    """Applies the outputs; every event must be possible, and a deleted row must equal the stored one."""
    replaced: Any = None
    for each in events:
        key = each["g"]
        row = [bits(value) for name, value in each.items() if name.startswith("f")]
        opcode = OPCODES[each["hs:opcode"]]
        if opcode == "I":
            assert key not in rows
            rows[key] = row
        elif opcode == "UB":
            replaced, rows[key] = rows[key], row
        else:
            assert opcode == "D"
            assert (rows.pop(key) if replaced is None else replaced) == row
            replaced = None
    assert replaced is None


def check(way: str, script: Script) -> None:
    case = case_of(way, script)
    outputs = Pipeline.fresh(case.plan).feed(decoded(case))
    made: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for name in WINDOWS:
        for row in outputs[f"q/{name}"].to_pylist() if f"q/{name}" in outputs else ():
            made.setdefault((name, row["hs:offset"], row["hs:index"]), []).append(row)
    groups, tables, number = Groups(), tables_of(way), 0
    rows: dict[str, dict[Any, Any]] = {name: {} for name in WINDOWS}
    for offset, (_, events) in enumerate(script):
        for index, event in enumerate(events):
            groups.take(resolved(way, tables, event, number))
            number += 1
            for name, functions in WINDOWS.items():
                fold(rows[name], made.pop((name, offset, index), []))
                assert rows[name] == expected(groups, functions), f"{name} after {event}"
    assert made == {}


_PLAIN = frozenset({"N"})
_TO_NO_GROUP = [Event("I", _PLAIN, (1, "a", None, None, None)), Event("P", _PLAIN, (1, None, None, None, None))]


@examples(2.5)
@given(scripts(XS))
@example(("evicted by group", [(1_000_000, _TO_NO_GROUP)]))
def test_aggregates(script: tuple[str, Script]) -> None:
    """SPEC A8-A13, A28."""
    check(*script)


@examples(0.4)
@given(scripts(FINITE), st.lists(st.integers(0, 60), max_size=40))
def test_cut(script: tuple[str, Script], places: list[int]) -> None:
    """Law Cut: bad events and snapshots included."""
    case = case_of(*script)
    rows = decoded(case)
    assert fed(case, cut(rows, places)) == fed(case, [rows])


@examples(0.35)
@given(scripts(FINITE), st.integers(0, 60))
def test_restart(script: tuple[str, Script], place: int) -> None:
    """A snapshot that is written while the engine continues, and restored, continues with the same bits."""
    check_restart(case_of(*script), place)


@examples(0.25)
@given(scripts(FINITE), st.lists(st.integers(0, 60), max_size=12), tunings())
def test_page_sizes(script: tuple[str, Script], places: list[int], tuning: Tuning) -> None:
    """Outputs do not depend on the size of the pages of groups."""
    case = case_of(*script)
    check_page_sizes(case, decoded(case), places, tuning)


@pytest.mark.parametrize("seed", range(4))
def test_groups_grow_and_shrink(seed: int) -> None:
    """Groups grow from no rows to more than fit in the row of a group, and back, twice: with updates within a group and to another
    one."""
    random = Random(seed)

    def event(opcode: str, id_: int) -> Event:
        group = "a" if random.random() < 0.9 else "b"
        return Event(opcode, frozenset("N"), (id_, group, random.choice([None, *map(float, FINITE)]), random.choice(NS), "a"))

    events = []
    for _ in range(2):
        for id_ in random.sample(range(20), 20):
            events += [event("I", id_), event("P", random.randrange(20))]
        for id_ in random.sample(range(20), 20):
            events += [event("P", id_), event("D", id_)]
    check("resolved", [(SECOND + i, [each]) for i, each in enumerate(events)])


def test_the_law_bites() -> None:
    """A sum that rounds at each event is found."""
    script = [(SECOND, [Event("I", frozenset("N"), (i, "a", x, 0, None)) for i, x in enumerate((1e22, 0.1, -1e22))])]
    check("resolved", script)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        patch.setitem(DOUBLES, "ESP_aSum(x)", ("double", over(X, model.some(sum))))
        check("resolved", script)
