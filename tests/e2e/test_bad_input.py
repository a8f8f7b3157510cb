"""Bad input of every kind, through real processes: a clear error or a bad event, and nothing is lost (SPEC F15, E15, A44, I10)."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.bus.contract import Partition
from hotspare.bus.naming import inbound_topic, outbound_topic
from hotspare.bus.open import open_bus
from tests.e2e.site import PREFIX, PROJECT, Site

pytestmark = pytest.mark.system
TOPIC = Partition(inbound_topic(PREFIX, "shop", "sales", "orders"))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


def test_bad_rows_become_bad_events_and_good_ones_go_on_f15(site: Site) -> None:
    site.start()
    site.publish("i,n,1,2.5,3\ni,n,2,2.5,many\ni,n,3,2.5\nx,n,4,2.5,3\nu,n,5,2.5,3\ni,n,6,2.5,3\n")
    good = site.wait_for_outputs(2)
    assert [row.split(",")[2].strip() for row in good] == ["1", "6"]
    bad = "\n".join(site.bad_events())
    for text in ("i,n,2,2.5,many", "i,n,3,2.5", "x,n,4,2.5,3"):
        assert text.replace(",", "") in bad.replace(",", "").replace("\\", "").replace('"', ""), bad
    assert "count" in bad, "the field is named"


def test_a_changed_project_under_the_same_prefix_is_refused_with_the_difference_a44(site: Site) -> None:
    engine = site.start()
    engine.request_stop()
    assert engine.wait_stopped() == 0, engine.log_tail()
    site.project.write_text(PROJECT.replace("bycount_sliding: 100", "bycount_sliding: 99"))
    done = site.run_engine()
    assert done.returncode == 1
    assert "HS-0602" in done.stderr
    assert "100" in done.stderr and "99" in done.stderr
    assert "--prefix" in done.stderr and "hotspare reset" in done.stderr


def test_an_output_topic_of_another_group_is_refused_by_name(site: Site) -> None:
    topic = outbound_topic(PREFIX, "shop", "sales", "kept")
    bus = open_bus(site.bus_url)
    bus.create_topic(topic)
    bus.producer("elsewhere.shop", [topic])
    bus.close()
    done = site.run_engine()
    assert done.returncode == 1
    assert f"output topic {topic} belongs to group elsewhere.shop" in done.stderr


def test_positions_that_the_topic_lost_are_refused_with_numbers_e15(site: Site) -> None:
    engine = site.start()
    site.publish("".join(f"i,n,{i},1,1\n" for i in range(50)))
    site.wait_for_outputs(50)
    engine.kill()
    bus = open_bus(site.bus_url)
    for snapshot in site.snapshots.rglob("*.confirmed"):
        snapshot.unlink()
    bus.trim(TOPIC, bus.end_offset(TOPIC))
    bus.close()
    done = site.run_engine()
    assert done.returncode == 1
    assert "HS-0303" in done.stderr
    assert "offset 0 is needed" in done.stderr or "0 is needed" in done.stderr


def test_a_truncated_snapshot_is_reported_and_the_state_rebuilt_nothing_lost(site: Site) -> None:
    engine = site.start()
    site.publish("".join(f"i,n,{i},1,1\n" for i in range(50)))
    before = site.wait_for_outputs(50)
    site.wait_for_snapshot()
    engine.kill()
    for page in (p for p in site.snapshots.rglob("*") if p.parent.name == "pages"):
        page.write_bytes(page.read_bytes()[:-1])
    again = site.start()
    site.publish("i,n,50,1,1\n", "more.csv")
    after = site.wait_for_outputs(51)
    assert after[:50] == before
    assert "snapshot_rejected" in again.log.read_text()


def test_an_unknown_window_type_is_named_with_its_line(site: Site) -> None:
    site.project.write_text(PROJECT.replace("type: copy", "type: pattern"))
    done = site.run("validate", str(site.project))
    assert done.returncode == 2
    assert "pattern" in done.stderr and "shop.yaml:" in done.stderr


def test_two_groups_with_other_prefixes_share_a_bus_and_never_meet_c7(site: Site) -> None:
    """SPEC C7, L7."""
    site.start()
    site.publish("i,n,1,1,1\n")
    site.wait_for_outputs(1)
    done = site.run("status", "--bus", site.bus_url, "--json")
    assert done.returncode == 0, done.stderr
    assert f"{PREFIX}.shop" in done.stdout
    other = site.run("topics", "--bus", site.bus_url, "--prefix", "other")
    assert other.returncode == 0
    assert TOPIC.topic not in other.stdout
