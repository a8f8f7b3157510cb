"""The minimal cost of one micro-batch on this machine: Spark under hotspare's settings with nothing to do.

The source gives one constant row per batch without any bus, and foreachBatch only fetches it. An event waits for half a batch on
average and then for a whole one. So 1.5 of these cycles is the least latency of any reader that takes one micro-batch after
another. Compare `benchmarks.latency_ordered` of the same minutes. `python -m benchmarks.spark_floor`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from hotspare.runners.spark.archive import existing_archive
from hotspare.runners.spark.jars import BARE_FILE_SYSTEM, available, cache_folder
from hotspare.runners.spark.session import Session, SessionOptions

CORES = 2


class ConstantReader(SimpleDataSourceStreamReader):  # type: ignore[misc, unused-ignore]
    def initialOffset(self) -> Mapping[str, int]:
        return {"batch": 0}

    def read(self, start: Mapping[str, int]) -> tuple[Iterator[pa.RecordBatch], Mapping[str, int]]:
        return iter([pa.RecordBatch.from_pydict({"value": [b"x"]})]), {"batch": start["batch"] + 1}

    def readBetweenOffsets(self, start: Mapping[str, int], end: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        return iter([pa.RecordBatch.from_pydict({"value": [b"x"]})])

    def commit(self, end: Mapping[str, int]) -> None: ...


class ConstantSource(DataSource):  # type: ignore[misc, unused-ignore]
    @classmethod
    def name(cls) -> str:
        return "constant"

    def schema(self) -> str:
        return "value binary"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return ConstantReader()


def cycles_ms(warm: int, measured: int) -> list[float]:
    """Returns the milliseconds from one batch's call to the next one's."""
    calls: list[float] = []
    enough = threading.Event()

    def take(frame: DataFrame, _batch: int) -> None:
        frame.toArrow()
        calls.append(time.perf_counter())
        if len(calls) > warm + measured:
            enough.set()

    jar, _missing = available(BARE_FILE_SYSTEM)
    archive = existing_archive(cache_folder(), jar)
    session = Session(SessionOptions(CORES, bare_file_system=jar, archive=archive))
    try:
        session.spark.dataSource.register(ConstantSource)
        stream = session.spark.readStream.format("constant").load().writeStream.foreachBatch(take)
        query = stream.option("checkpointLocation", str(session.scratch / "checkpoint")).start()
        enough.wait()
        query.stop()
    finally:
        session.stop()
    return [(after - before) * 1e3 for before, after in itertools.pairwise(calls[warm : warm + measured])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warm", type=int, default=200, help="batches before those that count")
    parser.add_argument("--batches", type=int, default=300)
    options = parser.parse_args()
    cycles = cycles_ms(options.warm, options.batches)
    median = statistics.median(cycles)
    p99 = statistics.quantiles(cycles, n=100)[98]
    print(f"empty micro-batch: p50 {median:.0f} ms, p99 {p99:.0f} ms; 1.5 of them: {1.5 * median:.0f} / {1.5 * p99:.0f} ms")


if __name__ == "__main__":
    main()
