"""The demo on Spark's executors: two applications host the shards of a project, and parts of them are killed while it works. The
outputs of each shard are compared with an uninterrupted run over its partition."""

from __future__ import annotations

import importlib.resources
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from hotspare.base.errors import BusLocked, BusUnavailable, ClusterError
from hotspare.base.shard import Shard, shards_of
from hotspare.bus.naming import bad_topic, group_name, inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from hotspare.demo.faults import Fault, Gap
from hotspare.demo.sampler import SENSOR_HEADER, Sampler, sensor_reading
from hotspare.demo.scenario import PREFIX, RETENTION_S, SOURCE, DemoReport, EndOfInput, stop_after_block
from hotspare.demo.site import Site
from hotspare.flow.head.head import Head
from hotspare.flow.plan import compile_plan
from hotspare.projects.load import load_project
from hotspare.rows.batch import BAD_STREAM
from hotspare.runners.contract import SourceTopic
from hotspare.testing.applications import Applications, Strike, StrikeRecord
from hotspare.testing.cluster import Cluster, SpawnedEngine, settings_options, wait_until
from hotspare.testing.recorder import OutputReader, ReferenceRun
from hotspare.testing.verify import DeliveryVerdict, compare

APPLICATIONS = ("east", "west")
SHARDS = 4
MASTER = "local-cluster[2,1,1024]"
RESULT = ("memory", "shares")
_PROJECT = "sensors.yaml"
_WHOLE_S = 240.0
_SETTLE_S = 120.0
_LOOK_S = 0.1
STRIKE_ORDER = (Strike.EXECUTOR, Strike.WORKER, Strike.FREEZE, Strike.DRIVER)


def plan_strikes(count: int) -> tuple[Strike, ...]:
    """Returns `count` strikes, by repeating STRIKE_ORDER."""
    return tuple(islice(cycle(STRIKE_ORDER), count))


@dataclass(frozen=True, slots=True)
class ApplicationsOptions:
    """The options of the demo. `rate`: readings per second. `strikes`: made one after another, each `pause_s` seconds after both
    applications host all shards. `spark`: the command-line options of both applications for their Spark cluster.
    """

    folder: Path
    site: Site
    events: int = 20_000
    rate: float = 250.0
    shards: int = SHARDS
    strikes: Sequence[Strike] = STRIKE_ORDER
    pause_s: float = 1.0
    task_lease_ms: int = 5_000
    rebalance_after_ms: int = 5_000
    spark: Sequence[str] = ("--master", MASTER)
    end: EndOfInput = EndOfInput.AT_COUNT


class _ShardWatch:
    """The delivered outputs of one shard, and the expected ones, from an uninterrupted run over the shard's partition."""

    def __init__(self, demo: ApplicationsDemo, shard: Shard) -> None:
        plan, name = demo.plan, demo.plan.resolved.project.name
        topics = tuple(
            SourceTopic(inbound_topic(PREFIX, name, w.query, w.window), shard.count, shard=shard.number)
            for w in plan.resolved.sources
        )
        self.reference = ReferenceRun(demo.bus, plan, Head.from_plan(plan, shards=shard.count), topics, shard.number)
        self.readers = {
            stream: OutputReader(demo.bus, _topic(name, stream), schema, shard.number)
            for stream, schema in plan.stream_schemas.items()
        }

    def poll_outputs(self) -> None:
        for reader in self.readers.values():
            reader.poll()

    def first_output_us(self, epoch: int) -> int | None:
        return min((t for r in self.readers.values() if (t := r.first_after_epoch(epoch)) is not None), default=None)

    @property
    def rows(self) -> int:
        return sum(reader.rows for reader in self.readers.values())

    @property
    def has_all(self) -> bool:
        return self.rows >= self.reference.rows

    def verdict(self) -> DeliveryVerdict:
        return compare(self.reference.tables(), {stream: reader.table() for stream, reader in self.readers.items()})

    @property
    def inserted(self) -> int:
        result = self.readers["/".join(RESULT)].table()
        return len(result.filter(result.column("hs:opcode").to_numpy() == 1))


def _topic(project: str, stream: str) -> str:
    return bad_topic(PREFIX, project) if stream == BAD_STREAM else outbound_topic(PREFIX, project, *stream.split("/"))


