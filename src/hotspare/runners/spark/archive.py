"""Finds the archive of Spark's loaded classes, with which a JVM starts in less than half the time (docs/spark.md has the figures).

`prepare.py` makes the archive, once per machine. The JVM itself checks whether an archive fits, and ignores it otherwise.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from hotspare.runners.spark.jre import find_java
from hotspare.runners.spark.settings import MODULE_OPTIONS


def archive_path(folder: Path, bare_file_system: Path | None) -> Path:
    """Returns the path of the archive for this JVM and this class path; it need not exist."""
    java = find_java()
    parts = [str(java), str(java.stat().st_mtime_ns), pyspark.__file__, pyspark.__version__, *MODULE_OPTIONS]
    parts.append(str(bare_file_system))
    return folder / f"classes-{hashlib.sha256('|'.join(parts).encode()).hexdigest()[:16]}.jsa"


def existing_archive(folder: Path, bare_file_system: Path | None) -> Path | None:
    """Returns the path of the archive if the file exists, else None. Never makes an archive."""
    path = archive_path(folder, bare_file_system)
    return path if path.is_file() else None
