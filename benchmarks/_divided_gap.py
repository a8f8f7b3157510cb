"""Gaps of shards after kill -9 of an executor and of a driver, and their phases: a part of `benchmarks.scale_out`.

A gap begins with the signal, though the struck engines may publish for a moment longer, because the killed process is the parent of
theirs. So the silence is reported too: from the last output of the old epoch to the first of the new one.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks._divided import Divided, Struck, kill_driver, kill_executor, wait_hosted
from benchmarks._divided_load import FirstOutput, Watch
from benchmarks._latency import now_us

from hotspare.base.processes import has_process_ended, is_process_ending, process_start
from hotspare.demo.faults import quantile
from hotspare.demo.site import Site
from hotspare.testing.cluster import Cluster, wait_until

GOAL = "goal p50 150, p99 500"
TIMEOUT_S = 120.0
KILLS: Mapping[str, Callable[[Cluster, Divided], Struck]] = {"executor": kill_executor, "driver": kill_driver}
TOLD = {"executor": "an executor", "task": "a task's process", "driver": "a driver"}
JSON_LOG = ("--log-format", "json")
_LOOK_S = 0.002
_LOGGED_S = 1.0
"""Tasks send their log lines twice a second."""

PHASES = {
    "ended": "the struck engine's process begins to end",
    "noticed": "its spare has noticed",
    "campaign": "the spare begins to campaign",
    "won": "the epoch is won",
    "fenced": "its predecessor is fenced",
    "read": "what is committed is read",
    "checked": "the epoch is read again",
    "publish": "there is an output to publish",
    "appended": "the bus has it",
    "reader": "a reader has it",
}
"""Each phase begins at the end of the previous one."""
Watched = Callable[[Divided, int, argparse.Namespace, Sequence[str]], AbstractContextManager[tuple[Cluster, Watch]]]
"""Starts this number of applications of a project with more options, an even load, and a reader of the outputs."""


@dataclass(frozen=True, slots=True)
class Gap:
    """The gap of one shard, in microseconds since 1970."""

    group: str
    struck_us: int
    ended_us: int | None
    first: FirstOutput

    @property
    def appended_ms(self) -> float:
        return (self.first.appended_us - self.struck_us) / 1000

    @property
    def read_ms(self) -> float:
        return (self.first.read_us - self.struck_us) / 1000

    @property
    def silent_ms(self) -> float:
        return (self.first.appended_us - self.first.before_us) / 1000


@contextmanager
def _ends(struck: Struck) -> Iterator[dict[int, int]]:
    """Yields when each process of the struck engines was seen to begin to end, by process id."""
    seen: dict[int, int] = {}
    is_over = threading.Event()
    starts = {process_id: process_start(process_id) for process_id in set(struck.processes.values())}

    def look() -> None:
        while not is_over.wait(_LOOK_S) and starts.keys() - seen.keys():
            for process_id in starts.keys() - seen.keys():
                if is_process_ending(process_id) or has_process_ended(process_id, starts[process_id]):
                    seen[process_id] = now_us()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()


def gaps_of(struck: Struck, project: Divided, watch: Watch) -> list[Gap]:
    """Returns the gap of each struck shard, once all have outputs again."""
    firsts: dict[int, FirstOutput] = {}

    def is_back() -> bool:
        for number in struck.leaders.keys() - firsts.keys():
            first = watch.first_output_us(number, struck.leaders[number].epoch)
            if first is not None:
                firsts[number] = first
        return len(firsts) == len(struck.leaders)

    with _ends(struck) as ended:
        wait_until(is_back, f"output of the shards after kill -9 of the {struck.what} of {struck.application}", TIMEOUT_S)
    return [
        Gap(project.groups[number], struck.at_us, ended.get(struck.processes[number]), first) for number, first in firsts.items()
    ]


def gap(site: Site, folder: Path, options: argparse.Namespace, watched: Watched) -> None:
    """Strikes repeatedly, each time after all applications host complete engines again."""
    project, rng = Divided(site, folder, "gap", options.shards), random.Random(options.seed)
    with watched(project, 2, options, JSON_LOG) as (cluster, watch):
        for kind in options.kinds:
            found: list[Gap] = []
            for _ in range(options.kills):
                wait_hosted(cluster, project)
                time.sleep(rng.uniform(1, 3))
                struck = KILLS[kind](cluster, project)
                found += gaps_of(struck, project, watch)
                if struck.application not in cluster.engines:
                    cluster.start_engine(struck.application)
            time.sleep(_LOGGED_S)
            promotions = logged_promotions(sorted((folder / project.prefix).glob("*.log")))
            print("\n".join(report(TOLD[struck.what], options.kills, found, promotions)), flush=True)


def report(what: str, kills: int, found: Sequence[Gap], promotions: Mapping[tuple[str, int], Mapping[str, int]]) -> Iterator[str]:
    appended = [each.appended_ms for each in found]
    yield f"kill -9 of {what}, {kills} times, {told('gap_ms', appended)} until output"
    yield f"   all: {' '.join(f'{ms:.0f}' for ms in sorted(appended))}"
    yield f"   {told('gap_ms', [each.read_ms for each in found])} until a reader has it   {GOAL}"
    yield f"   {told('silent_ms', [each.silent_ms for each in found])} since the last output before"
    logged = [(each, promotions.get((each.group, each.first.epoch))) for each in found]
    parts = [phases_ms(each, promotion) for each, promotion in logged if promotion is not None]
    yield f"   phases of {len(parts)} shards, ms, p50/max:"
    for name, meaning in PHASES.items():
        values = [each[name] for each in parts if name in each]
        if values:
            yield f"      {name:9} {quantile(values, 0.5):5.0f} {max(values):5.0f}   {meaning}"


def told(name: str, values: Sequence[float]) -> str:
    found = list(values)
    return f"{len(found)} shards: {name} p50 {quantile(found, 0.5):.0f} p99 {quantile(found, 0.99):.0f} max {max(found):.0f}"


def logged_promotions(logs: Iterable[Path]) -> dict[tuple[str, int], dict[str, int]]:
    """Returns what engines logged of promotions, by group and epoch: numbers in ms, and `time_us`, when the first output was
    committed."""
    found = {}
    for log in logs:
        for line in log.read_text(errors="replace").splitlines():
            if '"promoted"' in line and line.startswith("{"):
                fields = json.loads(line)
                numbers = {name: value for name, value in fields.items() if name.endswith("_ms")}
                time_us = round(datetime.fromisoformat(fields["timestamp"]).timestamp() * 1e6)
                found[fields["group"], int(fields["epoch"])] = {**numbers, "time_us": time_us}
    return found


def phases_ms(gap: Gap, promotion: Mapping[str, int]) -> dict[str, float]:
    """Returns the durations of a gap's PHASES in ms."""
    noticed_us = promotion["time_us"] - 1000 * promotion["total_ms"]
    at = {
        "noticed": noticed_us,
        "campaign": noticed_us + 1000 * promotion["waiting_ms"],
        "won": noticed_us + 1000 * promotion["election_ms"],
        "fenced": noticed_us + 1000 * (promotion["election_ms"] + promotion["fencing_ms"]),
        "checked": promotion["time_us"] - 1000 * promotion["first_output_ms"],
        "read": promotion["time_us"] - 1000 * (promotion["first_output_ms"] + promotion["checking_ms"]),
        "publish": promotion["time_us"] - 1000 * promotion["committing_ms"],
        "appended": gap.first.appended_us,
        "reader": gap.first.read_us,
    }
    if gap.ended_us is not None:
        at["ended"] = gap.ended_us
    found, before_us = {}, gap.struck_us
    for name in PHASES:
        if name in at:
            found[name] = (at[name] - before_us) / 1000
            before_us = at[name]
    return found
