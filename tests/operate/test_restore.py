"""A persisted snapshot as a program compares it with the bus and restores it (SPEC H2, H9)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from hotspare.base.errors import StateError
from hotspare.host.project import checked_project
from hotspare.operate.groups import ServiceUrls
from hotspare.operate.restore import RestoreRequest, plan_restore, restore
from hotspare.stores.open import default_store_url, open_store
from tests.cli.kept import GROUP, PROJECT, kept_bus, put_snapshots


def test_a_restore_is_planned_before_a_group_changes(tmp_path: Path) -> None:
    urls, project, shared = ServiceUrls(kept_bus(tmp_path)), tmp_path / "shop.yaml", tmp_path / "shared"
    own = open_store(default_store_url(urls.bus))
    project.write_text(PROJECT)
    put_snapshots(open_store(shared.as_uri()))
    request = RestoreRequest(checked_project(project, {}), "hotspare", 1, str(shared), "newest")
    with ExitStack() as stack:
        (planned,) = plan_restore(stack, request, urls)
        assert (planned.to.group, planned.found.info.name) == (GROUP, "0002-e")
        assert planned.found.newer_own is not None
        own.discard_group(GROUP)
        (planned,) = plan_restore(stack, request, urls)
        assert planned.found.newer_own is None
        assert planned.found.refusals, "the group never published on this bus"
        with pytest.raises(StateError, match="cannot be restored into group"):
            restore(planned)
    assert own.list(GROUP) == []
