"""Test networks, if the machine and the rights allow them; as root their absence is a failure, not a skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.testing.hosts import Network


@pytest.fixture
def network(hosts_can_be_made: None, tmp_path: Path) -> Iterator[Network]:
    with Network(tmp_path) as network:
        yield network
