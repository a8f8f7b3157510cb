"""The long campaign: every scenario at random instants, each with a group of its own, on real servers or on the embedded bus.

    make chaos                                   Kafka with three brokers, and ZooKeeper; then engines on hosts of their own
    make chaos ARGS="--site embedded --only E2 E16 --rounds 5 --seed 3"

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
from pathlib import Path

from hotspare.demo.scenario import Demo, DemoOptions, DemoReport
from hotspare.demo.site import Site, embedded
from hotspare.testing.hosts import why_not
from tests.e2e.chaos.host_scenarios import HOST_SCENARIOS
from tests.e2e.chaos.scenarios import SCENARIOS, Needs, Scenario

EVENTS, RATE = 6_000, 300.0


def play(
    scenarios: Sequence[Scenario],
    site: Site,
    folder: Path,
    seed: int,
    say: Callable[[str], None],
    engine_options: tuple[str, ...] = (),
    events: int = EVENTS,
) -> tuple[DemoReport, list[str]]:
    """Play scenarios one after another on one group; returns the verdict and the processes that were left over."""
    folder.mkdir(parents=True, exist_ok=True)
    options = DemoOptions(folder, site, events, RATE, spares=max(s.spares for s in scenarios), engine_options=engine_options)
    demo = Demo(options, say)

    def strikes(running: Demo) -> None:
        for number, scenario in enumerate(scenarios):
            running.cluster.wait_ready()
            say(scenario.name)
            scenario.run(running, random.Random(seed * 1_000 + number))

    return demo.run(strikes), demo.cluster.leftovers()


def playable(scenarios: Sequence[Scenario], site: Site) -> list[Scenario]:
    """Those whose needs the site meets."""
    has = Needs.NOTHING
    if site.brokers is not None:
        has |= Needs.BROKERS
    if site.coordinators is not None:
        has |= Needs.COORDINATORS
    if site.network is not None:
        has |= Needs.HOSTS
    return [s for s in scenarios if s.needs in has]


def _site(kind: str, scenario: Scenario, folder: Path) -> AbstractContextManager[Site]:
    if kind == "embedded":
        return nullcontext(embedded(folder))
    from hotspare.demo.servers import kafka_and_zookeeper, on_hosts

    return on_hosts(folder, 1 + scenario.spares) if Needs.HOSTS in scenario.needs else kafka_and_zookeeper(folder)


def _left_out(kind: str, scenario: Scenario) -> str:
    """Why a scenario cannot be played, or ""."""
    if Needs.HOSTS in scenario.needs:
        return "the embedded bus is one host's" if kind == "embedded" else why_not()
    return "the embedded bus has no servers" if kind == "embedded" and scenario.needs is not Needs.NOTHING else ""


def _say(sentence: str) -> None:
    print(f"   {sentence}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", choices=("kafka", "embedded"), default="kafka")
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows of the specification, such as E2")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    everything = (*SCENARIOS, *HOST_SCENARIOS)
    chosen = [s for s in everything if options.only is None or s.row.split()[0] in options.only]
    rounds, left_out, failures = range(options.seed, options.seed + options.rounds), 0, 0
    for seed in rounds:
        for number, scenario in enumerate(chosen):
            if reason := _left_out(options.site, scenario):
                print(f"{scenario.name}: left out, {reason}", flush=True)
                left_out += 1
            else:
                failures += not _is_good(options.site, scenario, seed, seed * 100 + number)
    print(f"{len(rounds) * len(chosen) - left_out} runs, {failures} bad, {left_out} left out")
    return 1 if failures else 0


def _is_good(kind: str, scenario: Scenario, seed: int, own_seed: int) -> bool:
    """Play one scenario, and tell how it went; what a bad one leaves behind is kept."""
    folder = Path(tempfile.mkdtemp(prefix="hotspare-chaos-"))
    with _site(kind, scenario, folder) as site:
        report, left = play([scenario], site, folder / "run", own_seed, _say)
    good = report.is_exact and not left
    kept = "" if good else f"; look at {folder}, or repeat it with --only {scenario.row.split()[0]} --seed {seed}"
    print(f"{'good' if good else 'BAD '} {scenario.name}, seed {seed}: {report.last_line()}{kept}", flush=True)
    for line in left:
        print(f"   left over: {line}")
    if good:
        shutil.rmtree(folder, ignore_errors=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
