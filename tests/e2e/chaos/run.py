"""The long campaign: every scenario at random instants, each with a group of its own, on real servers or on the embedded bus.

    make chaos                                   Kafka with three brokers, and ZooKeeper, also with a project that changes; then
                                                 engines on hosts of their own; then applications of Spark, and workers on hosts
    make chaos ARGS="--site embedded --only E2 E16 --rounds 5 --seed 3"
    make chaos ARGS="--only A9 --kills 200 --rate 20 --shards 2 --compilers both"
                                                 200 kills of parts of one application, one after another: an hour or two
    make chaos ARGS="--only A1 A4 A7 --together" one pair of applications goes through all of them: most of the time is their start

Exit status 0 only if after each scenario the delivered events are those of the uninterrupted run and no process is left over.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import Enum
from pathlib import Path

from hotspare.demo.applications import APPLICATIONS, SHARDS, ApplicationsDemo, ApplicationsOptions
from hotspare.demo.scenario import Demo, DemoOptions, DemoReport, EndOfInput
from hotspare.demo.site import Site, embedded
from hotspare.testing.applications import Strike
from hotspare.testing.hosts import why_no_hosts
from hotspare.testing.kafka_server import BrokerTuning, Compilers
from tests.e2e.chaos.application_scenarios import APPLICATION_SCENARIOS, ApplicationScenario
from tests.e2e.chaos.host_scenarios import HOST_SCENARIOS
from tests.e2e.chaos.scenarios import SCENARIOS, Needs, Scenario
from tests.e2e.chaos.upgrade_scenarios import UPGRADE_SCENARIOS, UpgradeScenario, play_upgrade
from tests.e2e.chaos.worker_scenarios import WORKER_SCENARIOS

AnyScenario = Scenario | ApplicationScenario | UpgradeScenario

EVENTS, RATE = 6_000, 300.0
SHARD_EVENTS, SHARD_RATE = 500_000, 100.0
"""The events of a project in shards: more than will be needed, because the last strike ends them."""
TASK_LEASE_MS = 10_000
"""The command's default: if thirty processes share two cores, a starting task may be silent for five seconds."""
WORKERS = 4
ON_WORKERS = ("--tasks", "2", "--conf", f"spark.pyspark.python={sys.executable}", "--conf", "spark.executor.memory=512m")
"""Two workers for each application; they see the files of this machine."""


class Together(Enum):
    """The scenarios that one group goes through."""

    NOTHING = "each scenario has a group of its own"
    ALL = "one group goes through all that need the same site"


def play(
    scenarios: Sequence[Scenario],
    site: Site,
    folder: Path,
    seed: int,
    say: Callable[[str], None],
    engine_options: tuple[str, ...] = (),
    events: int = EVENTS,
) -> tuple[DemoReport, list[str]]:
    """Plays scenarios one after another on one group; returns the verdict and the processes that were left over."""
    folder.mkdir(parents=True, exist_ok=True)
    options = DemoOptions(folder, site, events, RATE, spares=max(s.spares for s in scenarios), engine_options=engine_options)
    demo = Demo(options, say)

    def strikes(running: Demo) -> None:
        for number, scenario in enumerate(scenarios):
            running.cluster.wait_ready()
            say(scenario.name)
            scenario.run(running, random.Random(seed * 1_000 + number))

    return demo.run(strikes), demo.cluster.leftovers()


def play_applications(
    scenarios: Sequence[ApplicationScenario],
    site: Site,
    folder: Path,
    seed: int,
    say: Callable[[str], None],
    kills: int = 0,
    rate: float = SHARD_RATE,
    shards: int = SHARDS,
    run_options: tuple[str, ...] = (),
) -> tuple[DemoReport, list[str]]:
    """Like `play` with two Spark applications. `kills`: for the scenario that takes a number of them."""
    folder.mkdir(parents=True, exist_ok=True)
    strikes = [random.Random(f"{seed} {number}").choice((Strike.EXECUTOR, Strike.WORKER)) for number in range(kills)]
    options = ApplicationsOptions(
        folder,
        site,
        SHARD_EVENTS,
        rate,
        shards=shards,
        strikes=strikes,
        task_lease_ms=TASK_LEASE_MS,
        rebalance_after_ms=max(s.rebalance_after_ms for s in scenarios),
        end=EndOfInput.AFTER_FAULTS,
    )
    if site.spark_url:
        options = replace(options, spark=("--master", site.spark_url, *ON_WORKERS))
    demo = ApplicationsDemo(replace(options, spark=(*options.spark, *run_options)), say)

    def strike(running: ApplicationsDemo) -> None:
        for number, scenario in enumerate(scenarios):
            running.wait_both_hosted()
            say(scenario.name)
            scenario.run(running, random.Random(seed * 1_000 + number))

    return demo.run(strike), demo.cluster.leftovers()


