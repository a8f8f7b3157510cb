"""`hotspare replay --runner partitioned` over Parquet: the outputs of each key are those of the local runner over the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotspare.base.errors import UsageError
from hotspare.spark.replay import TablesRequest, replay_tables
from tests.cli.running import hotspare_here

pytestmark = pytest.mark.spark
PROJECT = """
project: cards
queries:
  watch:
    windows:
      payments: {type: source, opcodes: any, schema: "id*:int64,card*:string,amount:double,at:stamp", partition_by: card}
      hour: {type: copy, retention: {bytime_sliding: 1 hour}}
      spent: {type: aggregate, schema: "card*:string,payments:int64,total:double",
              outputs: {payments: ESP_aCount(), total: ESP_aSum(amount)}, publish: true}
    edges: [payments -> hour, hour -> spent]
"""
ROWS, CARDS, FIRST_US = 400, 7, 1_700_000_000_000_000


@pytest.fixture
def request_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TablesRequest:
    """Returns a request for files whose names are not ASCII, in a locale that knows only ASCII."""
    monkeypatch.setenv("LC_ALL", "C")
    (tmp_path / "cards.yaml").write_text(PROJECT)
    times = [FIRST_US + i * 77_000_000 for i in range(ROWS)]
    rows = {"id": range(ROWS), "card": [f"c{i % CARDS}" for i in range(ROWS)], "amount": [float(i % 50) for i in range(ROWS)]}
    table = pa.table(
        {**{name: pa.array(values) for name, values in rows.items()}, "at": pa.array(times, pa.timestamp("us", "UTC"))}
    )
    (tmp_path / "Zürich.parquet").mkdir()
    for part in range(2):
        pq.write_table(
            table.filter(pa.array([i % 2 == part for i in range(ROWS)])), tmp_path / "Zürich.parquet" / f"{part}.parquet"
        )
    lines = (f"i,n,{i},c{i % CARDS},{float(i % 50)},{times[i]}\n" for i in range(ROWS))
    (tmp_path / "payments.csv").write_text("".join(lines))
    return TablesRequest(
        tmp_path / "cards.yaml",
        {"watch/payments": str(tmp_path / "Zürich.parquet")},
        {"watch/spent": str(tmp_path / "spent 東")},
        {"watch/payments": "at"},
        master="local[2]",
        conf={"spark.sql.adaptive.coalescePartitions.enabled": "false", "spark.sql.shuffle.partitions": "3"},
    )


def test_the_outputs_of_a_key_are_those_of_the_local_runner(request_of_tables: TablesRequest, tmp_path: Path) -> None:
    """Law Runner. SPEC K1."""
    told: list[tuple[int, int, str]] = []
    found = replay_tables(request_of_tables, lambda *now: told.append(now))
    assert told and all(0 <= done <= total and stages for done, total, stages in told)
    written = pq.read_table(tmp_path / "spent 東").sort_by([("shard", "ascending"), ("sequence", "ascending")]).to_pylist()
    assert found.undivided == "" and found.rows == {"watch/spent": len(written)}
    assert len({row["shard"] for row in written}) > 1
    out, rows = tmp_path / "spent.csv", ("--in", f"watch/payments={tmp_path / 'payments.csv'}", "--time", "watch/payments=at")
    done = hotspare_here("replay", tmp_path / "cards.yaml", *rows, "--out", f"watch/spent={out}", "--doubles", "exact")
    assert done.returncode == 0, done.stderr
    by_key: dict[str, list[list[str]]] = {}
    for line in out.read_text().splitlines():
        cells = line.split(",")
        by_key.setdefault(cells[2], []).append(cells)
    for card, wanted in by_key.items():
        mine = [row for row in written if row["card"] == card]
        assert [(row["opcode"], row["payments"]) for row in mine] == [(cells[0], int(cells[3])) for cells in wanted]
        assert [row["total"] for row in mine] == [float(cells[4]) for cells in wanted]
    with pytest.raises(UsageError, match="exists already"):
        replay_tables(request_of_tables)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"times": {}}, "no field orders the rows of watch/payments"),
        ({"outputs": {}}, "needs input tables and output folders"),
        ({"times": {"watch/payments": "at", "watch/none": "at"}}, "no source window watch/none"),
    ],
)
def test_what_does_not_fit_is_refused_before_spark_starts(
    request_of_tables: TablesRequest, changed: dict[str, object], why: str
) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match=why):
        replay_tables(replace(request_of_tables, **changed))  # type: ignore[arg-type]
