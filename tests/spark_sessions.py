"""Sessions of Spark for tests. Their start dominates a test of a few rows. So they use every option that makes an engine's session
quick, and all that need no options of their own share one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotspare.base.errors import RunnerError
from hotspare.runners.spark.archive import existing_archive
from hotspare.runners.spark.jars import BARE_FILE_SYSTEM, available, cache_folder
from hotspare.runners.spark.session import Session, SessionOptions

FEW_PARTITIONS = {"spark.sql.shuffle.partitions": "3"}
"""A shuffle has 200 tasks by default, each of which takes longer than the few rows of a test."""


def quick_options(cores: int, jars: tuple[Path, ...] = ()) -> SessionOptions:
    """Returns the options of the `ordered` runner: the classes, jars and file system that make a start and a batch quick."""
    jar, _ = available(BARE_FILE_SYSTEM)
    return SessionOptions(cores, jar, jars, existing_archive(cache_folder(), jar), conf=FEW_PARTITIONS)


class Lent:
    """A runner's share of a session that outlives it: settings, sources and a scratch folder of its own."""

    def __init__(self, session: Session, scratch: Path) -> None:
        scratch.mkdir()
        self._session, self.scratch = session, scratch
        self.spark = session.spark.newSession()
        self.jvm = session.jvm

    def jvm_is_alive(self) -> bool:
        return self._session.jvm_is_alive()

    def wait_for_death(self) -> RunnerError:
        return self._session.wait_for_death()

    def dies_within(self, seconds: float) -> bool:
        return self._session.dies_within(seconds)

    def end_planners(self) -> None:
        """Does nothing: the next borrower plans with them."""

    def stop(self) -> None:
        """Does nothing: the lender ends the session."""


class Lender:
    """Starts one session at the first request, and lends it to every borrower. `begin` also serves the `ordered` runner."""

    def __init__(self) -> None:
        self._session: Session | None = None
        self._options: SessionOptions | None = None
        self._lent = 0

    @property
    def spark(self) -> Any:
        """A `SparkSession` of the shared JVM with settings of its own. Unlike a runner's, its jobs end with the first failed task:
        an error that the rows cause would recur as often as a runner's tasks may fail."""
        options = quick_options(cores=2)
        return self.begin(replace(options, conf={**options.conf, "spark.master": "local[2]"})).spark

    def begin(self, options: SessionOptions) -> Any:
        """Lends the shared session, or starts another one if that has other options or its JVM is gone."""
        if self._session is None or options != self._options or not self._session.jvm_is_alive():
            self.end()
            self._session, self._options = Session(options), options
        self._lent += 1
        return Lent(self._session, self._session.scratch / f"{self._lent}")

    def end(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = None


@contextmanager
def lending() -> Iterator[Lender]:
    lender = Lender()
    try:
        yield lender
    finally:
        lender.end()
