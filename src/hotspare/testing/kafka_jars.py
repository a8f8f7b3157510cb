"""The jars of a Kafka broker and of Spark's own Kafka source, for development, tests and benchmarks.

Each is pinned, checked against its SHA-256, and kept in the user's cache.

Spark's own resolver fetches them, so no other download program is needed. `python -m hotspare.testing.kafka_jars` completes the
cache and prints its folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from hotspare.base.errors import RunnerError
from hotspare.base.file_locks import exclusive_lock
from hotspare.runners.spark.jars import Jar, cache_folder, cached, ensure_all

KAFKA_SOURCE = (
    Jar("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"),
    # The newest that the connector runs with and that every repository has; its own version is not needed without tokens.
    Jar(
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar("org.apache.kafka:kafka-clients:3.9.2", "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"),
    Jar("org.apache.commons:commons-pool2:2.13.1", "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"),
)
"""Spark's own source for Kafka, and the libraries that it needs. Engines do not use it."""

_LOCK = Path(__file__).with_name("kafka_jars.lock")
_FOLDER = "kafka"


def pinned_jars() -> tuple[Jar, ...]:
    """Returns the jars of a broker, without Scala's library, which is part of Spark."""
    lines = (line.split() for line in _LOCK.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(Jar(coordinate, sha256) for coordinate, sha256 in lines)


def ensure_kafka_source(folder: Path | None = None) -> tuple[Path, ...]:
    """Returns the jars of Spark's Kafka source after fetching those that the cache lacks. Raises RunnerError if that fails."""
    return ensure_all(KAFKA_SOURCE, folder)


def class_path(folder: Path | None = None) -> str:
    """Returns the class path of a broker after fetching missing jars into `folder`, by default the user's cache. Raises RunnerError
    if a jar cannot be fetched or its checksum is not the pinned one."""
    folder = folder or cache_folder() / _FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder / "fetch.lock"):
        missing = [jar for jar in pinned_jars() if cached(jar, folder) is None]
        if missing:
            _fetch(missing, folder)
    return os.pathsep.join([*(str(folder / jar.file_name) for jar in pinned_jars()), str(_scala_library())])


def _fetch(jars: list[Jar], folder: Path) -> None:
    """Fetches all jars in one call of Spark's resolver, in a JVM that ends afterwards. Raises RunnerError if that fails."""
    from hotspare.runners.spark.private import fetch_jars
    from hotspare.runners.spark.session import Session, SessionOptions
    from hotspare.runners.spark.settings import IVY

    session = Session(SessionOptions(cores=1, heap_mib=512))
    try:
        ivy = session.scratch / IVY
        fetch_jars(session.spark.sparkContext, [jar.coordinate for jar in jars], ivy)
        for jar in jars:
            _cache_jar(jar, next((ivy / "jars").glob(f"*_{jar.file_name}")), folder)
    except RunnerError:
        raise
    except Exception as error:
        raise RunnerError(
            "cannot fetch the jars of a kafka broker",
            detail=str(error)[:500],
            hint="try again when the maven repository can be reached: `python -m hotspare.testing.kafka_jars`",
        ) from error
    finally:
        session.stop()


def _cache_jar(jar: Jar, found: Path, folder: Path) -> None:
    """Copies a jar into the cache atomically, after checking its checksum."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        copy = Path(fresh) / jar.file_name
        shutil.copyfile(found, copy)
        cached(jar, Path(fresh))
        copy.replace(folder / jar.file_name)


def _scala_library() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RunnerError("pyspark is not installed", hint="run `make setup`")
    return next((Path(spec.origin).parent / "jars").glob("scala-library-2.13.*.jar"))


def main() -> int:
    """Completes the cache; returns exit status 1 and prints the reason if that fails."""
    try:
        class_path()
    except RunnerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{cache_folder() / _FOLDER}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
