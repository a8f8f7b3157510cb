"""Projects written for another system run unmodified: the copy example and the reference chain (SPEC A19-A23, 5.1)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_project
from tests.raw_rows import RawRow, raw_of

FOLDER = Path(__file__).parents[3] / "shared" / "conformance"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the example projects are not at {FOLDER}")


def raw(rows: list[str], *, second_us: int, tick_from: int | None = None) -> pa.RecordBatch:
    """Returns one message per row, `second_us` apart; and a tick after each from row `tick_from` on."""
    messages: list[RawRow] = []
    for i, row in enumerate(rows):
        messages.append((0, 0, len(messages), i * second_us, False, 0, row.encode()))
        if tick_from is not None and i >= tick_from:
            messages.append((0, 0, len(messages), i * second_us, True, 0, b""))
    return raw_of(messages)


def test_copy() -> None:
    """Count sliding 12 rows, count jumping 21 and 1 retained, event-time sliding 13: exactly the two :25 rows expire, 9 remain."""
    plan = compile_plan(load_project(FOLDER / "copy" / "model.xml", {"ESP_PROJECT_HOME": str(FOLDER / "copy")}).resolved)
    rows = (FOLDER / "copy" / "input.csv").read_text().splitlines()[:11]
    pipeline = Pipeline.fresh(plan)
    outputs = pipeline.feed(Head.from_plan(plan).decode(raw(rows, second_us=1_000_000)))
    kept = {name: 2 * Counter(out.column("hs:opcode").to_pylist())[1] - out.num_rows for name, out in outputs.items()}
    counts = {name.removeprefix("cq1/Copy_"): (out.num_rows, kept[name]) for name, out in outputs.items()}
    assert counts["Count_Sliding"] == (12, 10)
    assert counts["Count_Jumping"] == (21, 1)
    assert counts["EventTime_Sliding"] == (13, 9)
    assert counts["SystemTime_Sliding"] == (11, 11), "no heartbeat, no delete"
    by_event = outputs["cq1/Copy_EventTime_Sliding"].to_pylist()
    deleted = [(row["motor"], row["time"].second) for row in by_event if row["hs:opcode"] == 4]
    assert deleted == [("motor1", 25), ("motor2", 25)]


def test_reference_chain() -> None:
    """Checks that sum20 is the sum of the last 20 values, and that a retention delete carries its row's output."""
    plan = compile_plan(load_project(FOLDER / "ha-kafka" / "kafka1.xml").resolved)
    rows = [f"I,n,,{1000 + i},{i * 7 % 50}" for i in range(60)]
    minute = 60_000_000
    outputs = Pipeline.fresh(plan).feed(Head.from_plan(plan).decode(raw(rows, second_us=minute, tick_from=0)))
    out = outputs["cq1/kafka_outgoing"].to_pylist()
    inserted = [row for row in out if row["hs:opcode"] == 1]
    values = [i * 7 % 50 for i in range(60)]
    assert [row["sum20"] for row in inserted] == [sum(values[max(0, i - 19) : i + 1]) for i in range(60)]
    assert [row["EventNumber"] for row in inserted] == list(range(1, 61))
    assert [row["index_esp"] for row in inserted] == list(range(60))
    deleted = [row for row in out if row["hs:opcode"] == 4]
    assert len(deleted) == 30, "those that are 30 minutes old at the last tick"
    fields = ("index_esp", "user", "idl", "EventNumber", "sum20")
    assert [[row[f] for f in fields] for row in deleted] == [[row[f] for f in fields] for row in inserted[:30]]
