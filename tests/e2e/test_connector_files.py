"""The file of a project's subscribing connector while the active engine is frozen, and after it thaws (SPEC E9, E16, I6, I12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.testing.cluster import wait_until
from tests.e2e.site import PROJECT, Site, whole_lines

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

WITH_CONNECTOR = PROJECT.replace(
    "        publish: true\n",
    "        publish: true\n"
    "        connectors:\n"
    "          writer: {kind: fs, direction: sub, properties: {fsname: out.csv, fstype: csv}}\n",
)


def rows(first: int, count: int) -> str:
    return "".join(f"i,n,{number},1,1\n" for number in range(first, first + count))


def test_the_successor_of_a_frozen_engine_writes_on_and_the_frozen_one_writes_nothing(tmp_path: Path) -> None:
    site, output = Site(tmp_path, WITH_CONNECTOR), tmp_path / "out.csv"

    def written() -> list[int]:
        return [int(line.split(",")[2]) for line in whole_lines(output)]

    try:
        for name in ("one", "two"):
            site.cluster.start_engine(name)
        site.cluster.wait_ready()
        site.publish(rows(0, 20), "first.csv")
        wait_until(lambda: written() == list(range(20)), "the active engine's connector has written")
        frozen = site.cluster.wait_active()
        site.freeze(frozen)
        site.publish(rows(20, 20), "second.csv")
        assert len(site.wait_for_outputs(40)) == 40, "the successor publishes"
        wait_until(lambda: written() == list(range(40)), "the successor's connector writes on while the other is frozen")
        frozen.thaw()
        site.publish(rows(40, 20), "third.csv")
        wait_until(lambda: len(written()) >= 60, "the successor's connector writes")
        name = next(name for name, engine in site.cluster.engines.items() if engine is frozen)
        wait_until(lambda: site.cluster.role(name) == "standby", "the frozen one gives way")
        assert written() == list(range(60))
    finally:
        site.stop()