class ApplicationsDemo:
    """A run of the demo. `say` is called with a sentence at each step."""

    def __init__(self, options: ApplicationsOptions, say: Callable[[str], None]) -> None:
        self.options, self.say = options, say
        self.report = DemoReport(kills=0)
        folder, site = options.folder, options.site
        self.project_file = folder / _PROJECT
        self.project_file.write_text(importlib.resources.files("hotspare.demo").joinpath(_PROJECT).read_text())
        self.plan = compile_plan(load_project(self.project_file).resolved)
        name = self.plan.resolved.project.name
        self.groups = tuple(group_name(PREFIX, name, shard) for shard in shards_of(options.shards))
        self.bus = open_bus(site.bus_url)
        times = {"task-lease-ms": options.task_lease_ms, "rebalance-after-ms": options.rebalance_after_ms}
        shards = ("--shards", str(options.shards))
        run_options = (
            "--runner",
            "partitioned",
            *options.spark,
            *settings_options(folder, times),
            *shards,
            "--store",
            site.store_url,
        )
        self.cluster = Cluster(
            self.project_file, site.bus_url, self.groups[0], PREFIX, folder, run_options, site.coordination_url, site.places
        )
        self.applications = Applications(self.cluster, self.groups)
        self.readings, self.results = folder / "readings.csv", folder / f"{RESULT[1]}.csv"
        self.sampler = Sampler(self.readings, options.events, options.rate, lambda: not self._struck, sensor_reading, SENSOR_HEADER)
        self._struck = False
        self._watches: list[_ShardWatch] = []

    def run(self, strikes: Callable[[ApplicationsDemo], None] | None = None) -> DemoReport:
        """Runs the demo to its end and returns the report. All processes are stopped in any case.

        `strikes` replaces the options' strikes. It is called once, while events flow; afterwards both applications must host all
        shards.
        """
        with stop_after_block(self.cluster, self.sampler):
            self._start()
            (strikes or ApplicationsDemo.strike_all)(self)
            self._struck = True
            self._settle()
        self._judge()
        self.bus.close()
        return self.report

    def _start(self) -> None:
        options = self.options
        self.say(
            f"starting {' and '.join(APPLICATIONS)}, each a Spark application on {options.spark[1]}, for {options.shards} shards"
        )
        for name in APPLICATIONS:
            self.cluster.start_engine(name)
        self.wait_both_hosted()
        self.say(self._roles())
        self.sampler.start()
        self._start_adapter("publisher", "publish", SOURCE, "--header", "1", "--growing", str(self.readings))
        project = ("--project", str(self.project_file))
        self._start_adapter("subscriber", "subscribe", RESULT, "--header", "full", *project, str(self.results))
        self._watches = [_ShardWatch(self, shard) for shard in shards_of(options.shards)]
        self.say(f"publishing {options.events} readings of this machine's memory at {options.rate:g} a second")
        self.wait_for_newer_epochs(dict.fromkeys(range(options.shards), 0), "the first output of each shard")

    def _start_adapter(self, name: str, command: str, window: tuple[str, str], *options: str) -> SpawnedEngine:
        path = "/".join((self.plan.resolved.project.name, *window))
        bus = ("--bus", self.options.site.bus_url, "--prefix", PREFIX)
        return self.cluster.start_other(name, command, *bus, "--window", path, *options)

    def _roles(self) -> str:
        active = {shard: member.detail.get("application", "?") for shard, member in self.applications.active_by_shard().items()}
        by_name = ((name, [str(shard) for shard, has in active.items() if has == name]) for name in APPLICATIONS)
        return "; ".join(f"{name} is active for {', '.join(shards) or 'none'}" for name, shards in by_name)

    def wait_both_hosted(self) -> None:
        """Waits until both applications host a complete engine of every shard, and one of these is active."""
        self.applications.wait_hosted(_WHOLE_S)

    def epochs(self) -> dict[int, int]:
        """Returns the current epoch of every shard."""
        return {shard: self.cluster.coordination.leader(group).epoch for shard, group in enumerate(self.groups)}

    def wait_for_newer_epochs(self, epochs: Mapping[int, int], what: str) -> None:
        """Waits until each shard in `epochs` has published an output under an epoch newer than the given one. `what` describes the
        wait in errors.
        """
        wait_until(lambda: self._first_outputs(epochs), what, _SETTLE_S, _LOOK_S)

    def wait_for_output(self, more: int = 20) -> None:
        """Waits until each shard has published at least `more` further rows."""
        wanted = [self._rows(shard) + more for shard in range(len(self.groups))]
        wait_until(lambda: all(self._rows(shard) >= rows for shard, rows in enumerate(wanted)), "more output", _SETTLE_S, _LOOK_S)

    def _rows(self, shard: int) -> int:
        with suppress(BusUnavailable, BusLocked):
            self._watches[shard].poll_outputs()
        return self._watches[shard].rows

    def strike_all(self) -> None:
        """Strikes once for each item of `options.strikes`, one after the other."""
        for strike in self.options.strikes:
            self.strike(strike)

    def strike(self, strike: Strike) -> None:
        """Strikes the place with the most active shards, after both applications host all shards. Returns when each struck shard
        publishes again. A killed application is started again.
        """
        self.wait_both_hosted()
        resume_s = time.monotonic() + self.options.pause_s
        wait_until(lambda: time.monotonic() > resume_s, "a moment of quiet", _SETTLE_S)
        struck = self.applications.strike(strike)
        self.record_takeovers(strike.value, struck)
        if strike.ends_application:
            self.cluster.start_engine(struck.application)

    def record_takeovers(self, what: str, struck: StrikeRecord) -> None:
        """Waits until each shard of a strike publishes outputs under a newer epoch. Reports the longest pause, with `what` as the
        kind of strike.
        """
        epochs = {shard: leader.epoch for shard, leader in struck.leaders.items()}
        self.wait_for_newer_epochs(epochs, f"output of shards {list(epochs)} after {what} {struck.application}")
        gaps = [self._gap(struck, shard, epoch) for shard, epoch in epochs.items()]
        self.report.gaps += gaps
        self.report.kills = (self.report.kills or 0) + 1
        longest = max(gap.gap_ms for gap in gaps)
        shards = ", ".join(map(str, epochs))
        self.say(f"{self.report.kills}. {what} {struck.application}: shards {shards} went on within {longest:.0f} ms")
        self._poll()

    def _first_outputs(self, epochs: Mapping[int, int]) -> bool:
        """Whether each shard in `epochs` has published an output under an epoch newer than the given one."""
        with suppress(BusUnavailable, BusLocked):
            for shard in epochs:
                self._watches[shard].poll_outputs()
        return all(self._watches[shard].first_output_us(epoch) is not None for shard, epoch in epochs.items())

    def _gap(self, struck: StrikeRecord, shard: int, epoch: int) -> Gap:
        first_us = self._watches[shard].first_output_us(epoch)
        assert first_us is not None
        leader = self.cluster.coordination.leader(self.groups[shard])
        return Gap(Fault.KILL, struck.leaders[shard].holder, leader.holder, leader.epoch, struck.at_us, first_us)

    def _poll(self) -> None:
        with suppress(BusUnavailable, BusLocked):
            for watch in self._watches:
                watch.poll_outputs()
                watch.reference.poll()

    @property
    def _arrived(self) -> int:
        return sum(watch.reference.events for watch in self._watches)

    def _settle(self) -> None:
        """Waits for the last reading, for the deletes by retention, and until all outputs are delivered, also to the subscriber's
        file.
        """
        if self.options.end is EndOfInput.AFTER_FAULTS:
            self.sampler.end_writing()
        self.wait_both_hosted()
        self.say(self._roles())
        wait_until(lambda: self.sampler.is_done, "the last reading", self.options.events / self.options.rate * 12 + _SETTLE_S)

        def all_arrived() -> bool:
            self._poll()
            return self._arrived >= self.sampler.events

        wait_until(all_arrived, "the last reading on the bus", _SETTLE_S, _LOOK_S)
        over_us = [watch.reference.time_us + int((RETENTION_S + 2) * 1e6) for watch in self._watches]

        def is_settled() -> bool:
            self._poll()
            is_quiet = all(watch.reference.time_us > over for watch, over in zip(self._watches, over_us, strict=True))
            return is_quiet and all(watch.has_all for watch in self._watches)

        try:
            wait_until(is_settled, "all outputs delivered", _SETTLE_S, _LOOK_S)
            wait_until(lambda: self._is_in_file, "all outputs in the subscriber's file", _SETTLE_S, _LOOK_S)
        except ClusterError as error:
            self.say(str(error))

    def _judge(self) -> None:
        self._poll()
        report = self.report
        for watch in self._watches:
            report.verdict += watch.verdict()
            report.delivered += watch.inserted
            report.epoch_regressions += sum(reader.has_epoch_regression() for reader in watch.readers.values())
        report.published, written = self._arrived, self.sampler.written
        report.input_lost, report.input_doubled = max(0, written - report.published), max(0, report.published - written)
        report.file_wrong = abs(self._file_rows() - self._results)
        self.say(
            f"{report.verdict.reference} output events expected, {report.verdict.delivered} delivered, "
            f"{self._file_rows()} rows in {self.results.name}"
        )

    @property
    def _results(self) -> int:
        """The count of outputs on the bus of the window whose outputs the subscriber writes."""
        return sum(watch.readers["/".join(RESULT)].rows for watch in self._watches)

    @property
    def _is_in_file(self) -> bool:
        return self.results.exists() and self._file_rows() >= self._results

    def _file_rows(self) -> int:
        """Returns the count of rows in the subscriber's file, without its header."""
        with self.results.open() as file:
            return sum(1 for _ in file) - 1
