"""`hotspare validate --topic-retention-ms`: reports, without a bus, a topic whose retention is too short for a window (SPEC H10,
Z7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import hotspare

KAFKA1 = Path(__file__).parents[2].parent / "shared" / "conformance" / "ha-kafka" / "kafka1.xml"
pytestmark = pytest.mark.skipif(not KAFKA1.is_file(), reason=f"the project of others is not at {KAFKA1}")


@pytest.mark.parametrize(("retention_ms", "warns"), [("30000", True), ("1800000", False)])
def test_thirty_seconds_against_thirty_minutes_h10(retention_ms: str, warns: bool) -> None:
    done = hotspare("validate", KAFKA1, "--topic-retention-ms", retention_ms, "-v")
    assert done.returncode == 0
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: the topic")]
    assert len(warnings) == warns
    assert all("30 seconds" in line and "30 minutes" in line and "cq1/Save_30_Min" in line for line in warnings)
    own = [line for line in done.stderr.splitlines() if line.startswith("warning: ") and line not in warnings]
    assert f"no mistakes and {len(own) + warns} warnings" in done.stdout


def test_warnings_alike_are_one_line() -> None:
    """An existing project of a server gets one warning per kind, with the number of places."""
    warnings = [line for line in hotspare("validate", KAFKA1).stderr.splitlines() if line.startswith("warning: ")]
    assert [line.partition(": without effect: ")[2] for line in warnings] == [
        "attribute threads, property dateformat (2 times), property kafkaglobalconfig (2 times), "
        "property kafkahostport (2 times), property numbufferedmsgs, property zookeeperhostport",
        "",
    ]
    assert warnings[1].endswith("read as it is meant: property dateformat (2 times)")


def test_a_retention_that_is_no_time_is_refused() -> None:
    assert hotspare("validate", KAFKA1, "--topic-retention-ms", "0").returncode == 2
