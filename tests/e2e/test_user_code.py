"""The state of user code survives all engines of a group, by real processes (SPEC A36)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.testing.cluster import wait_until
from tests.e2e.site import Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:double"}
      kept:
        type: lua
        index: empty
        schema: "id*:int64,s:string"
        events: create
        publish: true
        code: |
          mt = {__eq = function(a, b) return a.kind == b.kind end, __index = {name = "point"}}
          p = setmetatable({print = 1, n = 0}, mt)
          function create(d)
            p.n = p.n + 1
            local a, b = setmetatable({x = 1, y = 2}, mt), setmetatable({x = 1, z = 3}, mt)
            return {s = p.name .. p.n .. p.print .. next(b, next(a))}
          end
    edges: [orders -> kept]
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, PROJECT)
    yield made
    made.stop()


def rows(numbers: range) -> str:
    return "".join(f"i,n,{n},{n}.5\n" for n in numbers)


def test_engines_from_a_snapshot_go_on_as_if_none_had_been_killed(site: Site) -> None:
    """The Lua code has tables with a metatable with __eq, which no snapshot may run."""
    site.start("one")
    site.cluster.start_engine("two")
    wait_until(lambda: site.cluster.is_ready("two"), "a spare")
    site.publish(rows(range(20)))
    before = site.wait_for_outputs(20)
    site.wait_for_snapshot()
    for name in ("one", "two"):
        site.cluster.engines[name].kill()
    third = site.cluster.start_engine("three")
    wait_until(lambda: site.cluster.active_engine() is third, "a new engine has the role", 180)
    site.publish(rows(range(20, 40)), "second.csv")
    found = site.wait_for_outputs(40)
    assert found[:20] == before
    whole = site.folder / "whole.csv"
    whole.write_text(rows(range(40)))
    done = site.run("replay", str(site.project), "--in", f"sales/orders={whole}", "--out", "sales/kept=replayed.csv")
    assert done.returncode == 0, done.stderr
    assert found == (site.folder / "replayed.csv").read_text().splitlines()
    assert found[-1].endswith("point401z")
