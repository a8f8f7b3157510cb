"""Latency at 1,000 events/s through Spark, from the creation of an event to its committed output, one engine and two (SPEC N3).

SQLite or Kafka bus (one broker, started here), `ordered` runner, head in the driver or in workers, core (sum over 20 rows), one
fenced transaction with progress per batch. The second engine does the same work and publishes nothing. The reader is a process that
reads committed messages. `python -m benchmarks.latency_ordered [--bus kafka]`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks._latency import TOPIC, Latencies, Window, bus_url, seconds_in_all, start_feeder, table
from benchmarks._latency import now_us as now_us_

from hotspare.bus.contract import Commit, Outgoing, Partition, Progress
from hotspare.bus.open import open_bus
from hotspare.flow.head.head import Head
from hotspare.flow.pipeline import Pipeline
from hotspare.flow.plan import compile_plan
from hotspare.formats import arrow_block
from hotspare.projects.load import load_text
from hotspare.projects.resolve import resolve
from hotspare.rows.batch import NextInput
from hotspare.runners.contract import EndCause, HeadPlace, RunnerEnd, RunnerInput, SourceTopic

PROJECT = f"""
project: latency
queries:
  q:
    windows:
      {TOPIC}:
        type: source
        schema: id*:int64,created:int64
        opcodes: insert-only
        index: empty
      summed:
        type: calculate
        algorithm: Summary
        schema: id*:int64,created:int64,total:int64
        parameters: {{windowLength: 20}}
        inputs: {{input: created}}
        outputs: {{sumOut: total}}
        index: empty
    edges: [{TOPIC} -> summed]
"""
STREAM = "q/summed"
OUT = "out"
READER = "reader"


class Engine:
    """An engine process; a spare does not publish."""

    def __init__(self, url: str, name: str, options: argparse.Namespace) -> None:
        self._name = name
        self._publishes = name == "active"
        self._bus = open_bus(url)
        plan = compile_plan(resolve(load_text(PROJECT).project))
        head = Head.from_plan(plan)
        self._pipeline = Pipeline.fresh(plan)
        self._producer = self._bus.producer("bench", [OUT]) if self._publishes else None
        if self._producer is not None:
            self._producer.fence(1)
        self._source = RunnerInput(url, (SourceTopic(TOPIC),), head, HeadPlace(options.head))
        self._times = (options.warm, options.seconds)
        self._latencies: Latencies | None = None
        self._over = threading.Event()

    def run(self) -> None:
        from hotspare.runners.spark.ordered import OrderedRunner

        runner = OrderedRunner(self._source, self._take, self._ended)
        if runner.notice:
            print(runner.notice, file=sys.stderr, flush=True)
        runner.start({})
        print("started", flush=True)
        sys.stdin.readline()  # all engines have started
        self._latencies = Latencies(Window.after(*self._times))
        self._over.wait(seconds_in_all(*self._times) + 1)
        runner.stop()
        print(self._latencies.report(self._name), flush=True)

    def _take(self, decoded: pa.Table, _: NextInput) -> None:
        outputs = self._pipeline.feed(decoded)
        made = outputs.get(STREAM)
        if made is None:
            return
        if self._producer is not None:
            progress = Progress(
                self._pipeline.sequences[STREAM], self._pipeline.last_ids[STREAM], self._pipeline.digests[STREAM], 1
            )
            self._producer.publish(1, Commit({OUT: [Outgoing(arrow_block.encode(made))]}, {STREAM: progress}))
        if self._latencies is not None:
            self._latencies.add(made.column("created").to_numpy().astype(np.int64), now_us_())

    def _ended(self, end: RunnerEnd) -> None:
        if end.cause is not EndCause.STOPPED:
            print(f"{self._name} ended: {end.error}", file=sys.stderr, flush=True)
        self._over.set()


def read(url: str, warm_s: float, measured_s: float) -> None:
    """Runs in a process of its own: measures the latency at which a reader of committed messages has each output."""
    bus = open_bus(url)
    where = Partition(OUT)
    offset = bus.end_offset(where)
    print("started", flush=True)
    sys.stdin.readline()
    latencies = Latencies(Window.after(warm_s, measured_s))
    end = time.monotonic() + seconds_in_all(warm_s, measured_s) + 1
    while time.monotonic() < end:
        for message in bus.read(where, offset, messages_max=1000, bytes_max=1 << 24, wait_ms=100):
            offset = message.offset + 1
            with pa.ipc.open_stream(message.value) as stream:
                created = stream.read_all().column("created").to_numpy()
            latencies.add(created.astype(np.int64), now_us_())
    print(latencies.report(READER), flush=True)


def measure(engines: list[str], place: HeadPlace, options: argparse.Namespace) -> list[str]:
    """Returns the reports of engines that run concurrently."""
    with tempfile.TemporaryDirectory() as folder, bus_url(options.bus, Path(folder)) as url:
        bus = open_bus(url)
        for topic in (TOPIC, OUT):
            bus.create_topic(topic)
        processes = []
        for name in [*engines, READER]:
            command = [sys.executable, "-m", "benchmarks.latency_ordered", "--engine", name, "--url", url, "--head", place.value]
            command += ["--warm", str(options.warm), "--seconds", str(options.seconds)]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "started\n":
                raise SystemExit("an engine did not start")
        feeder = start_feeder(url, options.rate, seconds_in_all(options.warm, options.seconds))
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        reports = [process.communicate()[0].splitlines()[-1] for process in processes]
        feeder.wait()
        bus.close()
    return reports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--warm", type=float, default=20.0, help="seconds before what is measured")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--head", choices=[p.value for p in HeadPlace])
    parser.add_argument("--bus", choices=["sqlite", "kafka"], default="sqlite")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine == READER:
        read(options.url, options.warm, options.seconds)
        return
    if options.engine:
        Engine(options.url, options.engine, options).run()
        return
    for place in [HeadPlace(options.head)] if options.head else list(HeadPlace):
        for engines in (["active"], ["active", "spare"]):
            print(f"{options.rate} events/s, {len(engines)} engine(s), head in {place.value}, {options.bus}", flush=True)
            print(table(measure(engines, place, options)), flush=True)


if __name__ == "__main__":
    main()
