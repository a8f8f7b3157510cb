"""Seeds on several cores, each process started afresh; a planted mistake by its name."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.planted import PLANTED
from tests.simulation.run import Outcome, run_seed

WORKERS = 2
_RUNS_PER_COLLECTION = 20


@dataclass
class Share:
    """What some seeds came to. `longest`: the most steps that anything due took once faults had ended."""

    runs: int = 0
    steps: int = 0
    commits: int = 0
    delivered: int = 0
    longest: int = 0
    failed: list[Outcome] = field(default_factory=list)

    def take(self, outcome: Outcome) -> None:
        self.runs += 1
        self.steps += outcome.steps
        self.commits += outcome.commits
        self.delivered += outcome.delivered
        self.longest = max(self.longest, outcome.healing_steps)
        if outcome.failure:
            self.failed.append(outcome)

    def add(self, other: Share) -> None:
        self.runs += other.runs
        self.steps += other.steps
        self.commits += other.commits
        self.delivered += other.delivered
        self.longest = max(self.longest, other.longest)
        self.failed += other.failed


def pool(workers: int = WORKERS) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


def share_of(first: int, count: int, planted: str = "") -> Share:
    """These seeds one after the other; with a planted mistake, until it is found."""
    share = Share()
    mistake = PLANTED[planted] if planted else None
    gc.disable()  # what a run leaves behind is collected between runs, which is much less work
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            with mistake() if mistake else contextlib.nullcontext():
                share.take(run_seed(seed, Path(folder), favoured=mistake.favours if mistake else frozenset()))
            if share.runs % _RUNS_PER_COLLECTION == 0:
                gc.collect()
            if mistake and share.failed:
                break
    gc.enable()
    return share


def spread(executor: ProcessPoolExecutor, first: int, count: int, chunk: int, planted: str = "") -> Iterator[Share]:
    """All these seeds, chunk by chunk as they are done; a consumer that has enough just stops."""
    waiting: set[Future[Share]] = {
        executor.submit(share_of, begin, min(chunk, first + count - begin), planted) for begin in range(first, first + count, chunk)
    }
    try:
        for future in as_completed(waiting):
            yield future.result()
    finally:
        for future in waiting:
            future.cancel()
