"""Code that needs more memory than the process has ends the engine, whatever it catches: no event becomes bad (SPEC A36)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.base.errors import CodeOutOfMemory
from tests.cli.running import hotspare_here
from tests.scripting.python.programs import called, mistakes, program

TOO_MUCH = "bytes(1 << 60)"
WAYS = {
    "nothing else": f"return {TOO_MUCH}",
    "what catches it": f"try: return {TOO_MUCH}\n    except Exception: return 1",
    "what catches everything": f"try: return {TOO_MUCH}\n    except: return 1",
    "what returns in a finally": f"try: return {TOO_MUCH}\n    finally: return 1",
    "what passes over errors": f"with Quiet(): {TOO_MUCH}\n    return 1",
    "a function that catches it": f"return caught(lambda: {TOO_MUCH})",
    "the text of an error": "raise Large()",
}
TEXT = f"""
class Quiet:
    def __enter__(self): return self
    def __exit__(self, *error): return True
class Large(Exception):
    def __str__(self): return str({TOO_MUCH})
def caught(function):
    try: return function()
    except Exception: return 1
def f():
    BODY
"""
PROJECT = """
project: large
queries:
  q:
    windows:
      given: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64"}
      made:
        type: python
        index: empty
        schema: "id*:int64,n:int64"
        events: create
        code: |
          def create(data):
              return {"n": len(bytes(1 << 60)) if data["id"] == 2 else 1}
    edges: [given -> made]
"""


@pytest.mark.parametrize("body", WAYS.values(), ids=WAYS.keys())
def test_no_call_goes_on_after_it(body: str) -> None:
    """SPEC A36."""
    with pytest.raises(CodeOutOfMemory, match="the code of q/w needs more memory than the process has"):
        called(program(TEXT.replace("BODY", body)))


def test_no_program_is_loaded_that_needs_it() -> None:
    with pytest.raises(CodeOutOfMemory):
        list(mistakes(f"x = len({TOO_MUCH})"))


def test_the_engine_ends_with_its_name(tmp_path: Path) -> None:
    """SPEC A36."""
    project, rows, out = tmp_path / "large.yaml", tmp_path / "rows.csv", tmp_path / "out.csv"
    project.write_text(PROJECT)
    rows.write_text("i,n,1\ni,n,2\ni,n,3\n")
    done = hotspare_here("replay", project, "--in", f"q/given={rows}", "--out", f"q/made={out}")
    assert done.returncode == 1
    assert "HS-0606 the code of q/made needs more memory than the process has" in done.stderr