def playable(scenarios: Sequence[Scenario], site: Site) -> list[Scenario]:
    """Returns the scenarios whose needs the site meets."""
    has = Needs.NOTHING
    if site.brokers is not None:
        has |= Needs.BROKERS
    if site.coordinators is not None:
        has |= Needs.COORDINATORS
    if site.network is not None:
        has |= Needs.HOSTS
    return [s for s in scenarios if s.needs in has]


def batches(scenarios: Sequence[AnyScenario], together: Together) -> list[list[AnyScenario]]:
    """Returns the scenarios of each group: one, or all that need the same kind of group and of site."""
    if together is Together.NOTHING:
        return [[scenario] for scenario in scenarios]
    found: dict[tuple[type, Needs], list[AnyScenario]] = {}
    for scenario in scenarios:
        found.setdefault((type(scenario), scenario.needs & Needs.HOSTS), []).append(scenario)
    return list(found.values())


def _site(kind: str, scenarios: Sequence[AnyScenario], folder: Path, tuning: BrokerTuning) -> AbstractContextManager[Site]:
    if kind == "embedded":
        return nullcontext(embedded(folder))
    from hotspare.demo.servers import kafka_and_zookeeper, on_hosts, spark_on_hosts

    if Needs.HOSTS not in scenarios[0].needs:
        return kafka_and_zookeeper(folder, tuning=tuning)
    if isinstance(scenarios[0], ApplicationScenario):
        return spark_on_hosts(folder, APPLICATIONS, WORKERS)
    return on_hosts(folder, 1 + max(scenario.spares for scenario in scenarios if isinstance(scenario, Scenario)))


def _left_out(kind: str, scenario: AnyScenario) -> str:
    """Returns why a scenario cannot be played, or ""."""
    if Needs.HOSTS in scenario.needs:
        return "the embedded bus is one host's" if kind == "embedded" else why_no_hosts()
    return "the embedded bus has no servers" if kind == "embedded" and scenario.needs is not Needs.NOTHING else ""


def _say(sentence: str) -> None:
    print(f"   {sentence}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="scenarios by their rows, such as E2, H4 or A6")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--together", action="store_true", help="one group goes through all that need the same site")
    parser.add_argument("--kills", type=int, default=10, help="in the scenario of many kills, A9")
    parser.add_argument("--rate", type=float, default=SHARD_RATE, help="events/s of a project in shards (default: %(default)s)")
    parser.add_argument("--shards", type=int, default=SHARDS, help="of a project in shards (default: %(default)s)")
    compilers, default = [each.value for each in Compilers], Compilers.FIRST.value
    parser.add_argument("--compilers", choices=compilers, default=default, help="of the brokers' JVM (default: %(default)s)")
    options = parser.parse_args(arguments)
    everything = (*SCENARIOS, *UPGRADE_SCENARIOS, *HOST_SCENARIOS, *APPLICATION_SCENARIOS, *WORKER_SCENARIOS)
    chosen = [s for s in everything if options.only is None or s.row.split()[0] in options.only]
    exclusion_reason, rounds, runs, failures = 0, range(options.seed, options.seed + options.rounds), 0, 0
    for scenario in list(chosen):
        if reason := _left_out(options.site, scenario):
            print(f"{scenario.name}: left out, {reason}", flush=True)
            chosen.remove(scenario)
            exclusion_reason += len(rounds)
    for seed in rounds:
        for number, batch in enumerate(batches(chosen, Together.ALL if options.together else Together.NOTHING)):
            runs += 1
            failures += not _is_good(options, batch, seed, seed * 100 + number)
    print(f"{runs} runs, {failures} bad, {exclusion_reason} left out")
    return 1 if failures else 0


def _is_good(options: argparse.Namespace, scenarios: Sequence[AnyScenario], seed: int, own_seed: int) -> bool:
    """Plays scenarios on one group and reports the result; keeps the files of a bad one."""
    folder = Path(tempfile.mkdtemp(prefix="hotspare-chaos-"))
    on_shards = [scenario for scenario in scenarios if isinstance(scenario, ApplicationScenario)]
    with _site(options.site, scenarios, folder, BrokerTuning(compilers=Compilers(options.compilers))) as site:
        if on_shards:
            report, left = play_applications(
                on_shards, site, folder / "run", own_seed, _say, options.kills, options.rate, options.shards
            )
        elif isinstance(scenarios[0], UpgradeScenario):
            report, left = play_upgrade(scenarios[0], site, folder / "run", own_seed, _say)
        else:
            others = [scenario for scenario in scenarios if isinstance(scenario, Scenario)]
            report, left = play(others, site, folder / "run", own_seed, _say)
    good = report.is_exact and not left
    rows = " ".join(scenario.row.split()[0] for scenario in scenarios) + (" --together" if len(scenarios) > 1 else "")
    kept = "" if good else f"; look at {folder}, or repeat it with --only {rows} --seed {seed}"
    names = "; ".join(scenario.name for scenario in scenarios)
    print(f"{'good' if good else 'BAD '} {names}, seed {seed}: {report.last_line()}{kept}", flush=True)
    for line in left:
        print(f"   left over: {line}")
    if good:
        shutil.rmtree(folder, ignore_errors=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
