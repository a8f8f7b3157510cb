"""Which geofences are refused, and the number of geometries that a position is compared with (SPEC A39)."""

from __future__ import annotations

import numpy as np
import pytest

from hotspare.base.errors import ProjectError
from hotspare.flow.plan import compile_plan
from hotspare.model.events import Opcode
from hotspare.projects.load import load_text
from hotspare.rows.chunk import Timeline
from hotspare.windows.geofence import geometry as g

PROJECT = """
project: p
queries:
  q:
    windows:
      cars: {{type: source, opcodes: any, schema: "id*:int64,x:double,y:double,s:string"}}
      shapes: {{type: source, opcodes: any, schema: "{key},x:double,y:double,d:string"}}
      fence: {{type: geofence, {options}}}
    edges: [{edges}]
"""
FIELDS = "geometry: {x: x, y: y}, position: {x: x, y: y}"
WHOLE = f"{FIELDS}, outputs: {{id: shape}}"


@pytest.mark.parametrize(
    ("options", "edges", "said"),
    [
        (FIELDS, "cars -> fence, shapes -> fence", "has no field for the id of the geometry"),
        (f"{WHOLE}, results: all", "cars -> fence, shapes -> fence", "which need keys of their own"),
        (WHOLE, "cars -> fence as position, shapes -> fence", "has inputs with the roles ['position', '']"),
        (WHOLE, "cars -> fence as left, shapes -> fence", "edge role 'left' is not a role of an input"),
        (WHOLE, "cars -> fence", "window fence has one input"),
        (
            "geometry: {x: x}, position: {x: x, y: y}, outputs: {id: a}",
            "cars -> fence, shapes -> fence",
            "one coordinate of circles",
        ),
        ("position: {x: x, y: y}, outputs: {id: a}", "cars -> fence, shapes -> fence", "names no fields of geometries"),
        ("geometry: {x: x, y: y}, outputs: {id: a}", "cars -> fence, shapes -> fence", "names no fields of positions"),
        (
            "geometry: {data: x}, position: {x: x, y: y}, outputs: {id: a}",
            "cars -> fence, shapes -> fence",
            "which is not a text field",
        ),
        ("geometry: {x: d, y: y}, position: {x: x, y: y}, outputs: {id: a}", "cars -> fence, shapes -> fence", "which is string"),
        ("geometry: {x: x, y: y, radius: -1}, position: {x: x, y: y}, outputs: {id: a}", "cars -> fence, shapes -> fence", "no"),
        (f"{FIELDS}, outputs: {{id: s}}", "cars -> fence, shapes -> fence", "window fence has two fields s"),
        (f"{WHOLE}, index: empty", "cars -> fence, shapes -> fence", "has the index pi_EMPTY"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: str, edges: str, said: str) -> None:
    with pytest.raises(ProjectError) as caught:
        compile_plan(load_text(PROJECT.format(key="name*:string", options=options, edges=edges)).resolved)
    assert any(said in mistake.message for mistake in caught.value.mistakes), caught.value.mistakes


def test_geometries_have_one_key() -> None:
    with pytest.raises(ProjectError, match="have a key of 2 fields"):
        load_text(PROJECT.format(key="a*:string,b*:string", options=WHOLE, edges="cars -> fence, shapes -> fence"))


def test_a_position_is_compared_with_what_is_near_to_it() -> None:
    """The cost does not grow with the number of geometries."""
    count, index, levels = 10_000, g.geometry_index(()), g.level_counts().values
    x, y = np.divmod(np.arange(count), 100)
    lanes = np.zeros((count, g.WIDTH), np.int64)
    lanes[:, g.KEY] = np.arange(count)
    extents = g.Extents(x - 0.4, y - 0.4, x + 0.4, y + 0.4)
    timeline = Timeline(np.zeros(count, np.int64), np.empty(0, np.int64))
    came = g.Geometries(np.arange(count), np.full(count, Opcode.INSERT, np.uint8), lanes, np.ones(lanes.shape, np.bool_), extents)
    g.change_geometries(index, levels, came, timeline)
    position, slot = g.find_near_geometries(index, levels, x + 0.25, y - 0.25)
    assert {(int(p), int(key)) for p, key in zip(position, index.rows.lanes[slot, g.KEY], strict=True)} >= {
        (i, i) for i in range(count)
    }
    assert len(position) <= 9 * count
    gone = g.Geometries(came.rank, np.full(count, Opcode.SAFE_DELETE, np.uint8), lanes, came.valid, extents)
    g.change_geometries(index, levels, gone, timeline)
    assert index.live == 0
    assert not levels[: g.LEVELS].any()
