"""`hotspare validate --check-code`: the project's own code gives equal outputs for any way of running the input (SPEC A36, F8)."""

from __future__ import annotations

from pathlib import Path

from tests.cli.running import hotspare_here

PROJECT = """
project: checked
queries:
  q:
    windows:
      given: {{type: source, index: empty, opcodes: insert-only, schema: "id*:int64,x:double"}}
      made:
{window}
    edges: [given -> made]
"""
STATE = """
        type: python
        schema: "id*:int64,x:double,n:int64"
        events: create
        init: begin
        code: |
          counted = None
          def begin():
              global counted
              counted = [0]
          def create(data):
              counted[0] += 1
              return {"n": counted[0]}
"""
COLUMNS = """
        type: python-columns
        schema: "id*:int64,y:double"
        events: work
        code: |
          def work(data):
              return {{"y": {expression}}}
"""


def _run(tmp_path: Path, window: str) -> tuple[int, str]:
    project, rows = tmp_path / "project.yaml", tmp_path / "rows.csv"
    project.write_text(PROJECT.format(window=window))
    rows.write_text("".join(f"i,n,{i},{i * 0.5}\n" for i in range(20)))
    done = hotspare_here("validate", project, "--check-code", "--in", f"q/given={rows}")
    return done.returncode, done.stdout + done.stderr


def test_what_is_kept_gives_the_same_after_each_restore(tmp_path: Path) -> None:
    status, told = _run(tmp_path, STATE)
    assert status == 0, told
    assert "20 events give the same in all of 4 runs" in told


def test_a_function_over_columns_that_is_row_by_row_gives_the_same(tmp_path: Path) -> None:
    status, told = _run(tmp_path, COLUMNS.format(expression='[x.as_py() * 2 for x in data["x"]]'))
    assert status == 0, told


def test_a_function_over_columns_that_looks_from_one_row_at_another_is_refused(tmp_path: Path) -> None:
    status, told = _run(tmp_path, COLUMNS.format(expression='[data["x"][0].as_py()] * len(data["x"])'))
    assert status == 2
    assert "function work of window q/made fails for any events: TypeError: a function over columns" in told
    assert "a window of the type python takes one event at a time" in told
