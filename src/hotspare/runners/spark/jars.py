"""A cache of pinned jars, each checked against its SHA-256. An engine uses one, which makes micro-batches faster.

`python -m hotspare.runners.spark.prepare` fetches it, and makes the archive of classes next to it.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hotspare.base.errors import HotspareError, RunnerError
from hotspare.base.file_locks import exclusive_lock
from hotspare.base.places import user_folder


@dataclass(frozen=True, slots=True)
class Jar:
    """A pinned jar. `coordinate`: `group:name:version`, as in Maven repositories; `sha256`: the checksum in hex."""

    coordinate: str
    sha256: str

    @property
    def file_name(self) -> str:
        _, name, version = self.coordinate.split(":")
        return f"{name}-{version}.jar"


BARE_FILE_SYSTEM = Jar(
    "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0", "e0cc30fb0531eb0b59468dc0abf5b257533d2365b5e9f45e795edd707aa78c62"
)
"""A local file system for Hadoop that does not start a `chmod` process for every file that it writes."""

HINT = "run `python -m hotspare.runners.spark.prepare`"

Fetch = Callable[[Jar, Path], None]
"""Fetches the jar and writes it to the path; raises RunnerError if that fails."""


def cache_folder() -> Path:
    return user_folder("XDG_CACHE_HOME", ".cache") / "jars"


def cached(jar: Jar, folder: Path | None = None) -> Path | None:
    """Returns the jar's path if the cache has the jar, else None. Raises RunnerError if the cached file has different content from
    the pinned jar."""
    path = (folder or cache_folder()) / jar.file_name
    if not path.is_file():
        return None
    _check(jar, path)
    return path


def ensure(jar: Jar, folder: Path | None = None, fetch: Fetch | None = None) -> Path:
    """Returns the jar's path, after fetching the jar if the cache lacks it. If several processes need a jar at the same time, one
    fetches it and the others wait.

    Raises RunnerError if the jar cannot be fetched or has another SHA-256.
    """
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(folder / f"{jar.file_name}.lock"):
        found = cached(jar, folder)
        if found is not None:
            return found
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            path = Path(fresh) / jar.file_name
            if fetch is not None:
                fetch(jar, path)
            else:
                with through_spark() as fetch_it:
                    fetch_it(jar, path)
            _check(jar, path)
            path.replace(folder / jar.file_name)
    return folder / jar.file_name


def available(jar: Jar) -> tuple[Path | None, str]:
    """Returns (path, "") if the cache has the jar, else (None, reason), for callers that do not depend on the jar. Fetches
    nothing."""
    try:
        path = cached(jar)
    except HotspareError as error:
        return None, str(error)
    return path, "" if path else f"{jar.file_name} is not in {cache_folder()}; {HINT}"


def _check(jar: Jar, path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise RunnerError(
            f"{path.name} is not the pinned jar",
            detail=f"sha256 of {path} is {digest}, expected {jar.sha256}",
            hint=f"delete {path}, then {HINT}",
        )


@contextmanager
def through_spark() -> Iterator[Fetch]:
    """Context manager; its value fetches jars with Spark's own resolver, so that no other download program is needed. The
    resolver's JVM starts with the first fetch and ends with the block."""
    from hotspare.runners.spark.session import Session, SessionOptions
    from hotspare.runners.spark.settings import IVY

    sessions: list[Session] = []

    def fetch(jar: Jar, path: Path) -> None:
        if not sessions:
            sessions.append(Session(SessionOptions(cores=1, heap_mib=512)))
        try:
            sessions[0].spark.sql(f"ADD JAR ivy://{jar.coordinate}?transitive=false").collect()
            found = sorted((sessions[0].scratch / IVY / "jars").glob(f"*{jar.file_name}"))
            shutil.copyfile(found[0], path)
        except Exception as error:
            raise RunnerError(
                f"cannot fetch {jar.coordinate}",
                detail=str(error)[:500],
                hint="everything works without it, more slowly" if jar == BARE_FILE_SYSTEM else "",
            ) from error

    try:
        yield fetch
    finally:
        for session in sessions:
            session.stop()


def ensure_all(jars: Sequence[Jar], folder: Path | None = None) -> tuple[Path, ...]:
    """Returns the paths of the jars, after fetching those that the cache lacks with Spark's resolver. Raises RunnerError if a jar
    cannot be fetched."""
    with through_spark() as fetch:
        return tuple(ensure(jar, folder, fetch) for jar in jars)
