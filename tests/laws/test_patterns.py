"""Law of patterns: the outputs are those of a list of open matches in plain Python, at the same places; however it is cut (SPEC
A30, F5, F6, F8, Z13)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import Plan, compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.tuning import Tuning
from hotspare.windows.pattern.logic import Event, Logic, LogicOperator, LogicRefused, Operation, check_logic, events_in, parse_logic
from tests.cases.case import Case, Message, raw_batches
from tests.examples import examples
from tests.laws import model_patterns as model
from tests.laws.pattern_code import code_of
from tests.laws.test_cut import check_page_sizes, cut, fed, in_batches
from tests.laws.test_joins import check_restart
from tests.tunings import tunings

pytestmark = pytest.mark.law

SECOND = 1_000_000
Fields = model.Fields


def known(value: Any) -> Any:
    """Raises TypeError for null, which is unknown and therefore not different from any value."""
    if value is None:
        raise TypeError
    return value


def when(asked: Callable[[Fields, Fields], object], **binds: str) -> model.Condition:
    """Returns a condition that binds variables to fields; null is not true and does not bind."""

    def condition(fields: Fields, bound: Fields) -> Fields | None:
        try:
            is_true = asked(fields, bound)
        except (TypeError, KeyError):  # null, or an unbound variable
            return None
        values = {name: fields[of] for name, of in binds.items()}
        return values if is_true and None not in values.values() else None

    return condition


EVENTS: dict[str, tuple[str, str, model.Condition]] = {
    "one": ("s", "x = 1", when(lambda f, b: f["x"] == 1)),
    "any": ("t", "", when(lambda f, b: True)),
    "text": ("s", "y = 'b' and v = k", when(lambda f, b: f["y"] == "b", v="k")),
    "bind": ("s", "w = x", when(lambda f, b: True, w="x")),
    "more": ("s", "x > w", when(lambda f, b: f["x"] > b["w"])),
    "same": ("t", "v = k and x >= 1", when(lambda f, b: f["x"] >= 1, v="k")),
    "twice": ("t", "w * 2 <= x", when(lambda f, b: b["w"] * 2 <= f["x"])),
    "other": ("s", "r <> z and x > 0", when(lambda f, b: known(f["z"]) != b["r"] and f["x"] > 0)),
    "real": ("t", "r = z", when(lambda f, b: True, r="z")),
    "least": ("t", "z < r", when(lambda f, b: f["z"] < b["r"])),
    "apart": ("s", "x - w > 1 or y = 'a'", when(lambda f, b: f["y"] == "a" or f["x"] - b["w"] > 1)),
    "far": ("t", "abs(x - w) >= 2 and v <> k", when(lambda f, b: abs(f["x"] - b["w"]) >= 2 and known(f["k"]) != b["v"])),
}
"""Source, condition, and its plain form, by name. In `apart` null is unknown, and true as soon as one side is."""
NAMES = sorted(EVENTS)
BINDS = {"w": ("bind",), "r": ("real",), "v": ("text", "same")}
ASKS = {"more": "w", "twice": "w", "other": "r", "least": "r", "apart": "w", "far": "wv"}


def _apart(fields: Fields, bound: Fields) -> Fields | None:
    far = fields["x"] is not None and "w" in bound and fields["x"] - bound["w"] > 1
    return {} if far or fields["y"] == "a" else None


EVENTS["apart"] = (*EVENTS["apart"][:2], _apart)


@dataclass(frozen=True)
class Shape:
    """A pattern as text: its logic, fields of its index, and the events whose numbers are output."""

    logic: str
    index: str
    outputs: tuple[str, str]
    skips: bool = False


def logics(depth: int = 3) -> st.SearchStrategy[Logic]:
    leaf = st.sampled_from(NAMES).map(Event)
    limit = st.sampled_from([0, 0, 2 * SECOND, 3 * SECOND + 1])
    simple = st.one_of(
        leaf,
        st.builds(
            lambda op, name, limit, count: Operation(
                op, (name,), limit, count if op in (LogicOperator.IS, LogicOperator.SEEN) else 1
            ),
            st.sampled_from([LogicOperator.IS, LogicOperator.SEEN, LogicOperator.NOTOCCUR, LogicOperator.NOT]),
            leaf,
            limit,
            st.integers(1, 3),
        ),
    )

    def wider(inner: st.SearchStrategy[Logic]) -> st.SearchStrategy[Logic]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        ops = st.sampled_from([LogicOperator.FBY, LogicOperator.FBY, LogicOperator.AND, LogicOperator.OR])
        return st.one_of(
            st.builds(Operation, ops, several, limit),
            st.builds(lambda one, limit: Operation(LogicOperator.NOT, (one,), limit), inner.filter(_is_operation), limit),
        )

    return st.recursive(simple, wider, max_leaves=2 * depth)


def _is_operation(logic: Logic) -> bool:
    return isinstance(logic, Operation)


def _can_be(logic: Logic) -> bool:
    try:
        check_logic(logic, NAMES)
    except LogicRefused:
        return False
    names = set(events_in(logic))
    return all(names.intersection(BINDS[variable]) for name in names for variable in ASKS.get(name, ""))


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    logic = draw(logics().filter(_can_be))
    names = st.sampled_from(sorted(set(events_in(logic))))
    return Shape(str(logic), draw(st.sampled_from(["", "k", "k y"])), (draw(names), draw(names)), draw(st.booleans()))


@dataclass(frozen=True)
class Windows:
    shapes: tuple[Shape, ...]
    by_event: bool
    of_code: bool = False
    idle_us: int = 0

    @property
    def text(self) -> str:
        patterns = ""
        for number, shape in enumerate(self.shapes):
            logic = read(shape.logic)
            events = ""
            for name in dict.fromkeys(events_in(logic)):
                source, condition, _ = EVENTS[name]
                if self.of_code:
                    events += f"\n              {name}: {{source: {source}, function: is_{name}}}"
                    continue
                events += f"\n              {name}: {{source: {source}" + (f', condition: "{condition}"}}' if condition else "}")
            sources = dict.fromkeys(EVENTS[name][0] for name in events_in(logic))
            times = "{" + ", ".join(f"{source}: at" for source in sources) + "}" if self.by_event else "{}"
            outputs = f"{{first: {shape.outputs[0]}.n, last: {{{shape.outputs[1]}: n + 0}}}}"
            patterns += f"""
          p{number}:
            events: {events}
            logic: "{shape.logic}"
            index: [{", ".join(shape.index.split())}]
            timefields: {times}
            after_match: {"skip past last" if shape.skips else "keep"}
            {self._made(shape, outputs)}"""
        fields = "n*:int64,k:string,x:int64,y:string,z:double,at:stamp"
        idle = f", idle: {self.idle_us} microseconds" if self.idle_us else ""
        return f"""
