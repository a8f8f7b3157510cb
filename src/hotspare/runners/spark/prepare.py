"""Fetches and makes what Spark needs on this machine, ahead of time: `python -m hotspare.runners.spark.prepare`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from hotspare.base.errors import HotspareError
from hotspare.runners.spark.jars import (
    BARE_FILE_SYSTEM,
    KAFKA_SOURCE,
    available,
    cache_folder,
    cached_kafka_source,
    ensure,
    through_spark,
)
from hotspare.runners.spark.training import ensure_archive


def main() -> int:
    """Make the cache complete; exit status 1, and why, where that fails. What one part lacks does not keep the other away."""
    folder = cache_folder()
    status = 0
    with through_spark() as fetch:
        for jar in (BARE_FILE_SYSTEM, *KAFKA_SOURCE):
            status |= _said(lambda jar=jar: ensure(jar, folder, fetch))  # type: ignore[misc]
    bare, _ = available(BARE_FILE_SYSTEM)
    return status | _said(lambda: ensure_archive(folder, bare, cached_kafka_source()))


def _said(make: Callable[[], Path]) -> int:
    """Do it and say what came of it; the exit status."""
    try:
        sys.stdout.write(f"{make()}\n")
    except HotspareError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
