"""Kills, JVM kills and freezes at random instants, one after another, under load; the output must be exact (SPEC E14, N3).

    make chaos-embedded                                  20 kills, 5 of the JVM, 5 freezes; about 8 minutes
    make chaos-embedded ARGS="--kills 50 --jvm 0 --freezes 0 --seed 3"
    python -m benchmarks.kill_loop --site kafka          the same on three Kafka brokers and a ZooKeeper

Prints the gap of every fault (milliseconds): until the bus has the first output, and until the engine knows that it is committed,
so that any reader has it. Also prints the parts of the second: detection, election, fencing and reading, first output. Exit status
0 only if the output is exact and no process is left over.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks._site import opened

from hotspare.demo.faults import Fault, quantile
from hotspare.demo.scenario import Demo, DemoOptions, DemoReport, EndOfInput

_PARTS = ("detection_ms", "election_ms", "fencing_ms", "reading_ms", "first_output_ms")
_SECONDS_PER_FAULT_MAX = 120.0
"""Readings last this long per fault, plus the pauses; they end with the last fault. If they ended before it, a gap would be the
time to the next reading."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """An engine's log entry about its first output: when that was committed, and the duration of each part."""

    committed_time_us: int
    parts_ms: dict[str, float]


def promotions(logs: Iterable[Path]) -> dict[int, Promotion]:
    """Returns the promotions by epoch."""
    found: dict[int, Promotion] = {}
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            if '"promoted"' in line:
                fields = json.loads(line)
                time_us = round(datetime.fromisoformat(fields["timestamp"]).timestamp() * 1e6)
                found[int(fields["epoch"])] = Promotion(time_us, {name: float(fields.get(name, 0)) for name in _PARTS[1:]})
    return found


def walk_typed(committed_ms: float, promotion: Promotion) -> dict[str, float]:
    """Returns the parts of the time until the first output is committed; detection is the rest, before the engine noticed that the
    role is free."""
    return {"detection_ms": committed_ms - sum(promotion.parts_ms.values()), **promotion.parts_ms}


def _told(what: str, values: list[float]) -> str:
    return f"{what} p50 {quantile(values, 0.5):.0f} p99 {quantile(values, 0.99):.0f} max {max(values, default=0):.0f}"


def print_gaps(report: DemoReport, folder: Path) -> None:
    found = promotions(sorted(folder.glob("*-engine-*.log")))
    for fault in Fault:
        gaps = [g for g in report.gaps if g.fault is fault]
        if not gaps:
            continue
        values = [g.gap_ms for g in gaps]
        print(f"{fault.value}: {len(gaps)} times, {_told('gap_ms', values)}; all: {' '.join(f'{v:.0f}' for v in sorted(values))}")
        known = [((found[g.epoch].committed_time_us - g.fault_time_us) / 1000, found[g.epoch]) for g in gaps if g.epoch in found]
        parts = [walk_typed(*each) for each in known]
        medians = (f"{name} {quantile([p[name] for p in parts], 0.5):.0f}" for name in _PARTS)
        print(f"   {_told('until committed, ms:', [ms for ms, _ in known])}; of it, medians: {', '.join(medians)}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--jvm", type=int, default=5)
    parser.add_argument("--freezes", type=int, default=5)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--pause", type=float, nargs=2, default=(0.0, 2.0), metavar=("MIN", "MAX"), help="seconds before a fault")
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args(arguments)
    rng = random.Random(options.seed)
    shortest_s, longest_s = options.pause
    faults = [Fault.KILL] * options.kills + [Fault.KILL_JVM] * options.jvm + [Fault.FREEZE] * options.freezes
    rng.shuffle(faults)
    folder = Path(tempfile.mkdtemp(prefix="hotspare-chaos-"))
    print(f"seed {options.seed}, {len(faults)} faults at {options.rate:g} events/s, folder {folder}", flush=True)
    with opened(options.site, folder) as site:
        demo = DemoOptions(
            folder,
            site,
            events=int(options.rate * (_SECONDS_PER_FAULT_MAX + longest_s) * (len(faults) + 1)),
            rate=options.rate,
            faults=tuple(faults),
            spares=options.spares,
            pause_s=lambda number: rng.uniform(shortest_s, longest_s),
            engine_options=("--log-format", "json"),
            end=EndOfInput.AFTER_FAULTS,
        )
        run = Demo(demo, lambda sentence: print(sentence, flush=True))
        report = run.run()
    print_gaps(report, folder)
    left = run.cluster.leftovers()
    for line in left:
        print(f"left over: {line}")
    print(report.last_line())
    is_good = report.is_exact and not left
    if is_good and not options.keep:
        shutil.rmtree(folder)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
