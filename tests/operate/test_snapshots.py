"""The snapshots of a group as a program lists and compares them (SPEC G12)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from hotspare.base.errors import UsageError
from hotspare.operate.groups import ServiceUrls
from hotspare.operate.snapshots import header_changes, list_snapshots, load_snapshot, open_snapshots, window_memory
from hotspare.stores.open import default_store_url
from tests.cli.kept import GROUP, kept_bus


def test_snapshots_are_listed_and_compared(tmp_path: Path) -> None:
    bus = kept_bus(tmp_path)
    with ExitStack() as stack:
        place = open_snapshots(stack, ServiceUrls(bus))
        assert [info.name for info in list_snapshots(place)[GROUP]] == ["0003-e", "0002-e", "0001-e"]
        with pytest.raises(UsageError, match="no group is called other"):
            list_snapshots(place, "other")
        first, second = (load_snapshot(place.store, GROUP, name) for name in ("0001", "0002"))
        changes = header_changes(first, second)
        assert (changes.projects, changes.has_changes) == (None, True)
        assert changes.positions[0, 0] == (first.facts.positions[0, 0], second.facts.positions[0, 0])
        assert not header_changes(second, load_snapshot(place.store, GROUP, "0003")).has_changes
        assert sum(each.bytes for each in second.parts) <= second.info.bytes_total
        assert window_memory(place.coordination, GROUP) == ()


def test_a_store_alone_names_no_groups(tmp_path: Path) -> None:
    with ExitStack() as stack:
        place = open_snapshots(stack, ServiceUrls("", store=default_store_url(kept_bus(tmp_path))))
        assert len(list_snapshots(place, GROUP)[GROUP]) == 3
        with pytest.raises(UsageError, match="no group given"):
            list_snapshots(place)
        with pytest.raises(UsageError, match="no snapshot store given"):
            open_snapshots(stack, ServiceUrls(""))
