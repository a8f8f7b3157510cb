"""Test networks, where the machine and the rights allow them; as root their absence is a failure, not a skip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotspare.testing.hosts import Network, why_not


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    reason = why_not()
    if reason:
        (pytest.fail if os.geteuid() == 0 else pytest.skip)(f"hosts of their own cannot be made here: {reason}")
    with Network(tmp_path) as network:
        yield network
