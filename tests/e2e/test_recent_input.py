"""A spare that builds its state from recent input, by real processes (SPEC F11): snapshots are off, older input is deleted, the
active engine dies, and no output is lost or duplicated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hotspare.bus.contract import Partition
from hotspare.bus.open import open_bus
from hotspare.testing.cluster import settings_options, wait_until
from tests.e2e.site import PREFIX, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

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
        retention: {bytime_sliding: 2 seconds}
        publish: true
      sums:
        type: aggregate
        schema: count*:int64,total:double,rows:int64
        outputs: {total: ESP_aSum(amount), rows: ESP_aCount()}
        publish: true
    edges: [orders -> kept, kept -> sums]
"""
OPTIONS = ("--runner", "local", "--snapshots", "off")
SPAN_US = 33_000_000
"""The period that any state depends on, plus twice the allowed clock skew, plus a second."""
INPUT = Partition(f"{PREFIX}.shop.sales.orders.I")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, PROJECT, (*OPTIONS, *settings_options(tmp_path, {"skew-max-ms": 2000})))
    yield made
    made.stop()


def rows(numbers: range) -> str:
    return "".join(f"i,n,{n},{n}.1,1\n" for n in numbers)


def history_us(site: Site) -> int:
    """Returns the period that the input topic covers, in microseconds."""
    with closing(open_bus(site.bus_url)) as bus:
        first, last = (bus.read(INPUT, at, messages_max=1, bytes_max=1 << 20) for at in (0, bus.end_offset(INPUT) - 1))
    return last[0].append_time_us - first[0].append_time_us


def test_it_goes_on_exactly_without_a_snapshot_and_without_the_input_of_before(site: Site) -> None:
    site.cluster.start_engine("one")
    site.cluster.wait_ready(240)
    site.publish(rows(range(50)))
    site.wait_for_outputs(100)  # their events are beyond the window's retention by now
    wait_until(lambda: history_us(site) > SPAN_US, "input from before what matters")
    second = site.cluster.start_engine("two", "--join", "recent")
    wait_until(lambda: site.cluster.role("two") == "warming", "a state that nothing proves yet", 240)
    count = 50

    def is_accepted() -> bool:
        nonlocal count
        assert second.is_running, "the spare was refused"
        site.publish(rows(range(count, count + 3)), f"from-{count}.csv")
        count += 3
        return site.cluster.role("two") == "standby"

    wait_until(is_accepted, "rows to show that the spare is right", 240)
    with closing(open_bus(site.bus_url)) as bus:
        end = bus.end_offset(INPUT)
        site.cluster.wait_read(end)
        bus.trim(INPUT, end - 1)
    site.cluster.engines["one"].kill()
    wait_until(lambda: site.cluster.active_engine() is second, "the spare has the role")
    site.publish(rows(range(count, count + 20)), "last.csv")
    found = site.wait_for_outputs(2 * (count + 20))
    inserted, deleted = ([int(row.split(",")[2]) for row in found if row.startswith(opcode)] for opcode in "ID")
    assert inserted == list(range(count + 20))
    assert deleted == list(range(count + 20))


def test_a_project_that_remembers_more_is_refused_by_name(site: Site) -> None:
    site.project.write_text(PROJECT.replace("bytime_sliding: 2 seconds", "bycount_sliding: 20"))
    site.options = (*OPTIONS, "--join", "recent")
    done = site.run_engine()
    assert done.returncode != 0
    assert "window sales/kept holds 20 rows" in done.stderr
