"""The pinned jars that make Spark's micro-batches fast, in a cache of the user's, each checked against its SHA-256.

`python -m hotspare.runners.spark.jars` fetches what is missing, and makes the archive of classes beside it. Nothing depends on
either but speed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hotspare.errors import HotspareError, RunnerError


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar by its coordinate `group:name:version`."""

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

HINT = "run `python -m hotspare.runners.spark.jars`"

Fetch = Callable[[Jar, Path], None]
"""Writes the jar to the path, or raises."""


def cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "hotspare" / "jars"


def cached(jar: Jar, folder: Path | None = None) -> Path | None:
    """The jar's path if the cache has it whole. RunnerError where a file of its name has another content."""
    path = (folder or cache_folder()) / jar.file_name
    if not path.is_file():
        return None
    _check(jar, path)
    return path


def ensure(jar: Jar, folder: Path | None = None, fetch: Fetch | None = None) -> Path:
    """The jar's path; fetches it first where the cache lacks it. Processes that need it at the same time wait for one of them.

    RunnerError where it cannot be had or is not what was pinned.
    """
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{jar.file_name}.lock"):
        found = cached(jar, folder)
        if found is not None:
            return found
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            path = Path(fresh) / jar.file_name
            (fetch or _fetch_through_spark)(jar, path)
            _check(jar, path)
            path.replace(folder / jar.file_name)
    return folder / jar.file_name


def available(jar: Jar) -> tuple[Path | None, str]:
    """(path, "") where the cache has the jar, else (None, why): for callers that can do without. Fetches nothing."""
    try:
        path = cached(jar)
    except HotspareError as error:
        return None, str(error)
    return path, "" if path else f"{jar.file_name} is not in {cache_folder()}; {HINT}"


def _check(jar: Jar, path: Path) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise RunnerError(
            f"{path.name} is not the jar that was pinned",
            detail=f"sha256 of {path} is {digest}, expected {jar.sha256}",
            hint=f"delete {path} and fetch it again with `python -m hotspare.runners.spark.jars`",
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_through_spark(jar: Jar, path: Path) -> None:
    """Let Spark's own resolver fetch it, in a JVM that ends afterwards: no other download program is needed."""
    from hotspare.runners.spark.session import Session, SessionOptions
    from hotspare.runners.spark.settings import IVY

    session = Session(SessionOptions(cores=1, heap_mib=512))
    try:
        session.spark.sql(f"ADD JAR ivy://{jar.coordinate}?transitive=false").collect()
        found = sorted((session.scratch / IVY / "jars").glob(f"*{jar.file_name}"))
        shutil.copyfile(found[0], path)
    except Exception as error:
        raise RunnerError(
            f"cannot fetch {jar.coordinate}",
            detail=str(error)[:500],
            hint="without it everything works, slower; try again when the repository can be reached",
        ) from error
    finally:
        session.stop()


def main() -> int:
    """Make the cache complete; exit status 1, and why, where that fails. What one part lacks does not keep the other away."""
    from hotspare.runners.spark.archive import ensure_archive

    folder = cache_folder()
    status = 0
    jar = None
    try:
        jar = ensure(BARE_FILE_SYSTEM, folder)
        sys.stdout.write(f"{jar}\n")
    except HotspareError as error:
        sys.stderr.write(f"{error}\n")
        status = 1
    try:
        sys.stdout.write(f"{ensure_archive(folder, jar)}\n")
    except HotspareError as error:
        sys.stderr.write(f"{error}\n")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
