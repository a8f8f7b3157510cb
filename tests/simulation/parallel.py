"""Runs seeds on several cores, each process started afresh; a planted bug is given by its name."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulation.applications import run_applications
from tests.simulation.cascade import run_cascade
from tests.simulation.checkers import Violation
from tests.simulation.hangs import run_hangs
from tests.simulation.planted import PLANTED
from tests.simulation.planting import Groups
from tests.simulation.recent import run_recent
from tests.simulation.run import Outcome, run_seed
from tests.simulation.shards import run_shards
from tests.simulation.weeks import Weeks

WORKERS = 2
_RUNS_PER_COLLECTION = 20
_RUNS: dict[Groups, Callable[..., Outcome]] = {
    Groups.ONE: run_seed,
    Groups.SHARDS: run_shards,
    Groups.CASCADE: run_cascade,
    Groups.RECENT: run_recent,
    Groups.HANGS: run_hangs,
    Groups.APPLICATIONS: run_applications,
}


@dataclass
class Share:
    """The results of some seeds. `longest`: the most steps until a due output was delivered once faults had ended."""

    runs: int = 0
    steps: int = 0
    commits: int = 0
    delivered: int = 0
    longest: int = 0
    failed: list[Outcome] = field(default_factory=list)
    covered: Counter[str] = field(default_factory=Counter)

    def take(self, outcome: Outcome) -> None:
        self.runs += 1
        self.steps += outcome.steps
        self.commits += outcome.commits
        self.delivered += outcome.delivered
        self.longest = max(self.longest, outcome.healing_steps)
        self.covered.update(outcome.covered)
        if outcome.failure:
            self.failed.append(outcome)

    def add(self, other: Share) -> None:
        self.runs += other.runs
        self.steps += other.steps
        self.commits += other.commits
        self.delivered += other.delivered
        self.longest = max(self.longest, other.longest)
        self.covered.update(other.covered)
        self.failed += other.failed


@contextlib.contextmanager
def pool(workers: int = WORKERS) -> Iterator[ProcessPoolExecutor]:
    """Starts processes for `spread`. At the end, which may be an interrupt, runs in progress are killed, not awaited."""
    others = set(multiprocessing.active_children())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        context = multiprocessing.get_context("spawn")
        executor = ProcessPoolExecutor(workers, context, _use_folder, (folder,))
        try:
            yield executor
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            for each in set(multiprocessing.active_children()) - others:
                each.kill()
                each.join()


def _use_folder(folder: str) -> None:
    """Sets the folder for temporary files of a process of a pool."""
    tempfile.tempdir = folder


def share_of(first: int, count: int, planted: str = "", groups: Groups = Groups.ONE) -> Share:
    """Runs these seeds one after the other; with a planted bug, in runs of the groups that must find it, until it is found."""
    share = Share()
    mistake = PLANTED[planted] if planted else None
    run = _RUNS[mistake.groups if mistake else groups]
    gc.disable()  # garbage is collected between runs, which is much less work
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            with mistake() if mistake else contextlib.nullcontext():
                share.take(run(seed, Path(folder), favoured=mistake.favours if mistake else frozenset()))
            if share.runs % _RUNS_PER_COLLECTION == 0:
                gc.collect()
            if mistake and share.failed:
                break
    gc.enable()
    return share


def weeks_of(weeks: int, event_every_ms: int, seed: int) -> str:
    """Simulates `weeks` weeks of a group. Returns "" unless something grew, or was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            Weeks(Path(folder), event_every_ms, seed).run(weeks)
        except Violation as violation:
            return str(violation)
    return ""


def spread(
    executor: ProcessPoolExecutor, first: int, count: int, chunk: int, planted: str = "", groups: Groups = Groups.ONE
) -> Iterator[Share]:
    """Yields the shares of all these seeds, chunk by chunk as they are done. The consumer may stop at any time."""
    waiting: set[Future[Share]] = {
        executor.submit(share_of, begin, min(chunk, first + count - begin), planted, groups)
        for begin in range(first, first + count, chunk)
    }
    try:
        for future in as_completed(waiting):
            yield future.result()
    finally:
        for future in waiting:
            future.cancel()
