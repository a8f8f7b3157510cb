"""The failures of a running engine in `hotspare status`: connectors, bad events, snapshots that it refused (SPEC M5, I12)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotspare.testing.cluster import wait_until
from tests.e2e.site import PROJECT, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

WITH_READER = PROJECT.replace(
    "        opcodes: insert-only\n",
    "        opcodes: insert-only\n"
    "        connectors:\n"
    "          reader: {kind: fs, direction: pub, properties: {fsname: in.csv, fstype: csv}}\n",
)
READER = "sales/orders/reader"


def test_failures_are_shown_while_the_engine_goes_on_and_a_connector_is_tried_again(tmp_path: Path) -> None:
    site = Site(tmp_path, WITH_READER)

    def shown() -> dict[str, Any]:
        (group,) = json.loads(site.run("status", *site.places, "--json").stdout)["groups"]
        engine: dict[str, Any] = group["engines"][0]
        return engine

    def reader() -> dict[str, Any]:
        return next((each for each in shown()["connectors"] if each["connector"] == READER), {})

    try:
        engine = site.start()
        wait_until(lambda: reader().get("state") == "failed", "the connector without a file fails", poll_s=0.2)
        failed = reader()
        assert "in.csv cannot be read" in failed["last_error"]
        assert 0 <= failed["retry_in_ms"] <= 300_000
        site.publish("i,n,1,2.5,3\ni,n,2,2.5,many\nd,n,1,2.5,3\ni,n,3,no,3\n")
        wait_until(lambda: sum(each["count"] for each in shown()["bad_events"]) == 3, "bad events are counted", poll_s=0.2)
        by_reason = {(each["window"], each["reason"]): each["count"] for each in shown()["bad_events"]}
        assert by_reason == {("sales/orders", "field-type"): 2, ("sales/orders", "not-insert"): 1}
        for options in ((), ("-v",)):
            shown_text = site.run("status", *site.places, *options).stdout
            assert READER in shown_text
            assert "not-insert" in shown_text
        (tmp_path / "in.csv").write_text("i,n,7,1,1\ni,n,8,1,1\n")
        assert len(site.wait_for_outputs(3)) == 3, "the connector was tried again"
        wait_until(lambda: reader()["state"] == "finished", "it is at its end", poll_s=0.2)
        assert (reader()["rows"], reader()["retry_in_ms"]) == (2, None)
        site.wait_for_snapshot()
        engine.kill()
        for page in (p for p in site.snapshots.rglob("*") if p.parent.name == "pages"):
            page.write_bytes(page.read_bytes()[:-1])
        site.start()
        (refused, *_) = shown()["snapshots_refused"]
        assert "the engine tries the next older one" in refused
    finally:
        site.stop()
