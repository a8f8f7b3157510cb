"""A project over a Parquet table through `apply` of `hotspare.spark`, next to plain Spark on the same rows and cores: its window
function, which here computes the same (running count, sum and greatest amount by card), and a pandas function for each card.

Every arm reads the same files, emits a row for each payment, and writes it to the noop sink; the first shuffle and the sort are
Spark's in all three. A check compares the outputs of the three by sums. Next to the times is the peak memory of all Python workers
together, which shows whether it grows with the table. There are two task slots. Two settings of Spark are as docs/dataframes.md
advises (`ARROW`), except with `--spark-defaults`. The pandas function is called for each card and is slow, so it and `apply` get a
smaller table of fewer cards for their comparison. pandas is not a dependency of hotspare; without it this part is skipped.

    python -m benchmarks.apply [--rows 5000000] [--cards 100000] [--pandas-rows 500000] [--pandas-cards 5000] [--repeat 3]

`--folder` keeps the tables there for the next time. The arms take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
from benchmarks._plain import environment

PROJECT = """
project: cards
queries:
  q:
    windows:
      payments: {type: source, schema: "id*:int64,card*:int64,amount:double,at:stamp", opcodes: insert-only, index: empty}
      totals:
        type: aggregate
        schema: "card*:int64,n:int64,total:double,highest:double"
        outputs: {n: ESP_aCount(), total: ESP_aSum(amount), highest: ESP_aMax(amount)}
        publish: true
        connectors: {new_values_alone: {kind: kafka, direction: subscribe, properties: {collapse: "true"}}}
    edges: [payments -> totals]
"""
SLOTS = 2
ARROW = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "40000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}
"""Batches of the engine's size, without checking the size of each row."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--cards", type=int, default=100_000)
    parser.add_argument("--pandas-rows", type=int, default=500_000)
    parser.add_argument("--pandas-cards", type=int, default=5_000)
    parser.add_argument("--spark-defaults", action="store_true", help="Spark's own settings for what goes to and from Python")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    os.environ.update(environment())
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master(f"local[{SLOTS}]").config("spark.driver.memory", "2g").config("spark.ui.enabled", "false")
    for name, value in () if asked.spark_defaults else ARROW.items():
        session = session.config(name, value)
    spark = session.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with contextlib.ExitStack() as stack:
        folder = asked.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        large, small = (_payments(spark, folder / f"{rows}-{cards}", rows, cards) for rows, cards in _sizes(asked))
        names = [name for name in ("apply", "window", "pandas") if name != "pandas" or find_spec("pandas") is not None]
        checks = [_checked(ways(small)[name]) for name in names]
        if len(set(checks)) > 1:
            sys.stderr.write(f"the ways differ: {checks}\n")
            return 1
        at_large = _measured(ways(large), ("window", "apply"), asked.rows, asked.repeat)
        at_small = _measured(ways(small), [name for name in names if name != "window"], asked.pandas_rows, asked.repeat)
    spark.stop()
    to_pandas = f"{at_small['apply'] / at_small['pandas']:.2f}" if "pandas" in at_small else "-"
    print(f"apply_to_window {at_large['apply'] / at_large['window']:.2f} apply_to_pandas {to_pandas}")
    return 0


def _sizes(asked: argparse.Namespace) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns rows and cards of the large and the small table."""
    return (asked.rows, asked.cards), (asked.pandas_rows, asked.pandas_cards)


def _payments(spark: Any, path: Path, rows: int, cards: int) -> Any:
    made = spark.range(rows).selectExpr(
        "id", f"abs(hash(id)) % {cards} card", "cast(abs(hash(id, 7)) % 100000 as double) / 4 amount", "timestamp_millis(id) at"
    )
    if not path.exists():
        made.write.parquet(str(path))
    return spark.read.parquet(str(path))


def ways(payments: Any) -> dict[str, Callable[[], Any]]:
    """Returns the arms, each of which returns columns card, n, total and highest, a row for each payment."""
    return {"apply": lambda: _applied(payments), "window": lambda: _windowed(payments), "pandas": lambda: _by_pandas(payments)}


def _applied(payments: Any) -> Any:
    from hotspare.spark import apply

    tables = apply(
        PROJECT, {"q/payments": payments.withColumn("card", payments.card.cast("bigint"))}, order_by="at", partition_by="card"
    )
    return tables["q/totals"].select("card", "n", "total", "highest")


def _windowed(payments: Any) -> Any:
    over = "over (partition by card order by at rows unbounded preceding)"
    return payments.selectExpr("card", f"count(*) {over} n", f"sum(amount) {over} total", f"max(amount) {over} highest")


def _by_pandas(payments: Any) -> Any:
    def running(rows: Any) -> Any:
        amounts = rows.sort_values("at")["amount"]
        counts = range(1, len(rows) + 1)
        return rows.assign(n=counts, total=amounts.cumsum().to_numpy(), highest=amounts.cummax().to_numpy())[
            ["card", "n", "total", "highest"]
        ]

    return payments.groupBy("card").applyInPandas(running, "card bigint, n bigint, total double, highest double")


def _checked(way: Callable[[], Any]) -> tuple[float, ...]:
    return tuple(way().selectExpr("count(*)", "sum(n)", "round(sum(total), 2)", "round(sum(highest), 2)").collect()[0])


def _measured(found: Mapping[str, Callable[[], Any]], names: Sequence[str], rows: int, repeat: int) -> dict[str, float]:
    """Returns and prints the median rows per second of each arm."""
    rates: dict[str, list[float]] = {name: [] for name in names}
    most = dict.fromkeys(names, 0)
    for name in [*names] * repeat:
        with _Watch() as watch:
            began = time.monotonic()
            found[name]().write.format("noop").mode("overwrite").save()
            rates[name].append(rows / (time.monotonic() - began))
        most[name] = max(most[name], watch.most)
    medians = {name: statistics.median(rates[name]) for name in names}
    for name in names:
        told = f"{medians[name]:>11,.0f} rows/s (best {max(rates[name]):,.0f}), Python workers {most[name] >> 20} MiB"
        print(f"{name:8} {rows:>11,} rows {told}", flush=True)
    return medians


class _Watch:
    """Measures the peak memory of all Python processes of Spark together, ten times a second."""

    def __enter__(self) -> _Watch:
        self.most = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._done.wait(0.1):
            self.most = max(self.most, sum(map(_memory, psutil.Process().children(recursive=True))))


def _memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss) if "python" in process.name() else 0
    except psutil.Error:
        return 0


if __name__ == "__main__":
    sys.exit(main())
