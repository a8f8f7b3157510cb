"""The jars of a Kafka broker, for development and tests: a pinned list, each checked against its SHA-256, in the user's cache.

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
from hotspare.runners.spark.jars import Jar, cache_folder, cached

_LOCK = Path(__file__).with_name("kafka_jars.lock")
_FOLDER = "kafka"
_NOT_TRANSITIVE = (False, "")


def pinned_jars() -> tuple[Jar, ...]:
    """Returns the jars of a broker, without Scala's library, which is part of Spark."""
    lines = (line.split() for line in _LOCK.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(Jar(coordinate, sha256) for coordinate, sha256 in lines)


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
    from hotspare.runners.spark.session import Session, SessionOptions
    from hotspare.runners.spark.settings import IVY

    session = Session(SessionOptions(cores=1, heap_mib=512))
    try:
        jvm = session.spark.sparkContext._jvm
        coordinates = ",".join(jar.coordinate for jar in jars)
        nothing = jvm.scala.Option.empty()
        ivy = session.scratch / IVY
        resolve = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies
        resolve(*_NOT_TRANSITIVE, coordinates, None, str(ivy), nothing)
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
