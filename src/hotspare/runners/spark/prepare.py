"""Prepares this machine for Spark, ahead of time: `python -m hotspare.runners.spark.prepare`.

The program fetches one jar, and makes the archive of Spark's loaded classes: a session runs a small query and writes the archive
when it ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from hotspare.base.errors import HotspareError, RunnerError
from hotspare.base.file_locks import exclusive_lock
from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.runners.contract import BatchLimits, RunnerEnd, RunnerInput, SourceTopic
from hotspare.runners.spark.archive import archive_path
from hotspare.runners.spark.jars import (
    BARE_FILE_SYSTEM,
    available,
    cache_folder,
    ensure,
)
from hotspare.runners.spark.ordered import OrderedRunner
from hotspare.runners.spark.session import SessionOptions

TRAINING_TIMEOUT_S = 180.0
_KEPT = 4
_TRAINING_BATCHES = 5
_LIMITS = BatchLimits(messages_max=10)


def main() -> int:
    """Fetches the jar and makes the archive; returns the exit status. If a file fails, prints the reason, continues with the
    other file, and returns 1."""
    folder = cache_folder()
    status = _printed_result(lambda: ensure(BARE_FILE_SYSTEM, folder))
    bare, _ = available(BARE_FILE_SYSTEM)
    return status | _printed_result(lambda: ensure_archive(folder, bare))


def _printed_result(make: Callable[[], Path]) -> int:
    """Calls `make` and prints the path that it returns, or its error; returns the exit status."""
    try:
        sys.stdout.write(f"{make()}\n")
    except HotspareError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def ensure_archive(folder: Path, bare_file_system: Path | None) -> Path:
    """Returns the archive's path, after making the archive if it is missing, which takes about half a minute. Raises RunnerError if
    the archive cannot be made."""
    folder.mkdir(parents=True, exist_ok=True)
    path = archive_path(folder, bare_file_system)
    with exclusive_lock(path.with_suffix(".lock")):
        if not path.is_file():
            with tempfile.TemporaryDirectory(dir=folder) as fresh:
                written = Path(fresh) / path.name
                _train(Path(fresh), written, bare_file_system)
                if not written.is_file():
                    raise RunnerError("the JVM wrote no archive of its classes")
                written.chmod(0o644)
                written.replace(path)
                _delete_old_archives(folder)
    return path


def _delete_old_archives(folder: Path) -> None:
    """Deletes all archives but the newest `_KEPT`: after an update of Java or Spark the old archive is not used any more."""
    found = sorted(folder.glob("classes-*.jsa"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
    for old in found[_KEPT:]:
        old.unlink(missing_ok=True)


def _train(folder: Path, written: Path, bare_file_system: Path | None) -> None:
    """Runs a query over a few batches in a session that writes its loaded classes to `written`. Raises RunnerError if Spark
    delivers no batch."""
    url = f"sqlite:///{folder / 'training.db'}"
    bus = open_bus(url)
    bus.create_topic("in")
    bus.append(Partition("in"), [Outgoing(b"1")] * (_TRAINING_BATCHES * _LIMITS.messages_max))
    seen = threading.Semaphore(0)
    ended = threading.Event()

    def on_end(_end: RunnerEnd) -> None:
        ended.set()
        seen.release(_TRAINING_BATCHES)

    options = SessionOptions(cores=os.cpu_count() or 1, bare_file_system=bare_file_system, archive_to_write=written)
    source = RunnerInput(url, (SourceTopic("in"),), _same, limits=_LIMITS)
    runner = OrderedRunner(source, lambda _table, _next: seen.release(), on_end, options)
    try:
        runner.start({})
        if not all(seen.acquire(timeout=TRAINING_TIMEOUT_S) for _ in range(_TRAINING_BATCHES)) or ended.is_set():
            raise RunnerError("spark delivered no batch while its classes were recorded")
    finally:
        runner.stop()
        bus.close()


def _same(raw: pa.RecordBatch) -> list[pa.RecordBatch]:
    """A head that returns its input unchanged."""
    return [raw]


if __name__ == "__main__":
    sys.exit(main())
