"""`--snapshots`: when snapshots are taken and how, as people say it (SPEC G8, G9)."""

from __future__ import annotations

from typing import Any

import pytest

from hotspare.base.choices import SnapshotForm
from hotspare.base.errors import UsageError
from hotspare.cli.shared.snapshots import snapshot_settings
from hotspare.ha.rules.settings import GroupSettings


@pytest.mark.parametrize(
    ("texts", "settings"),
    [
        ([], {}),
        (["10 seconds"], {"snapshot_interval_ms": 10_000}),
        (["1000 events"], {"snapshot_interval_ms": 0, "snapshot_events": 1_000}),
        (["1 second", "1000  events"], {"snapshot_interval_ms": 1_000, "snapshot_events": 1_000}),
        (["cron 30 4 * * *"], {"snapshot_interval_ms": 0, "snapshot_cron": "30 4 * * *"}),
        (["off"], {"snapshot_interval_ms": 0}),
        (["full", "priority 3"], {"snapshot_form": SnapshotForm.FULL, "snapshot_priority": 3}),
        (["incremental", "2 minutes"], {"snapshot_interval_ms": 120_000, "snapshot_form": SnapshotForm.INCREMENTAL}),
    ],
)
def test_what_is_said_becomes_settings(texts: list[str], settings: dict[str, Any]) -> None:
    found = snapshot_settings(texts)
    assert found == settings
    GroupSettings(**found)


@pytest.mark.parametrize(
    "texts",
    [
        ["sometimes"],
        ["5"],
        ["0 events"],
        ["10 microseconds"],
        ["1 second", "2 seconds"],
        ["off", "5 events"],
        ["full", "incremental"],
        ["priority -1"],
    ],
)
def test_what_is_not_understood_or_contradicts_itself_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError, match="--snapshots"):
        snapshot_settings(texts)
