"""The cost of `hotspare persist` by the standby for the active engine: event latency while a state of 1 GB is persisted to a
folder, and without that, in turn (SPEC H3, Z4).

Latency is from the creation of an event to the append time of its output. Two engines of one group and their bus are on one
machine, the worst case: active, standby, bus and snapshot share cores and a disk. Rows of the state are updated in addition to the
measured events. Each persist goes to a folder of its own, so all pages are written. Goal: p99 within 10 % of that without.

    python -m benchmarks.persist [--bus sqlite] [--state-mb 1024] [--rounds 3] [--seconds 15] [--rate 1000]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks._latency import now_us
from benchmarks._site import opened

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.naming import group_name, inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.demo.site import Site
from hotspare.formats import arrow_block
from hotspare.testing.cluster import Cluster, hotspare_command

PREFIX, PROJECT, QUERY = "bench", "large", "q"
FIELDS, ROW_BYTES, BLOCK = 40, 377, 2_000
ROWS, EVENTS = (inbound_topic(PREFIX, PROJECT, QUERY, name) for name in ("rows", "events"))
OUT = outbound_topic(PREFIX, PROJECT, QUERY, "summed")
UPDATES_PER_S = 500
STEP_S = 0.005
TEXT = f"""
project: {PROJECT}
queries:
  {QUERY}:
    windows:
      rows: {{type: source, opcodes: any, index: empty, schema: "id*:int64,{",".join(f"f{i}:int64" for i in range(FIELDS))}"}}
      kept: {{type: copy, publish: false}}
      events: {{type: source, schema: "id*:int64,created:int64", opcodes: insert-only, index: empty}}
      summed:
        type: calculate
        algorithm: Summary
        schema: "id*:int64,created:int64,total:double"
        parameters: {{windowLength: 20}}
        inputs: {{input: id}}
        outputs: {{sumOut: total}}
        index: empty
        publish: true
    edges: [rows -> kept, events -> summed]
