"""A cold spare, by real processes (SPEC C13, Z18): it costs almost nothing while other engines live, and loses nothing if none
does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.testing.cluster import wait_until
from tests.e2e.site import Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.stop()


def rows(numbers: range) -> str:
    return "".join(f"i,n,{n},{n}.5,1\n" for n in numbers)


def test_a_cold_spare_goes_on_where_the_last_engine_was(site: Site) -> None:
    """SPEC C13, Z18. Next to a hot spare it stays cold; alone with a dead group it rebuilds the state, and no output is lost or
    duplicated."""
    site.start("one")
    # a role has to be free for its own lease before it starts: the hot one may stall for a second on a busy machine
    hot, cold = site.cluster.start_engine("two"), site.cluster.start_engine("three", "--spare", "cold", "--lease-ms", "4000")
    wait_until(lambda: site.cluster.role("three") == "cold" and site.cluster.is_ready("two"), "a hot spare and a cold one", 180)
    site.publish(rows(range(100)))
    site.wait_for_outputs(100)
    site.cluster.engines["one"].kill()
    wait_until(lambda: site.cluster.active_engine() is hot, "the hot spare has the role", 180)
    site.publish(rows(range(100, 150)), "second.csv")
    before = site.wait_for_outputs(200)  # each new row, and from the 101st on the one that it evicts
    assert site.cluster.role("three") == "cold"
    hot.kill()
    wait_until(lambda: site.cluster.active_engine() is cold, "the cold spare has the role", 180)
    site.publish(rows(range(150, 160)), "third.csv")
    found = site.wait_for_outputs(220)
    assert found[:200] == before
    assert [int(row.split(",")[2]) for row in found if row.startswith("I")] == list(range(160))
    assert [int(row.split(",")[2]) for row in found if row.startswith("D")] == list(range(60))
