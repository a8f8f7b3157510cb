"""Checks that nothing grows with time: a group under a light, steady load for an hour; memory, files, rows and threads at both
ends.

    make soak                                            one hour on the embedded bus, two engines with a Spark each
    make soak ARGS="--site kafka --minutes 240"          on three Kafka brokers and a ZooKeeper
    make soak ARGS="--idle"                              without input: only ticks come

The first reading is taken when the group is warm, `--warm` minutes after its start. Engines are measured per process; bus,
coordination and the store at their files. Topics keep published messages unless retention is set, so their rows grow with the
input. Nothing else may grow, except the threads of a JVM: the two pools of Spark's block manager grow to a hundred each, by about
one a minute. Exit status 0 only if the output is exact.
"""

from __future__ import annotations

import argparse
import shlex
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from enum import Enum
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
from benchmarks._site import opened

from hotspare.bus.contract import Bus, Partition
from hotspare.bus.kafka.progress import progress_topic
from hotspare.demo.scenario import Demo, DemoOptions
from hotspare.testing.cluster import SpawnedEngine

Figures = Mapping[str, float]


def of_engine(engine: SpawnedEngine) -> Figures:
    """Returns the resources of one engine's processes."""
    own = psutil.Process(engine.process.pid)
    children = own.children(recursive=True)
    jvm = [child for child in children if child.name() == "java"]
    return {
        f"{engine.name} python MiB": _mebibytes([own]),
        f"{engine.name} workers MiB": _mebibytes([child for child in children if child not in jvm]),
        f"{engine.name} jvm MiB": _mebibytes(jvm),
        f"{engine.name} threads": own.num_threads() + sum(child.num_threads() for child in children),
        f"{engine.name} open files": own.num_fds() + sum(child.num_fds() for child in children),
    }


def _mebibytes(processes: Sequence[psutil.Process]) -> float:
    return sum(process.memory_info().rss for process in processes) / (1 << 20)


def of_folder(name: str, folder: Path) -> Figures:
    files = [path for path in folder.rglob("*") if path.is_file()]
    sizes = []
    for path in files:
        with suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return {f"{name} files": len(sizes), f"{name} MiB": sum(sizes) / (1 << 20)}


def of_database(name: str, path: Path) -> Figures:
    """Returns the rows of every table, and the size of the file with its log."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        rows = {f"{name} rows of {table}": database.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0] for table in tables}
    size = sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())
    return {**rows, f"{name} MiB": size / (1 << 20)}


def declared_qualities(bus: Bus, topics: Sequence[str]) -> Figures:
    """Returns the offsets that each topic spans; compacted messages count, because they leave holes."""
    return {f"topic {topic} offsets": bus.end_offset(Partition(topic)) - bus.begin_offset(Partition(topic)) for topic in topics}


def figures(demo: Demo) -> Figures:
    site = demo.options.site
    found: dict[str, float] = {}
    for engine in demo.cluster.engines.values():
        found |= of_engine(engine)
    found |= of_folder("snapshots", Path(unquote(urlsplit(site.store_url).path)))
    if site.bus_url.startswith("sqlite:///"):
        database = Path(site.bus_url.removeprefix("sqlite:///"))
        return {**found, **of_database("bus", database), **of_database("coordination", Path(f"{database}-coord"))}
    found |= declared_qualities(demo.bus, [progress_topic(demo.group)])
    return {**found, **of_folder("servers", demo.options.folder.parent / "kafka-0")}


def table(before: Figures, after: Figures, hours: float) -> str:
    rows = [f"{'':44} {'start':>12} {'end':>12} {'per hour':>12}"]
    for name in sorted({*before, *after}):
        first, last = before.get(name, 0), after.get(name, 0)
        rows.append(f"{name:44} {first:12.1f} {last:12.1f} {(last - first) / hours:+12.2f}")
    return "\n".join(rows)


class Load(Enum):
    STEADY = "steady"
    IDLE = "idle"


def soak(load: Load, minutes: float, warm_minutes: float, say: Callable[[str], None]) -> Callable[[Demo], None]:
    def run(demo: Demo) -> None:
        if load is Load.IDLE:
            demo.sampler.pause_writing()
        _pass(demo, warm_minutes, say)
        before = figures(demo)
        epoch = demo.cluster.leader().epoch
        _pass(demo, minutes, say)
        after = figures(demo)
        say(table(before, after, minutes / 60))
        say(f"epochs: {demo.cluster.leader().epoch - epoch + 1}")
        demo.sampler.resume_writing()

    return run


def _pass(demo: Demo, minutes: float, say: Callable[[str], None]) -> None:
    """Waits, and prints a line each minute."""
    end = time.monotonic() + minutes * 60
    while (left_s := end - time.monotonic()) > 0:
        time.sleep(min(60.0, left_s))
        demo.poll()
        engines = ", ".join(
            f"{name} {_mebibytes([psutil.Process(e.process.pid)]):.0f} MiB" for name, e in demo.cluster.engines.items()
        )
        say(f"{max(0.0, end - time.monotonic()) / 60:.0f} minutes to go; {engines}")


def _say(sentence: str) -> None:
    print(sentence, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm", type=float, default=5.0, help="minutes before the first reading")
    parser.add_argument("--rate", type=float, default=50.0, help="events per second")
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--engine-options", default="", help="further options of `hotspare run`")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="hotspare-soak-") as name:
        folder = Path(name)
        run = folder / "run"
        run.mkdir()
        with opened(options.site, folder) as site:
            # the last fifth of the readings slows down, and the rest follows at once when the last figures are taken
            events = int(options.rate * 60 * (options.minutes + options.warm)) + 1_000
            demo = Demo(
                DemoOptions(run, site, events, options.rate, engine_options=tuple(shlex.split(options.engine_options))), _say
            )
            load = Load.IDLE if options.idle else Load.STEADY
            report = demo.run(soak(load, options.minutes, options.warm, _say))
        _say(report.last_line())
    return 0 if report.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
