"""A publisher that sends nothing but wrong rows: does it cost a role change, and how long do two engines work on it?

    python -m benchmarks.wrong_rows                                10 million rows on the embedded bus, two engines
    python -m benchmarks.wrong_rows --site kafka --rows 2000000    on three Kafka brokers and a ZooKeeper
    python -m benchmarks.wrong_rows --way json                     JSON objects in which a number is now a text and now a number

Prints the time from the beginning of publishing until the last bad event is committed, and why roles changed if they did. Exit
status 0 only if the group kept its epoch and every row became a bad event.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._site import opened

from hotspare.bus.contract import FORMAT_HEADER, Outgoing, Partition
from hotspare.bus.open import open_bus
from hotspare.demo.site import Site
from hotspare.rows.batch import BAD_STREAM
from hotspare.testing.cluster import Cluster, command, wait_until

PROJECT = """
project: wrong
queries:
  cq:
    windows:
      given: {type: source, index: empty, opcodes: insert-only, schema: "id*:int64,user:string,price:double,size:int32"}
      kept: {type: copy, index: empty}
    edges: [given -> kept]
"""
GROUP, TOPIC, PREFIX = "hotspare.wrong", "hotspare.wrong.cq.given.I", "hotspare"
TIMEOUT_S = 3_600.0
JSON_ROWS_PER_MESSAGE, JSON_MESSAGES_AT_ONCE = 100, 100


def csv_row(i: int) -> str:
    return f"i,n,{i},user{i % 1000},{i % 977}.x,{i % 50 + 10}\n"


def json_row(i: int) -> str:
    price = f"{i % 977}.25" if i % 2 else f'"{i % 977}"'
    return f'{{"id":{i},"user":"user{i % 1000}","price":{price},"size":0.5}}\n'


def publish_csv(site: Site, folder: Path, rows: int) -> None:
    """By the command, from a file."""
    file = folder / "wrong.csv"
    subprocess.run(command("publish", "--bus", site.bus_url, "--window", "wrong/cq/given", str(file)), check=True)


def publish_json(site: Site, _folder: Path, rows: int) -> None:
    """By a client of the bus, in messages of many lines."""
    bus, size = open_bus(site.bus_url), JSON_ROWS_PER_MESSAGE
    header = (FORMAT_HEADER, b"json")
    starts = range(0, rows, size)
    for at in range(0, len(starts), JSON_MESSAGES_AT_ONCE):
        texts = ("".join(json_row(i) for i in range(s, min(s + size, rows))) for s in starts[at : at + JSON_MESSAGES_AT_ONCE])
        bus.append(Partition(TOPIC), [Outgoing(text.encode(), (header,)) for text in texts])


WAYS: dict[str, Callable[[Site, Path, int], None]] = {"csv": publish_csv, "json": publish_json}


def committed(site: Site) -> int:
    """How many bad events are committed."""
    options = ["--bus", site.bus_url, "--coordination", site.coordination_url, "--store", site.store_url, "--group", GROUP]
    done = subprocess.run(command("status", *options, "--json"), check=True, capture_output=True)
    group: dict[str, Any] = json.loads(done.stdout)["groups"][0]
    return max((each["sequence"] for each in group["progress"] if each["stream"] == BAD_STREAM), default=0)


def role_changes(cluster: Cluster) -> list[str]:
    """What the engines say of roles and of trouble."""
    lines = (line for engine in cluster.engines.values() for line in engine.log.read_text(errors="replace").splitlines())
    return [line for line in lines if any(event in line for event in ("role_changed", "ha_alarm", "campaigns"))]


def measure(site: Site, folder: Path, way: str, rows: int) -> bool:
    project = folder / "project.yaml"
    project.write_text(PROJECT)
    cluster = Cluster(project, site.bus_url, GROUP, PREFIX, folder, ("--store", site.store_url), site.coordination_url)
    try:
        for name in ("engine-1", "engine-2"):
            cluster.start_engine(name)
        cluster.wait_ready()
        epoch, begun = cluster.leader().epoch, time.monotonic()
        WAYS[way](site, folder, rows)
        published_s = time.monotonic() - begun
        wait_until(lambda: committed(site) >= rows, "all bad events are committed", TIMEOUT_S)
        took_s, epochs, count = time.monotonic() - begun, cluster.leader().epoch - epoch + 1, committed(site)
        if epochs > 1:
            print("\n".join(role_changes(cluster)), flush=True)
    finally:
        cluster.stop()
    print(
        f"{rows} wrong rows ({way}): published in {published_s:.1f} s, all committed as bad events after {took_s:.1f} s,"
        f" {rows / took_s:,.0f} rows/s; epochs: {epochs}; bad events: {count}",
        flush=True,
    )
    return epochs == 1 and count == rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", choices=("embedded", "kafka"), default="embedded")
    parser.add_argument("--way", choices=WAYS, default="csv")
    parser.add_argument("--rows", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hotspare-wrong-rows-") as name, opened(options.site, Path(name)) as site:
        folder = Path(name) / "run"
        folder.mkdir()
        if options.way == "csv":
            with (folder / "wrong.csv").open("w") as file:
                file.writelines(csv_row(i) for i in range(options.rows))
        return 0 if measure(site, folder, options.way, options.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
