"""The display of a running engine's memory: how much of each window's rows is in memory, and how much is evicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotspare.testing.cluster import wait_until
from tests.e2e.site import PROJECT, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROWS = 60_000
KEEPS_ALL = PROJECT.replace("retention: {bycount_sliding: 100}\n", "resident: may leave\n")


def test_state_show_tells_hot_and_cold_rows_of_each_window(tmp_path: Path) -> None:
    """SPEC G1, G12. Rows of three fields of eight bytes, a third of a budget of a MiB."""
    options = ("--runner", "local", "--snapshots", "200 milliseconds", "--memory", "1MiB", "--page-folder", str(tmp_path))
    site = Site(tmp_path, project_text=KEEPS_ALL, options=options)

    def shown() -> list[dict[str, Any]]:
        done = site.run("state", "show", "e2e.shop", "--bus", site.bus_url, "--json")
        memory = json.loads(done.stdout)["memory"] if done.returncode == 0 else []
        return [each for each in memory if each["window"] == "sales/kept"]

    try:
        site.start()
        site.publish("".join(f"i,n,{i},{i % 7},1\n" for i in range(ROWS)))
        seen: list[dict[str, Any]] = []

        def all_are_there() -> bool:
            """Whether all rows are counted, in memory or evicted; the latest are evicted a moment later."""
            seen[:] = shown()
            return any(each["hot"] <= 1 << 20 and each["hot"] + each["cold"] >= ROWS * 24 for each in seen)

        wait_until(all_are_there, "all rows, most of which have left memory", poll_s=0.5)
        (kept,) = seen
        assert kept["engine"] == "one"
        assert 0 < kept["hot"] <= 1 << 20 < kept["cold"] < kept["stays"] + kept["hot"] + kept["cold"] < ROWS * 100
        table = site.run("state", "show", "e2e.shop", "--bus", site.bus_url).stdout
        assert "out of it (cold)" in table
    finally:
        site.stop()