project: p
queries:
  q:
    windows:
      s: {{type: source, index: empty, opcodes: insert-only, schema: "{fields}"{idle}}}
      t: {{type: source, index: empty, opcodes: insert-only, schema: "{fields}"{idle}}}
      found:
        type: pattern
        index: empty
        schema: "id*:int64,first:int64,last:int64{",calls:int64" if self.of_code else ""}"
        patterns: {patterns}
    edges: [s -> found, t -> found]
"""

    def _made(self, shape: Shape, outputs: str) -> str:
        if not self.of_code:
            return f"outputs: {outputs}"
        names = list(dict.fromkeys(events_in(read(shape.logic))))
        return f"language: python\n            code: {json.dumps(code_of(names, *shape.outputs))}"

    @property
    def plan(self) -> Plan:
        return compiled(self.text)

    @property
    def plain(self) -> model.Window:
        patterns = []
        for shape in self.shapes:
            logic = read(shape.logic)
            events = {name: (EVENTS[name][0], EVENTS[name][2]) for name in events_in(logic)}
            patterns.append(model.Pattern(logic, events, tuple(shape.index.split()), shape.outputs, shape.skips))
        return model.Window(patterns, by_event=self.by_event, idle_us=self.idle_us)


@cache
def compiled(text: str) -> Plan:
    return compile_plan(load_text(text).resolved)


read = cache(parse_logic)


@st.composite
def windows(draw: st.DrawFn, *, of_code: bool = False) -> Windows:
    idle_us = draw(st.sampled_from([0, 0, 1, SECOND, 3 * SECOND]))
    return Windows(tuple(draw(st.lists(shapes(), min_size=1, max_size=2))), draw(st.booleans()), of_code, idle_us)


Script = list[tuple[int, str, list[Fields]]]
TICKS = ("tick", "end")


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Draws messages of both sources, and ticks; the input may end with the last one."""
    found: Script = []
    time, number = 10 * SECOND, 0
    row = st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "a", "b", None]),
            "x": st.sampled_from([0, 1, 1, 2, 2, 3, None]),
            "y": st.sampled_from(["a", "b", "b", None]),
            "z": st.sampled_from([0.0, -0.0, 1.5, -2.0, None]),
            "at": st.integers(-3, 1),
        }
    )
    for _ in range(draw(st.integers(1, 16))):
        time += draw(st.sampled_from([1, 500_000, SECOND, 2 * SECOND]))
        source = draw(st.sampled_from(["s", "s", "t", "t", "tick"]))
        rows = draw(st.lists(row, min_size=1, max_size=4)) if source != "tick" else []
        for each in rows:
            number += 1
            each["n"], each["at"] = number, time + (each["at"] * 700_000 if each["at"] < 0 else 0)
        found.append((time, source, rows))
    return [*found, (time + 2 * SECOND, "tick", []), (time + 9 * SECOND, draw(st.sampled_from(["tick", "end"])), [])]


def as_text(fields: Fields) -> str:
    values = [fields[name] for name in ("n", "k", "x", "y", "z", "at")]
    return "I,N," + ",".join("" if value is None else str(value) for value in values)


def case_of(plan: Plan, script: Script) -> Case:
    messages = [
        Message(time, "", source) if source in TICKS else Message(time, source, " | ".join(map(as_text, rows)))
        for time, source, rows in script
    ]
    return Case(plan, tuple(messages), ())


