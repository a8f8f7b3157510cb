"""Esper 9, the usual open reference engine, next to hotspare's core: one statement, events that are Java objects already.

The program is `Throughput.java` in this folder; Janino, with which Esper compiles its statements, compiles the program. The engine
has its default settings, except that its timer, which nothing here needs, is off. One thread sends the events, on the one core to
which the caller is bound. The processor time of all threads counts, including the garbage collector's.

`python -m benchmarks.core_throughput` runs it.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from benchmarks._java import answer as answer_of
from benchmarks._java import fetched
from benchmarks._java import program as java_program

from hotspare.base.errors import RunnerError
from hotspare.runners.spark.jars import Jar

JARS = (
    Jar("com.espertech:esper-common:9.0.0", "4824cdef5d9519933c3f0025edfa243f878b8930b112de030d9c6aabb40a4bf6"),
    Jar("com.espertech:esper-compiler:9.0.0", "8a863a285229b20c01886b05fd34846eb9ff04c9005c17e05b4a8763150b833d"),
    Jar("com.espertech:esper-runtime:9.0.0", "101d6dbd88c9e3f1f23587c2acff49b24894a24d8dd697a08023d9774d90704a"),
    Jar("org.antlr:antlr4-runtime:4.13.1", "54665d2838cc66458343468efc539e454fc95b46a8a04b13c6ac43fc9be63505"),
    Jar("org.slf4j:slf4j-api:1.7.36", "d3ef575e3e4979678dc01bf1dcce51021493b4d11fb7f1be8ad982877c16a1c0"),
)
_OF_MINUTE = (
    "who, sum(idl) as total, avg(idl) as average, min(idl) as least, max(idl) as greatest"
    " from Event#ext_timed(time, 1 min) group by who"
)
STATEMENTS = {
    "filter": "select * from Event(user > 0.5)",
    "join": "select e.idl as idl, p.name as name, p.score as score from Event as e unidirectional"
    " left outer join Person#unique(id) as p on e.who = p.id",
    "pattern": "select a.idl as first, b.idl as last from pattern"
    " [every a=Event(idl < 5000) -> (b=Event(idl >= 5000, id = a.id) where timer:within(1 hour))]",
    "sliding minute": f"select irstream {_OF_MINUTE}",
    "sliding minute, new": f"select {_OF_MINUTE}",
}
"""Keyed by the equivalent case of `benchmarks.core_throughput`."""
TURN_EVENTS = 8_000_000
"""The least count of events per turn, repeating the given ones: a JVM reports processor time in hundredths of a second."""
WARM_TURNS = 2
_JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_LOG_TAIL_LENGTH = 2_000

Turn = Callable[[], tuple[float, int]]
"""Takes all events once more; returns seconds of processor time, and the count of rows emitted."""


def program() -> list[str]:
    """Returns the command that runs the program with the arguments that `Throughput.java` describes. Fetches Esper if the cache
    lacks it.

    Raises RunnerError if Java or Esper is not available.
    """
    return java_program(Path(__file__).parent / "Throughput.java", fetched(JARS, "esper"), _JVM_OPTIONS)


@contextmanager
def esper(command: Sequence[str], case: str, tables: Sequence[np.ndarray]) -> Iterator[Turn]:
    """Yields a warm engine with the statement of `case`. `command`: that of `program`. `tables`: float64 (n, 3), the events and
    then, for the join, the people. Raises RunnerError if the program ends."""
    turn_passes = -(-TURN_EVENTS // len(tables[0]))
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("wb") as log:
        files = [Path(folder) / f"table-{number}" for number in range(len(tables))]
        for file, table in zip(files, tables, strict=True):
            table.astype("<f8").tofile(file)
        asked = [*command, STATEMENTS[case], *map(str, files)]
        with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process:

            def turn() -> tuple[float, int]:
                answer = answer_of(process, f"{turn_passes}\n")
                if not answer:
                    tail = Path(log.name).read_text(errors="replace")[-_LOG_TAIL_LENGTH:]
                    raise RunnerError(f"the Esper program for {case} has ended", detail=tail)
                told = json.loads(answer)
                return told["seconds"] / turn_passes, told["outputs"] // turn_passes

            try:
                for _ in range(WARM_TURNS):
                    turn()
                yield turn
            finally:
                process.kill()
