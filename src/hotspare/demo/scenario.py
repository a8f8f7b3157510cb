"""The demo from start to verdict: engines, adapters and faults as processes of their own, checked against an uninterrupted run."""

from __future__ import annotations

import importlib.resources
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from hotspare.base.choices import DemoProject
from hotspare.base.errors import BusLocked, BusUnavailable, ClusterError, HotspareError
from hotspare.bus.naming import bad_topic, group_name, inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.demo.faults import Fault, Gap, gap_after, inject, plan_faults, quantile
from hotspare.demo.sampler import Sampler
from hotspare.demo.site import Site
from hotspare.flow.head.head import Head
from hotspare.flow.plan import compile_plan
from hotspare.model.resolved import Resolved
from hotspare.projects.load import load_project
from hotspare.rows.batch import BAD_STREAM
from hotspare.runners.contract import SourceTopic
from hotspare.testing.cluster import Cluster, SpawnedEngine, wait_until
from hotspare.testing.recorder import OutputReader, ReferenceRun
from hotspare.testing.verify import DeliveryVerdict, compare

PREFIX = "demo"
SOURCE = ("memory", "readings")
RETENTION_S = 3.0
_SETTLE_S = 120.0
_LOOK_S = 0.1
_BROKER_FAULT = 2
"""The number of the fault, counted from 1, during which one broker is stopped."""


class EndOfInput(Enum):
    """The moment at which the readings end."""

    AT_COUNT = "when all of `events` are written"
    AFTER_FAULTS = "with the last fault, or when all of `events` are written"


_RESULT = {DemoProject.MEMORY: "totals", DemoProject.WINDOWS: "compared"}
"""For each project, the window that emits one insert per reading."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """The options of the demo. `rate`: events per second. `faults`: strike the active engine one after another, each
    `pause_s(number)` seconds after the group is complete. `spares`: N of 1+N. If the site has brokers, one of them is stopped
    during the second fault.
    """

    folder: Path
    site: Site
    events: int = 20_000
    rate: float = 500.0
    faults: tuple[Fault, ...] = tuple(plan_faults(4))
    spares: int = 1
    pause_s: Callable[[int], float] = lambda number: 1.0
    engine_options: tuple[str, ...] = ()
    end: EndOfInput = EndOfInput.AT_COUNT
    project: DemoProject = DemoProject.MEMORY

    @property
    def project_name(self) -> str:
        """The file name of the demo's project, which is stored next to this module."""
        return f"{self.project.value}.yaml"

    @property
    def result(self) -> tuple[str, str]:
        """The query and the window whose outputs are checked and written by the subscriber."""
        return SOURCE[0], _RESULT[self.project]


@dataclass
class DemoReport:
    """The numbers in the demo's last line. `published` and `delivered` count input events; `verdict` counts output events."""

    published: int = 0
    delivered: int = 0
    verdict: DeliveryVerdict = field(default_factory=DeliveryVerdict)
    input_lost: int = 0
    input_doubled: int = 0
    file_wrong: int = 0
    epoch_regressions: int = 0
    gaps: list[Gap] = field(default_factory=list)
    kills: int | None = None
    """The number of strikes; None if it equals the number of gaps, because each strike causes one gap."""

    @property
    def lost(self) -> int:
        return self.verdict.lost + self.input_lost

    @property
    def doubled(self) -> int:
        return self.verdict.doubled + self.input_doubled

    @property
    def wrong(self) -> int:
        return self.verdict.wrong + self.file_wrong + self.epoch_regressions

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def last_line(self) -> str:
        gaps = [g.gap_ms for g in self.gaps]
        kills = len(gaps) if self.kills is None else self.kills
        return (
            f"published {self.published} delivered {self.delivered} lost {self.lost} doubled {self.doubled} wrong {self.wrong} "
            f"kills {kills} gap_ms_p50 {quantile(gaps, 0.5):.0f} gap_ms_max {max(gaps, default=0):.0f}"
        )


@contextmanager
def stop_after_block(cluster: Cluster, sampler: Sampler) -> Iterator[None]:
    """Stops cluster and sampler after the block in any case. A ClusterError from the block is extended by the state of the
    engines.
    """
    try:
        yield
    except ClusterError as failure:
        with suppress(HotspareError):  # coordination itself may have failed
            failure.add_note(cluster.state_report())
        raise
    finally:
        sampler.stop()
        cluster.stop()


