"""External Java programs next to which hotspare is measured: their jars and the command that runs them, from the source.

Any Java runtime will do: Janino compiles a program in memory when it is started, so no Java compiler is needed. Jars are pinned and
fetched into the user's cache like those of Spark.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hotspare.runners.spark.jars import Jar, cache_folder, ensure_all
from hotspare.runners.spark.jre import find_java

_JANINO = (
    Jar("org.codehaus.janino:commons-compiler:3.1.12", "17ea25d860225f4b59d0a512b4995f2e4711bdae5e15736cbcd5f6ce4dda8f7c"),
    Jar("org.codehaus.janino:janino:3.1.12", "5699878c31e71c9a94cf472f95a2dad52ca7b0449c099276b8bd7e992a43595b"),
)

CONNECT_JSON = (
    Jar("org.apache.kafka:connect-json:4.1.1", "bcfd54f2e5529461df2ed3698b6471e9e8924eb2f84b72b8b2581fc8e7ba6e17"),
    Jar(
        "com.fasterxml.jackson.module:jackson-module-blackbird:2.19.0",
        "9d038d1232aa7ab4927e5ac97e311e4483864e4c2cbba5de8a224dc09c28952d",
    ),
)
"""Kafka's own JSON classes, of Connect; the brokers' jars contain their other dependencies. Kept in the folder `connect`."""


def fetched(jars: Sequence[Jar], name: str) -> tuple[str, ...]:
    """Returns the paths of the jars, in the cache's folder `name`. Raises RunnerError if one is not available."""
    return tuple(map(str, ensure_all(jars, cache_folder() / name)))


def program(source: Path, class_path: Sequence[str], options: Sequence[str]) -> list[str]:
    """Returns the command that compiles a program and runs it. Raises RunnerError if Java or the compiler is not available."""
    jars = os.pathsep.join([*fetched(_JANINO, "janino"), *class_path])
    run_source = ("org.codehaus.janino.JavaSourceClassLoader", "-sourcepath", str(source.parent), source.stem)
    return [str(find_java()), *options, "-cp", jars, *run_source]


def answer(process: subprocess.Popen[str], question: str) -> str:
    """Sends a question and returns the next line that the process writes; "" if it has ended."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(question)
        process.stdin.flush()
    except BrokenPipeError:
        return ""
    return process.stdout.readline()
