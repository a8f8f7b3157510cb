"""The cost of each quality of service: throughput and latency of each against no HA at all (SPEC D6, N2, N3, N5).

Every arm has the same number of engines, once one and once two, each with a Spark of its own on the same bus. Those with HA are
`hotspare run`. Without HA the first engine appends its outputs with no transaction, epoch or progress, as many at once as an engine
with HA publishes together. The second one computes and discards.

Throughput: a topic with blocks of 1,000 events waits; rows per second from about the first fifth of the outputs to the last, by the
append times of the bus. Outputs are appended hundreds of thousands at a time. So the count starts at the end of one such append and
stops at the end of the last. They are read when the engines have ended, so as not to take their time. Latency: 1,000 events a
second, from the creation of an event to the append time of its output.

    python -m benchmarks.quality_cost [--bus kafka] [--engines 1 2] [--repeat 3]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks._collected import Collected
from benchmarks._site import fed, opened

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.naming import inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.demo.site import Site
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.formats import arrow_block
from hotspare.projects.load import load_text
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import EndCause, HeadPlace, RunnerEnd, RunnerInput, SourceTopic
from hotspare.testing.cluster import hotspare_command, wait_until

ARMS = {
    "none": "precise",
    "simple": "simple",
    "buffered": "buffered 10000 events",
    "trimmed": "trimmed 1000 events or 1 second",
    "precise": "precise",
}
"""Arm to the quality in its project."""
PREFIX, PROJECT, QUERY, SOURCE, RESULT = "bench", "cost", "q", "events", "summed"
STREAM = f"{QUERY}/{RESULT}"
IN = inbound_topic(PREFIX, PROJECT, QUERY, SOURCE)
OUT = outbound_topic(PREFIX, PROJECT, QUERY, RESULT)
BLOCK, OUT_BLOCK = 1_000, 8_000
"""Rows of a message, in and out."""
BLOCKS_AT_ONCE = 50
"""Messages of one append of the input."""
TIMEOUT_S = 300.0
LOOKUP_TIMEOUT_S = 0.2
AFTER_S = 3.0
"""The time in which the last counted events are answered."""


def project(quality: str) -> str:
    return f"""
project: {PROJECT}
queries:
  {QUERY}:
    windows:
      {SOURCE}: {{type: source, schema: "id*:int64,created:int64", opcodes: insert-only, index: empty}}
      {RESULT}:
        type: calculate
        algorithm: Summary
        schema: "id*:int64,created:int64,total:double"
        parameters: {{windowLength: 20}}
        inputs: {{input: id}}
        outputs: {{sumOut: total}}
        index: empty
        publish: true
        quality: {quality}
    edges: [{SOURCE} -> {RESULT}]
"""


class WithoutHa:
    """An engine without coordination; the second one does not publish."""

    def __init__(self, url: str, *, publishes: bool) -> None:
        self._bus, self._publishes = open_bus(url), publishes
        plan = compile_plan(load_text(project("precise")).resolved)
        self._pipeline = Pipeline.fresh(plan)
        self._collected = Collected()
        self._source = RunnerInput(url, (SourceTopic(IN),), Head.from_plan(plan), HeadPlace.DRIVER)

    def run(self) -> None:
        from hotspare.runners.spark.ordered import OrderedRunner

        runner = OrderedRunner(self._source, self._take, self._end)
        runner.start({})
        sys.stdin.readline()  # until the parent closes it
        runner.stop()

    def _take(self, decoded: pa.Table, next_input: NextInput) -> None:
        made = self._collected.due(self._pipeline.feed(decoded).get(STREAM), next_input)
        if made is not None and self._publishes:
            self._bus.append(
                Partition(OUT), [Outgoing(arrow_block.encode(block)) for block in made.to_batches(max_chunksize=OUT_BLOCK)]
            )

    def _end(self, end: RunnerEnd) -> None:
        if end.cause is not EndCause.STOPPED:
            print(f"ended: {end.error}", file=sys.stderr, flush=True)


def engine_command(arm: str, number: int, site: Site, folder: Path) -> list[str]:
    if arm == "none":
        return [sys.executable, "-m", "benchmarks.quality_cost", "--without-ha", str(number), "--url", site.bus_url]
    file = folder / "cost.yaml"
    file.write_text(project(ARMS[arm]))
    urls = ["--bus", site.bus_url, "--coordination", site.coordination_url, "--store", site.store_url]
    return hotspare_command("run", str(file), *urls, "--prefix", PREFIX, "--engine", f"engine-{number}", "--restart", "never")


@contextmanager
def engines(arm: str, count: int, site: Site, folder: Path) -> Iterator[None]:
    """Runs engine processes, and ends them at exit."""
    processes = []
    try:
        for number in range(count):
            with (folder / f"{arm}-{number}.log").open("wb") as log:
                arguments = engine_command(arm, number, site, folder)
                processes.append(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=log, stderr=log))
        yield
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            process.terminate()
        for process in processes:
            process.wait(30)


class Outputs:
    """The content of the output topic: for each message its rows' `created` and its append time."""

    def __init__(self, url: str) -> None:
        self._bus, self._offset = open_bus(url), 0
        self.created: list[np.ndarray] = []
        self.times_us: list[int] = []
        self.rows = 0

    def poll(self) -> int:
        while read := self._bus.read(Partition(OUT), self._offset, messages_max=1_000, bytes_max=64 << 20):
            for message in read:
                created = arrow_block.decode(message.value).column("created").to_numpy()
                self.created.append(created)
                self.times_us.append(message.append_time_us)
                self.rows += len(created)
            self._offset = read[-1].offset + 1
        return self.rows

    def newest(self) -> int:
        """Waits a moment and returns the count of rows, as `fill` numbers them; reads no more than the last messages."""
        time.sleep(LOOKUP_TIMEOUT_S)
        end = self._bus.end_offset(Partition(OUT))
        read = self._bus.read(Partition(OUT), max(0, end - 4), messages_max=4, bytes_max=64 << 20) if end else ()
        return arrow_block.decode(read[-1].value).column("created")[-1].as_py() + 1 if read else 0

    def rows_per_s(self) -> float:
        """Returns the rate from the end of an append, after about a fifth of the rows, to the end of the last."""
        rows, times_us = np.cumsum([len(created) for created in self.created]), np.array(self.times_us)
        fifth, two_fifths = np.searchsorted(rows, (rows[-1] / 5, rows[-1] * 2 / 5))
        begin = fifth + int(np.argmax(np.diff(times_us[fifth : two_fifths + 1])))
        return float((rows[-1] - rows[begin]) / ((times_us[-1] - times_us[begin]) / 1e6))