"""
ARROW = (("hotspare-format", b"arrow"),)
UPSERT = 3


def rows_block(ids: np.ndarray, random: np.random.Generator) -> Outgoing:
    """Returns upserts of random values, which do not compress."""
    columns = {f"f{i}": random.integers(-(2**63), 2**63 - 1, len(ids)) for i in range(FIELDS)}
    opcodes = np.full(len(ids), UPSERT, np.uint8)
    block = pa.RecordBatch.from_pydict({"opcode": opcodes, "id": ids, **columns})
    return Outgoing(arrow_block.encode(block), ARROW)


def fill(url: str, keys: int) -> None:
    bus, random = open_bus(url), np.random.default_rng(3)
    for begin in range(0, keys, BLOCK):
        bus.append(Partition(ROWS), [rows_block(np.arange(begin, min(keys, begin + BLOCK)), random)])
    bus.close()


def feed(url: str, keys: int, rate: int) -> None:
    """Publishes events until the process is killed."""
    bus, random, begin, sent = open_bus(url), np.random.default_rng(5), time.monotonic(), 0
    while True:
        due = int((time.monotonic() - begin) * rate)
        if due > sent:
            ids = np.arange(sent, due)
            events = pa.RecordBatch.from_pydict({"id": ids, "created": np.full(len(ids), now_us())})
            bus.append(Partition(EVENTS), [Outgoing(arrow_block.encode(events), ARROW)])
            updates = -(-(due - sent) * UPDATES_PER_S // rate)
            bus.append(Partition(ROWS), [rows_block(np.unique(random.integers(0, keys, updates)), random)])
            sent = due
        time.sleep(STEP_S)


@dataclass
class Outputs:
    """The creation time and the append time of the output of every event."""

    url: str
    created: list[np.ndarray] = field(default_factory=list)
    took: list[np.ndarray] = field(default_factory=list)

    def read(self) -> None:
        bus, offset = open_bus(self.url), 0
        while read := bus.read(Partition(OUT), offset, messages_max=1_000, bytes_max=64 << 20):
            for message in read:
                created = arrow_block.decode(message.value).column("created").to_numpy()
                self.created.append(created)
                self.took.append(message.append_time_us - created)
            offset = read[-1].offset + 1
        bus.close()

    def of(self, spans: list[tuple[int, int]]) -> tuple[float, float, float]:
        """Returns p50, p99 and the maximum for events created in these spans, in milliseconds."""
        created, took = np.concatenate(self.created), np.concatenate(self.took) / 1e3
        inside = np.zeros(len(created), bool)
        for begin_us, end_us in spans:
            inside |= (created >= begin_us) & (created < end_us)
        p50, p99 = np.percentile(took[inside], [50, 99])
        return float(p50), float(p99), float(took[inside].max())


def persisted(site: Site, folder: Path, number: int) -> str:
    """Runs a persist to its end and returns what the command printed."""
    to = folder / f"persisted-{number}"
    services = ["--bus", site.bus_url, "--coordination", site.coordination_url, "--store", site.store_url]
    done = subprocess.run(
        hotspare_command("persist", group_name(PREFIX, PROJECT), "--to", str(to), *services),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    shutil.rmtree(to)
    return done.stdout.strip()


def measure(site: Site, folder: Path, options: argparse.Namespace) -> None:
    bus, keys = open_bus(site.bus_url), (options.state_mb << 20) // ROW_BYTES
    for topic in (ROWS, EVENTS, OUT):
        bus.create_topic(topic)
    bus.close()
    project = folder / "large.yaml"
    project.write_text(TEXT)
    fill(site.bus_url, keys)
    group = group_name(PREFIX, PROJECT)
    run_options = ("--runner", "local", "--snapshots", "off", "--store", site.store_url)
    cluster = Cluster(project, site.bus_url, group, PREFIX, folder, run_options, site.coordination_url)
    code = "import sys; from benchmarks.persist import feed; feed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"
    arguments = [sys.executable, "-c", code, site.bus_url, str(keys), str(options.rate)]
    feeder: subprocess.Popen[bytes] | None = None
    spans: dict[str, list[tuple[int, int]]] = {"without": [], "persisting": []}
    try:
        for name in ("one", "two"):
            cluster.start_engine(name)
            cluster.wait_ready()
        cluster.wait_caught_up()
        feeder = subprocess.Popen(arguments)
        time.sleep(options.warm)
        for number in range(options.rounds):
            begin = now_us()
            time.sleep(options.seconds)
            spans["without"].append((begin, now_us()))
            begin = now_us()
            said = persisted(site, folder, number)
            spans["persisting"].append((begin, now_us()))
            print(f"persisted in {(spans['persisting'][-1][1] - begin) / 1e6:.1f} s: {said}", flush=True)
            time.sleep(options.rest)
        time.sleep(options.rest)
    finally:
        if feeder is not None:
            feeder.kill()
            feeder.wait()
        cluster.stop()
    outputs = Outputs(site.bus_url)
    outputs.read()
    found = {name: outputs.of(spans[name]) for name in spans}
    for number, pair in enumerate(zip(spans["without"], spans["persisting"], strict=True)):
        print(f"round {number}: p99 {outputs.of([pair[0]])[1]:.0f} ms without, {outputs.of([pair[1]])[1]:.0f} ms persisting")
    for name, (p50, p99, worst) in found.items():
        print(f"{name}: p50 {p50:.1f} p99 {p99:.1f} max {worst:.1f} ms")
    print(f"p99_ms_without {found['without'][1]:.1f} p99_ms_persisting {found['persisting'][1]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bus", choices=["sqlite", "kafka"], default="sqlite")
    parser.add_argument("--state-mb", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each turn without")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds before the first turn")
    parser.add_argument("--rest", type=float, default=2.0, help="seconds after each persist")
    parser.add_argument("--rate", type=int, default=1_000, help="events a second")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hotspare-persist-", dir=options.folder))
    try:
        with opened(options.bus, folder, 1) as site:
            measure(site, folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
