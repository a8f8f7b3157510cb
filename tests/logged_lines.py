"""A fixture for tests of several areas: the lines that are logged while they run."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from hotspare.telemetry.log import LogFormat, configure_logging


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The lines logged during the test, a JSON object per line."""
    out = io.StringIO()
    configure_logging(LogFormat.JSON, stream=out)
    yield out
    configure_logging()