class Demo:
    """A run of the demo. `say` is called with a sentence at each step."""

    def __init__(self, options: DemoOptions, say: Callable[[str], None]) -> None:
        self.options, self.say = options, say
        self.report = DemoReport()
        self.project_file = options.folder / options.project_name
        self.project_file.write_text(importlib.resources.files("hotspare.demo").joinpath(options.project_name).read_text())
        self.resolved: Resolved = load_project(self.project_file).resolved
        self.group = group_name(PREFIX, self.resolved.project.name)
        site = options.site
        self.bus = open_bus(site.bus_url)
        engine_options = ("--store", site.store_url, *options.engine_options)
        self.cluster = Cluster(
            self.project_file, site.bus_url, self.group, PREFIX, options.folder, engine_options, site.coordination_url, site.places
        )
        self.readings = options.folder / "readings.csv"
        self.results = options.folder / f"{options.result[1]}.csv"
        self.sampler = Sampler(self.readings, options.events, options.rate, lambda: not self._struck)
        self._struck = False
        self.readers: dict[str, OutputReader] = {}
        self.reference: ReferenceRun | None = None

    def run(self, strikes: Callable[[Demo], None] | None = None) -> DemoReport:
        """Runs the demo to its end and returns the report. All processes are stopped in any case.

        `strikes` replaces the options' faults. It is called once, while events flow; afterwards the group must be complete.
        """
        with stop_after_block(self.cluster, self.sampler):
            self._start_engines()
            self._start_adapters()
            wait_until(lambda: self.first_output_after(0) is not None, "the first output", _SETTLE_S)
            (strikes or Demo._strike_all)(self)
            self._struck = True
            if self.options.end is EndOfInput.AFTER_FAULTS:
                self.sampler.end_writing()
            self._settle()
        self._judge()
        self.bus.close()
        return self.report

    def _start_engines(self) -> None:
        count = 1 + self.options.spares
        self.say(f"starting {count} engines, each with its own Spark, on {self.options.site.bus_url}")
        for number in range(1, count + 1):
            self.cluster.start_engine(f"engine-{number}")
        self.cluster.wait_ready()
        active = self.cluster.active_engine()
        self.say(f"{active.name if active else '?'} is active, the others are hot spares")

    def _start_adapters(self) -> None:
        name = self.resolved.project.name
        self.sampler.start()
        self.start_publisher()
        self.start_subscriber()
        plan = compile_plan(self.resolved)
        topics = tuple(SourceTopic(inbound_topic(PREFIX, name, w.query, w.window)) for w in self.resolved.sources)
        self.reference = ReferenceRun(self.bus, plan, Head.from_plan(plan), topics)
        for stream, schema in plan.stream_schemas.items():
            topic = bad_topic(PREFIX, name) if stream == BAD_STREAM else outbound_topic(PREFIX, name, *stream.split("/"))
            self.readers[stream] = OutputReader(self.bus, topic, schema)
        self.say(f"publishing {self.options.events} readings of this machine's memory at {self.options.rate:g} a second")

    def start_publisher(self) -> SpawnedEngine:
        """Starts the adapter that publishes the file of readings as it grows. A restarted adapter resumes at the end of the
        topic.
        """
        return self._start_adapter("publisher", "publish", SOURCE, "--header", "1", "--growing", str(self.readings))

    def start_subscriber(self) -> SpawnedEngine:
        """Starts the adapter that writes the result to a file. A restarted adapter resumes at the end of the file."""
        project = str(self.project_file)
        return self._start_adapter(
            "subscriber", "subscribe", self.options.result, "--header", "full", "--project", project, str(self.results)
        )

    def _start_adapter(self, name: str, command: str, window: tuple[str, str], *options: str) -> SpawnedEngine:
        path = "/".join((self.resolved.project.name, *window))
        bus = ("--bus", self.options.site.bus_url, "--prefix", PREFIX)
        return self.cluster.start_other(name, command, *bus, "--window", path, *options)

    def poll(self) -> None:
        """Reads new messages from the bus. If the bus is unavailable, the next call reads them."""
        self._poll_outputs()
        with suppress(BusUnavailable, BusLocked):
            if self.reference is not None:
                self.reference.poll()

    def _poll_outputs(self) -> None:
        with suppress(BusUnavailable, BusLocked):
            for reader in self.readers.values():
                reader.poll()

    def first_output_after(self, epoch: int) -> int | None:
        """Returns the append time of the first output under an epoch newer than `epoch`, or None."""
        self._poll_outputs()
        return min((t for r in self.readers.values() if (t := r.first_after_epoch(epoch)) is not None), default=None)

    def _strike_all(self) -> None:
        for number, fault in enumerate(self.options.faults, 1):
            brokers = self.options.site.brokers if number == _BROKER_FAULT else None
            if brokers is not None:
                self.say(f"{brokers.stop_one()} is stopped")
            self.strike(fault, self.options.pause_s(number))
            if brokers is not None:
                brokers.restart_stopped()
                self.say("the broker is back")

    def strike(self, fault: Fault, pause_s: float = 0.0) -> Gap:
        """Strikes the active engine, `pause_s` seconds after the group is complete and has processed all input. Returns the gap
        when output has resumed.
        """
        self._wait_whole()
        resume_at = time.monotonic() + pause_s
        wait_until(lambda: time.monotonic() > resume_at, "a moment of quiet", _SETTLE_S + pause_s)
        gap = inject(self.cluster, fault, self.first_output_after)
        self.report.gaps.append(gap)
        self.say(
            f"{len(self.report.gaps)}. {fault.value} {gap.victim}: {gap.successor} published {gap.gap_ms:.0f} ms later; "
            f"{gap.victim} {gap.victim_recovery}"
        )
        return gap

    def strike_by(self, fault: Fault, strike: Callable[[SpawnedEngine], None]) -> Gap:
        """Strikes the active engine of a complete group by calling `strike`, and returns the gap. The caller restores the
        engine.
        """
        self._wait_whole()
        victim, gap = gap_after(self.cluster, fault, strike, self.first_output_after)
        self.report.gaps.append(gap)
        self.say(f"{len(self.report.gaps)}. {fault.value} {victim.name}: {gap.successor} published {gap.gap_ms:.0f} ms later")
        return gap

    def _wait_whole(self) -> None:
        self.cluster.wait_ready()
        self.cluster.wait_caught_up()

    def _settle(self) -> None:
        """Waits for the last event, for the deletes by retention, and until all outputs are delivered, also to the subscriber's
        file.
        """
        self.cluster.wait_ready()
        wait_until(lambda: self.sampler.is_done, "the last reading", self.options.events / self.options.rate * 12 + _SETTLE_S)
        reference = self.reference
        assert reference is not None

        def is_settled() -> bool:
            self.poll()
            over_us = int((RETENTION_S + 2) * 1e6)
            quiet = reference.events >= self.sampler.events and reference.time_us > time_of_last_event + over_us
            return quiet and sum(r.rows for r in self.readers.values()) >= reference.rows

        def all_arrived() -> bool:
            self.poll()
            return reference.events >= self.sampler.events

        wait_until(all_arrived, "the last reading on the bus", _SETTLE_S)
        time_of_last_event = reference.time_us
        result = self.readers["/".join(self.options.result)]
        try:
            wait_until(is_settled, "all outputs delivered", _SETTLE_S)
            wait_until(
                lambda: self.results.exists() and self._file_rows() >= result.rows,
                "all outputs in the subscriber's file",
                _SETTLE_S,
                _LOOK_S,
            )
        except Exception as error:
            self.say(str(error))

    def _judge(self) -> None:
        self.poll()
        reference = self.reference
        if reference is None:
            return
        delivered = {stream: reader.table() for stream, reader in self.readers.items()}
        report = self.report
        report.verdict = compare(reference.tables(), delivered)
        report.published = reference.events
        rows_read = self.sampler.written
        report.input_lost, report.input_doubled = max(0, rows_read - reference.events), max(0, reference.events - rows_read)
        result = delivered["/".join(self.options.result)]
        report.delivered = len(result.filter(result.column("hs:opcode").to_numpy() == 1))
        report.epoch_regressions = sum(r.has_epoch_regression() for r in self.readers.values())
        report.file_wrong = abs(self._file_rows() - len(result))
        self.say(
            f"{report.verdict.reference} output events expected, {report.verdict.delivered} delivered, "
            f"{self._file_rows()} rows in {self.results.name}"
        )

    def _file_rows(self) -> int:
        """Returns the count of rows in the subscriber's file, without its header."""
        with self.results.open() as file:
            return sum(1 for _ in file) - 1
