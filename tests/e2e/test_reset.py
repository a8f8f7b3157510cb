"""A reset as users need it: a changed project under the same prefix, after `hotspare reset` of its group (SPEC A44)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.site import PREFIX, PROJECT, Site

pytestmark = pytest.mark.system


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


def test_a_changed_project_runs_after_a_reset_over_all_input_that_is_kept(site: Site) -> None:
    reset = ("reset", str(site.project), "--bus", site.bus_url, "--prefix", PREFIX, "--yes")
    engine = site.start()
    site.publish("".join(f"i,n,{number},1,1\n" for number in range(5)))
    assert len(site.wait_for_outputs(5)) == 5
    refused = site.run(*reset)
    assert refused.returncode == 2
    assert "alive: one" in refused.stderr
    engine.request_stop()
    assert engine.wait_stopped() == 0, engine.log_tail()
    site.project.write_text(PROJECT.replace("bycount_sliding: 100", "bycount_sliding: 3"))
    assert site.run(*reset).returncode == 0
    assert site.outputs() == []
    site.start()
    rows = site.wait_for_outputs(7)
    assert [row.split(",")[0] + row.split(",")[2] for row in rows] == ["I 0", "I 1", "I 2", "I 3", "D 0", "I 4", "D 1"]
