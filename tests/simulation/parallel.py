"""Seeds in two processes, each started afresh; a planted mistake by its name."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.simulation.planted import PLANTED
from tests.simulation.run import Outcome, run_seed

WORKERS = 2


def pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn"))


def failures(first: int, count: int, planted: str = "") -> list[Outcome]:
    """The failures among these seeds; with a planted mistake, the first one only."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            with PLANTED[planted]() if planted else contextlib.nullcontext():
                outcome = run_seed(seed, Path(folder))
            if outcome.failure:
                found.append(outcome)
                if planted:
                    break
    return found


def spread(executor: ProcessPoolExecutor, first: int, count: int, chunk: int, planted: str = "") -> Iterator[Outcome]:
    """The failures among these seeds as they are found; a consumer that has enough just stops."""
    waiting: set[Future[list[Outcome]]] = {
        executor.submit(failures, begin, min(chunk, first + count - begin), planted) for begin in range(first, first + count, chunk)
    }
    try:
        for future in as_completed(waiting):
            yield from future.result()
    finally:
        for future in waiting:
            future.cancel()
