"""Law of geofences: the results of a position are those of a comparison with every geometry, however it is cut (SPEC A39)."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from tests.cases.case import Case, Message, raw_batches
from tests.laws.test_cut import cut, fed, in_batches

pytestmark = pytest.mark.law

SECOND = 1_000_000
LOOKUP = 1.0
PLAN = compile_plan(
    load_text("""
project: p
queries:
  q:
    windows:
      cars: {type: source, opcodes: any, schema: "id*:int64,x:double,y:double"}
      shapes: {type: source, opcodes: any, schema: "name*:int64,x:double,y:double,r:double,edge:string"}
      fence: {type: geofence, geometry: {x: x, y: y, radius_field: r, data: edge}, position: {x: x, y: y, lookup: 1},
              results: all, outputs: {id: shape, distance: far, number: n}, publish: true}
      closest: {type: geofence, geometry: {x: x, y: y, radius_field: r, data: edge}, position: {x: x, y: y, lookup: 1},
                outputs: {id: shape, distance: far}, publish: true}
    edges: [cars -> fence, shapes -> fence, cars -> closest, shapes -> closest]
""").resolved
)
BOXES = {
    f"{a} {b} {a} {d} {c} {d} {c} {b}": (a, b, c, d) for a, b, c, d in ((0, 0, 4, 4), (-3, 1, 2, 2), (0, 0, 600, 1), (2, 2, 3, 9))
}
"""Rectangles by their data: positions are halfway between whole numbers, so none is on an edge."""
Step = tuple[str, tuple[Any, ...]]
"""The letter of an opcode, and a row: with three fields a position, with five a geometry."""


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    place = st.sampled_from([-2.5, 0.5, 1.5, 2.5, 3.5, 500.5])
    car = st.tuples(st.integers(1, 3), place | st.none(), place)
    circle = st.tuples(st.integers(1, 5), place, place, st.sampled_from([0.0, 1.0, 3.0, 700.0, 1e-9]), st.none())
    box = st.tuples(st.integers(1, 5), st.none(), st.none(), st.none(), st.sampled_from(sorted(BOXES)))
    letters = st.sampled_from(["P", "P", "P", "SD"])
    return draw(st.lists(st.tuples(letters, car | circle | box), min_size=1, max_size=14))


def plain(script: list[Step]) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Returns the rows of both tables at the end: results by (id, number), and the closest by id."""
    shapes: dict[int, tuple[int, tuple[Any, ...]]] = {}
    results: dict[int, list[tuple[Any, ...]]] = {}
    for arrived, (letter, row) in enumerate(script):
        table: dict[int, Any] = results if len(row) == 3 else shapes
        table.pop(row[0], None)
        if letter == "P" and len(row) == 5:
            shapes[row[0]] = arrived, row
        elif letter == "P":
            results[row[0]] = [(*row, *found) for found in met(row, shapes)] or [(*row, None, None)]
    every = {(key, number + 1): row for key, rows in results.items() for number, row in enumerate(rows)}
    closest = {key: min(rows, key=lambda row: (row[4] is None, row[4] or 0.0)) for key, rows in results.items()}
    return every, closest


def met(car: tuple[Any, ...], shapes: dict[int, tuple[int, tuple[Any, ...]]]) -> list[tuple[int, float]]:
    found = []
    for _, (name, x, y, radius, edge) in sorted(shapes.values()):
        if car[1] is None:
            continue
        if edge is None:
            far = math.sqrt((car[1] - x) ** 2 + (car[2] - y) ** 2)
            if far <= radius + LOOKUP:
                found.append((name, far))
            continue
        a, b, c, d = BOXES[edge]
        if a < car[1] < c and b < car[2] < d:
            found.append((name, math.sqrt((car[1] - (a + c) / 2) ** 2 + (car[2] - (b + d) / 2) ** 2)))
    return found


def folded(table: pa.Table | None) -> dict[Any, Any]:
    rows: dict[Any, Any] = {}
    replaced: Any = None
    for row in table.to_pylist() if table is not None else ():
        values = tuple(value for name, value in row.items() if not name.startswith("hs:"))
        key = (values[0], values[3]) if len(values) == 6 else values[0]
        if row["hs:opcode"] == 4:
            was = rows.pop(key) if replaced is None else replaced
            assert was == values
            replaced = None
        else:
            replaced = rows.get(key) if row["hs:opcode"] == 6 else None
            assert (key in rows) == (row["hs:opcode"] == 6)
            rows[key] = values
    return rows


@given(scripts(), st.lists(st.integers(0, 60), max_size=12), st.integers(1, 4))
def test_geofences(script: list[Step], places: list[int], extra_rows_max: int) -> None:
    def text(letter: str, row: tuple[Any, ...]) -> str:
        return f"{letter},N," + ",".join("" if value is None else str(value) for value in row)

    messages = [Message(SECOND * i, "cars" if len(step[1]) == 3 else "shapes", text(*step)) for i, step in enumerate(script)]
    case = Case(PLAN, (*messages, Message(SECOND * len(script), "", "")), ())
    rows = Head.from_plan(PLAN).decode(pa.concat_batches(raw_batches(case)))
    outputs = {name: pa.table(batch) for name, batch in Pipeline.fresh(PLAN).feed(rows).items()}
    every, closest = plain(script)
    assert folded(outputs.get("q/fence")) == {key: (*row[:3], key[1], *row[3:]) for key, row in every.items()}
    made = folded(outputs.get("q/closest"))
    assert {key: (*row[:3], row[4]) for key, row in made.items()} == {key: (*row[:3], row[4]) for key, row in closest.items()}
    whole = fed(case, [rows])
    assert fed(case, cut(rows, places)) == whole
    assert in_batches(case, cut(rows, places), extra_rows_max)[:2] == whole
