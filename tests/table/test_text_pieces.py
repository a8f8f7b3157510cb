"""An event may cause many rows with long texts: windows read them piece by piece, and emit the same as at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_text
from hotspare.rows.chunk import OUTPUT_BYTES_MAX, Bools, Int64s
from hotspare.table.strings import StringTable
from tests.cases.case import Message
from tests.windows.join.test_join import lines_of

TEXT = """
project: p
queries:
  q:
    windows:
      facts: {type: source, opcodes: any, schema: "id*:int64,x:int64"}
      texts: {type: source, opcodes: any, schema: "id*:int64,s:string"}
      met: {type: join, kind: inner, conditions: {x: id}, outputs: {x: l_x, s: r_s, "n:int64": length(r_s) div l_x}}
      long: {type: filter, condition: length(s) > 5}
      made: {type: compute, schema: "id*:int64,n:int64", outputs: {n: n + length(s) div (id - 1)}}
    edges: [facts -> met as left, texts -> met as right, met -> long, long -> made]
"""


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list whose last entry is the bytes of the largest array of text made."""
    arrow, found = StringTable.arrow, [0]

    def noted(self: StringTable, codes: Int64s, valid: Bools, type_: pa.DataType) -> pa.Array:
        found.append(max(found[-1], int(self.sizes(codes).sum())))
        return arrow(self, codes, valid, type_)

    monkeypatch.setattr(StringTable, "arrow", noted)
    return found


def test_no_array_of_text_grows_with_the_rows_that_an_event_meets(largest: list[int]) -> None:
    """Fact 1 makes the expression fail, which is reported once."""
    text, count = "x" * (OUTPUT_BYTES_MAX // 16), 40
    rows = [Message(1, "facts", f"I,N,{number},7") for number in range(count)]
    rows += [Message(2, "texts", f"I,N,7,{text}"), Message(3, "", "")]
    made = lines_of(compile_plan(load_text(TEXT).resolved), rows)
    size = len(text)
    expected = [f"I,N,{n},{size // 7 + int(np.trunc(size / (n - 1)))}" for n in range(count) if n != 1]
    assert made["q/made"] == expected
    assert [line.split(",")[2] for line in made["bad"]] == ["expression"]
    assert largest[-1] <= OUTPUT_BYTES_MAX


def test_refused_rows_are_told_piece_by_piece(largest: list[int]) -> None:
    """A bad event for each row that fails, however long the text of the event that caused them all is."""
    text, count = "x" * (OUTPUT_BYTES_MAX // 16), 40
    rows = [Message(1, "facts", f"I,N,{number},0") for number in range(count)]
    rows += [Message(2, "texts", f"I,N,0,{text}"), Message(3, "", "")]
    made = lines_of(compile_plan(load_text(TEXT).resolved), rows)
    assert "q/made" not in made
    assert len(made["bad"]) == count
    assert len({line.split(",")[3] for line in made["bad"]}) == 1
    assert largest[-1] <= OUTPUT_BYTES_MAX