def fill(url: str, events: int) -> None:
    bus, blocks = open_bus(url), []
    for at in range(0, events, BLOCK):
        ids = np.arange(at, at + BLOCK)
        block = pa.RecordBatch.from_pydict({"id": ids, "created": ids})
        blocks.append(Outgoing(arrow_block.encode(block), (("hotspare-format", b"arrow"),)))
    for first in range(0, len(blocks), BLOCKS_AT_ONCE):
        bus.append(Partition(IN), blocks[first : first + BLOCKS_AT_ONCE])
    bus.close()


def throughput(arm: str, count: int, site: Site, folder: Path, events: int) -> float:
    """Returns rows per second, as this module's docstring describes."""
    bus = open_bus(site.bus_url)
    for topic in (IN, OUT):
        bus.create_topic(topic)
    fill(site.bus_url, events)
    outputs = Outputs(site.bus_url)
    with engines(arm, count, site, folder):
        wait_until(lambda: outputs.newest() >= events, "all outputs", TIMEOUT_S)
    assert outputs.poll() == events
    return outputs.rows_per_s()


def latency_ms(arm: str, count: int, site: Site, folder: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Returns p50 and p99 at an even rate, from `warm` seconds after the first output on."""
    bus = open_bus(site.bus_url)
    for topic in (IN, OUT):
        bus.create_topic(topic)
    outputs = Outputs(site.bus_url)
    with engines(arm, count, site, folder):
        with fed(site.bus_url, options.rate, 2 * TIMEOUT_S, IN):
            wait_until(lambda: outputs.poll() > 0, "a first output", TIMEOUT_S)
            begin_us = time.time_ns() / 1e3 + options.warm * 1e6
            time.sleep(options.warm + options.seconds + AFTER_S)
        outputs.poll()
    created = np.concatenate(outputs.created)
    done = np.repeat(outputs.times_us, [len(part) for part in outputs.created])
    counted = (begin_us <= created) & (created < begin_us + options.seconds * 1e6)
    p50, p99 = np.percentile((done[counted] - created[counted]) / 1e3, [50, 99])
    return float(p50), float(p99)


def measure(arm: str, count: int, options: argparse.Namespace) -> tuple[float, float, float]:
    results: list[float] = []
    for what in ("throughput", "latency"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with opened(options.bus, folder, brokers=1) as site:
                if what == "throughput":
                    results.append(throughput(arm, count, site, folder, options.events))
                else:
                    results += latency_ms(arm, count, site, folder, options)
    return results[0], results[1], results[2]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bus", choices=("sqlite", "kafka"), default="sqlite")
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=list(ARMS))
    parser.add_argument("--events", type=int, default=12_000_000)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--warm", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--without-ha", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.without_ha is not None:
        WithoutHa(options.url, publishes=options.without_ha == 0).run()
        return
    for count in options.engines:
        print(f"{options.bus}, {count} engine(s)", flush=True)
        found: dict[str, list[tuple[float, float, float]]] = {arm: [] for arm in options.arms}
        for _ in range(options.repeat):
            for arm in options.arms:
                found[arm].append(measure(arm, count, options))
        base = np.median(found.get("none", found[options.arms[0]]), axis=0)
        for arm in options.arms:
            rate, p50, p99 = np.median(found[arm], axis=0)
            print(f"{arm:9} {rate / 1e3:7.0f} k rows/s ({rate / base[0]:.2f})", end="  ")
            print(f"p50 {p50:4.0f} p99 {p99:4.0f} ms ({p50 / base[1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