def decoded(case: Case) -> pa.RecordBatch:
    return Head.from_plan(case.plan).decode(pa.concat_batches(raw_batches(case)))


def expected(window: model.Window, script: Script) -> list[tuple[Any, ...]]:
    """Returns topic, offset and index of the cause, and the numbers of two events."""
    made: list[tuple[Any, ...]] = []
    offsets, beat = {"s": 0, "t": 0}, None
    for time, source, rows in script:
        if source in TICKS:
            if beat is None or time // SECOND > beat // SECOND:
                beat = time
                made += [(0, offsets["s"], 0, *each) for each in window.beat(time)]
            made += [(0, offsets["s"], 0, *each) for each in window.end()] if source == "end" else []
            offsets = {name: offset + 1 for name, offset in offsets.items()}
            continue
        for index, fields in enumerate(rows):
            window.came_us = time
            outputs, _ = window.take(source, fields, fields["at"] if window.by_event else time)
            made += [(int(source == "t"), offsets[source], index, *each) for each in outputs]
        offsets[source] += 1
    return made


def check(given_windows: Windows, script: Script) -> None:
    plan = given_windows.plan
    outputs = Pipeline.fresh(plan).feed(decoded(case_of(plan, script)))
    rows = outputs["q/found"].to_pylist() if "q/found" in outputs else []
    assert [row["id"] for row in rows] == list(range(len(rows)))
    made = [(row["hs:topic"], row["hs:offset"], row["hs:index"], row["first"], row["last"]) for row in rows]
    assert made == expected(given_windows.plain, script), given_windows.text


@examples(5)
@given(windows(), scripts())
def test_patterns(found: Windows, script: Script) -> None:
    check(found, script)


@given(windows(of_code=True), scripts())
def test_patterns_of_code(found: Windows, script: Script) -> None:
    check(found, script)


@examples(0.5)
@given(windows(of_code=True), scripts(), st.lists(st.integers(0, 60), max_size=60), st.integers(1, 5), st.integers(0, 60))
def test_cut_parts_and_restart_of_code(found: Windows, script: Script, places: list[int], extra_rows_max: int, place: int) -> None:
    """The outputs have the number of calls: the state that code keeps in its variables depends on neither cuts nor restarts."""
    case = case_of(found.plan, script)
    rows = decoded(case)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole
    check_restart(case, place)


@given(windows(), scripts(), st.lists(st.integers(0, 60), max_size=60), st.integers(1, 5))
def test_cut_and_parts(found: Windows, script: Script, places: list[int], extra_rows_max: int) -> None:
    """Law Cut, and with one output at a time."""
    case = case_of(found.plan, script)
    rows = decoded(case)
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole


@examples(0.5)
@given(windows(), scripts(), st.integers(0, 60))
def test_restart(found: Windows, script: Script, place: int) -> None:
    """A snapshot with open matches that is written while the engine continues, and restored, continues with the same bits."""
    check_restart(case_of(found.plan, script), place)


@examples(0.5)
@given(windows(), scripts(), st.lists(st.integers(0, 60), max_size=12), tunings())
def test_page_sizes(found: Windows, script: Script, places: list[int], tuning: Tuning) -> None:
    """Outputs do not depend on the page size, nor on the places to which open matches are moved."""
    case = case_of(found.plan, script)
    check_page_sizes(case, decoded(case), places, tuning)


def test_one_event_that_completes_very_many_matches() -> None:
    """It is processed in parts of bounded size, with complete outputs."""
    found = Windows((Shape("fby(one, any)", "", ("one", "any")),), by_event=False)
    event = {"k": "a", "x": 1, "y": "", "z": 0.0, "at": SECOND}
    first = " | ".join(as_text({**event, "n": n}) for n in range(3000))
    messages = (Message(SECOND, "s", first), Message(SECOND, "", ""), Message(2 * SECOND, "t", as_text({**event, "n": 9})))
    case = Case(found.plan, (*messages, Message(9 * SECOND, "", "")), ())
    rows = decoded(case)
    whole = fed(case, [rows])
    assert whole[0]["q/found"].column("first").to_pylist() == list(range(3000))
    pipeline = Pipeline.fresh(case.plan, extra_rows_max=100)
    pipeline.feed(rows.slice(0, 3002))
    sizes = [part["q/found"].num_rows for part in pipeline.compute_parts(rows.slice(3002)) if "q/found" in part]
    assert sum(sizes) == 3000
    assert max(sizes) <= 3 + 100


def test_the_law_bites() -> None:
    """A limit that does not end is found."""
    found = Windows((Shape("fby{2 seconds}(one, any)", "", ("one", "any")),), by_event=False)
    event = {"k": "a", "x": 1, "y": "", "z": 0.0, "at": SECOND}
    script = [(10 * SECOND, "s", [{**event, "n": 1}]), (12 * SECOND, "t", [{**event, "n": 2}])]
    check(found, script)
    endless = Windows((Shape("fby(one, any)", "", ("one", "any")),), by_event=False)
    made = expected(endless.plain, script)
    assert made
    assert made != expected(found.plain, script)
