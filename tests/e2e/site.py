"""A folder with a project, a bus and engines, for end-to-end tests that run the real command."""

from __future__ import annotations

import subprocess
from contextlib import chdir, closing
from dataclasses import dataclass, field
from pathlib import Path

from hotspare.base.file_locks import lock_holder
from hotspare.base.processes import is_process_stopped
from hotspare.bus.contract import OUTPUTS_HEADER, Bus, Partition
from hotspare.bus.naming import group_name, inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.stores.contract import SnapshotStatus
from hotspare.stores.open import open_store
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until
from tests.cli.running import hotspare, hotspare_here
from tests.e2e.prepared import prepared

PREFIX = "e2e"
PROJECT = """\
project: shop
queries:
  sales:
    windows:
      orders:
        type: source
        schema: id*:int64,amount:double,count:int64
        opcodes: insert-only
        index: empty
      kept:
        type: copy
        retention: {bycount_sliding: 100}
        publish: true
    edges: [orders -> kept]
"""
SOURCE = "shop/sales/orders"
RESULT = "shop/sales/kept"
LEASE = ("--lease-ms", "2000")
"""The lease of every engine of a test, unless its own options differ: the default expires while a busy machine stalls."""
PATIENT = ("--lease-ms", "10000")
"""The lease of a group whose epoch is compared: on a busy machine an engine may stall for longer than `LEASE`, and another one
takes the role as it should. The end of a local process is detected at once, whatever the lease."""


def whole_lines(file: Path) -> list[str]:
    """Returns the lines of a file that is being written, without a partial last one."""
    text = file.read_text() if file.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _rows_on(bus: Bus, place: Partition) -> int:
    """Returns the number of outputs that the headers of the messages declare."""
    if place.topic not in bus.topics():
        return 0
    rows, offset, end = 0, bus.begin_offset(place), bus.end_offset(place)
    while offset < end and (messages := bus.read(place, offset, messages_max=10_000, bytes_max=1 << 24)):
        spans = [(message.header(OUTPUTS_HEADER) or b"1 0").split() for message in messages]
        rows += sum(int(last) - int(first) + 1 for first, last, *_ in spans)
        offset = messages[-1].offset + 1
    return rows


@dataclass
class Site:
    """A project with its bus and engines, without Spark unless `options` differ; `stop` ends all that was started. `bus_url`:
    shared servers, with a `coordination_url` and a `prefix` of one's own. By default everything is in the folder; snapshots always
    are, unless there is a `store_url`."""

    folder: Path
    project_text: str = PROJECT
    options: tuple[str, ...] = ("--runner", "local", "--snapshots", "200 milliseconds")
    bus_url: str = ""
    coordination_url: str = ""
    prefix: str = PREFIX
    store_url: str = ""
    cluster: Cluster = field(init=False)

    def __post_init__(self) -> None:
        self.project = self.folder / "shop.yaml"
        self.project.write_text(self.project_text)
        self.snapshots = self.folder / "bus.db-snapshots"
        store = ("--store", self.store_url or self.snapshots.as_uri()) if self.bus_url or self.store_url else ()
        coordination = ("--coordination", self.coordination_url) if self.coordination_url else ()
        self.bus_url = self.bus_url or f"sqlite:///{self.folder / 'bus.db'}"
        self.bus = ("--bus", self.bus_url, "--prefix", self.prefix)
        self.result = Partition(outbound_topic(self.prefix, *RESULT.split("/")))
        self.places = ("--bus", self.bus_url, *coordination, *store)
        """The services, for commands that get the group's name."""
        self.services = (*self.bus, *coordination, *store)
        """The services, for commands that build the name from the prefix."""
        of_engines, group = (*LEASE, *self.options, *store), group_name(self.prefix, "shop")
        self.cluster = Cluster(
            self.project, self.bus_url, group, self.prefix, self.folder, of_engines, self.coordination_url, launcher=prepared
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end in this process, because a process of its own would spend most of the time starting."""
        with chdir(self.folder):
            return hotspare_here(*arguments)

    def run_engine(self) -> subprocess.CompletedProcess[str]:
        """Runs an engine that is expected to end by itself."""
        return hotspare("run", str(self.project), *self.services, "--engine", "late", "--restart", "never", *LEASE, *self.options)

    def publish(self, rows: str, name: str = "input.csv", window: str = SOURCE) -> None:
        file = self.folder / name
        file.write_text(rows)
        done = self.run("publish", *self.bus, "--window", window, str(file))
        assert done.returncode == 0, done.stderr

    def outputs(self) -> list[str]:
        """Returns the result rows of a new subscriber, up to the current end of the topic."""
        return self._subscribed("--window", RESULT)

    def bad_events(self) -> list[str]:
        return self._subscribed("--bad", "shop")

    def _subscribed(self, *what: str) -> list[str]:
        self._reads = getattr(self, "_reads", 0) + 1
        file = self.folder / f"output-{self._reads}.csv"
        done = self.run("subscribe", *self.bus, *what, "--to-end", str(file))
        assert done.returncode == 0, done.stderr
        return file.read_text().splitlines() if file.exists() else []

    def start(self, name: str = "one") -> SpawnedEngine:
        engine = self.cluster.start_engine(name)
        self.cluster.wait_ready()
        return engine

    def wait_for_outputs(self, count: int) -> list[str]:
        """Waits, then reads the outputs with one command: polling with commands would take a second of the processor each time."""
        with closing(open_bus(self.bus_url)) as bus:
            wait_until(lambda: _rows_on(bus, self.result) >= count, f"{count} outputs")
        return self.outputs()

    def wait_for_snapshot(self) -> int:
        """Waits for a confirmed snapshot that includes all current input; returns the input's end offset. An earlier one may be
        empty."""
        store_url = (self.store_url or self.snapshots.as_uri()).partition("?")[0]  # without a cache, which is the engine's
        with closing(open_bus(self.bus_url)) as bus, closing(open_store(store_url)) as store:
            end = bus.end_offset(Partition(inbound_topic(self.prefix, *SOURCE.split("/"))))

            def stands_behind() -> bool:
                listed = store.list(self.cluster.group)
                return any(each.status is SnapshotStatus.CONFIRMED and each.order >= end for each in listed)

            wait_until(stands_behind, "a snapshot with all of it", poll_s=0.1)
        return end

    def freeze(self, engine: SpawnedEngine) -> None:
        """Freezes an engine that holds no lock: its successor would kill one frozen with the lock of a bus or a file, and this one
        is to wake."""

        def stands_still() -> bool:
            engine.freeze()
            wait_until(lambda: is_process_stopped(engine.process.pid), f"{engine.name} stands still")
            holders = [lock_holder(path) for path in self.folder.iterdir() if path.is_file()]
            if not any(holder is not None and holder.process_id == engine.process.pid for holder in holders):
                return True
            engine.thaw()
            return False

        wait_until(stands_still, f"{engine.name} stands still without a lock")

    def stop(self) -> None:
        self.cluster.stop()
