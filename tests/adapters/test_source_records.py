"""The records of sources: listed, deleted, damaged (SPEC E8)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotspare.adapters.failover.source_position import published_sources
from hotspare.base.errors import BusError
from hotspare.bus.contract import SOURCE_HEADER, Bus, HeaderGuard
from tests.adapters.test_source_position import IN, ROWS, bus, file_of, publish

__all__ = ["bus"]


def test_sources_are_listed_and_one_that_is_forgotten_begins_anew(bus: Bus, tmp_path: Path) -> None:
    path = file_of(tmp_path, ROWS)
    for name in ("s", "a b/ä@1"):
        publish(bus, path, source_name=name)
    size = path.stat().st_size
    assert {name: each.published_bytes for name, each in published_sources(bus, IN).items()} == {"a b/ä@1": size, "s": size}
    bus.remove_record(IN, b"s@")
    assert list(published_sources(bus, IN)) == ["a b/ä@1"]
    assert publish(bus, path).events == 10


def test_a_record_that_another_program_wrote_is_named(bus: Bus, tmp_path: Path) -> None:
    assert bus.append_guarded(IN, [], HeaderGuard(SOURCE_HEADER, b"s@", 0), b"[]") is not None
    with pytest.raises(BusError, match=r"the record of source s@ of topic .* cannot be read"):
        publish(bus, file_of(tmp_path, ROWS))
