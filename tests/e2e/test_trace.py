"""The events shown by `hotspare trace` while the active engine dies: each event of a window once, in order, published or not (SPEC
A40)."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.testing.cluster import WAIT_TIMEOUT_S, hotspare_command, wait_until
from tests.e2e.site import PREFIX, Site, whole_lines

pytestmark = pytest.mark.system


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.stop()


def test_events_are_shown_while_engines_come_and_go(site: Site, tmp_path: Path) -> None:
    first = site.start("one")
    site.publish("i,n,-1,1.5,1\n", "before.csv")
    site.wait_for_outputs(1)
    shown, told = tmp_path / "shown.txt", tmp_path / "told.txt"
    arguments = ("trace", f"{PREFIX}.shop", "sales/orders", "sales/kept", "--bus", site.bus_url)

    def rows(window: str) -> list[str]:
        return [line.partition(": ")[2] for line in whole_lines(shown) if line.startswith(f"{window}: ")]

    with (
        shown.open("wb") as out,
        told.open("wb") as err,
        subprocess.Popen(hotspare_command(*arguments), stdout=out, stderr=err) as watching,
    ):
        try:
            wait_until(lambda: "watches sales/orders" in told.read_text(), "it began")
            site.publish("".join(f"i,n,{number},1.5,1\n" for number in range(5)))
            wait_until(lambda: len(rows("sales/kept")) == 5, "the first events are shown")
            site.start("two")
            first.kill()
            site.publish("".join(f"i,n,{number},1.5,1\n" for number in range(5, 110)), "more.csv")
            outputs = site.wait_for_outputs(122)
            wait_until(lambda: len(rows("sales/kept")) >= 121, "all events are shown")
        finally:
            watching.send_signal(signal.SIGINT)
        assert watching.wait(WAIT_TIMEOUT_S) == 0, told.read_text()
    assert rows("sales/orders") == [f"I,N,{number},1.5,1" for number in range(110)]
    exact = [row.replace("1.500000", "1.5").replace("N, ", "N,").replace("R, ", "R,") for row in outputs[1:]]
    assert rows("sales/kept") == exact
    assert "trace" not in site.run("status", "--bus", site.bus_url, "--json").stdout, "it joins nothing"
