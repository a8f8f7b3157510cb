"""Any time that a publisher sets is accepted at every entry of the input (docs/time.md)."""

from __future__ import annotations

import pytest

from hotspare.bus.kafka.read import stored_messages
from hotspare.rows.batch import MessageFormat
from hotspare.rows.partition_clock import Belief, PartitionClock
from hotspare.runners.reading import MessageRun, raw_batch


class _Record:
    """A record of the Kafka client."""

    def __init__(self, time_ms: int) -> None:
        self._time_ms = time_ms

    def timestamp(self) -> tuple[int, int]:
        return 1, self._time_ms

    def headers(self) -> None:
        return None

    def value(self) -> bytes:
        return b"i,n,1"

    def offset(self) -> int:
        return 0


@pytest.mark.parametrize("time_ms", [1_700_000_000_000_000_000, 2**63 - 1, -(2**63), -1, 0])
def test_a_time_of_any_size_can_be_read(time_ms: int) -> None:
    """Nanoseconds given as milliseconds are more microseconds than 64 bits hold."""
    raw = raw_batch(MessageRun(0, 0, stored_messages([_Record(time_ms)])), MessageFormat.CSV)
    clock = PartitionClock(5_000_000, Belief(0, 0))
    clock.settle_rows(raw.column("time_us").to_numpy(), raw.column("tick").to_numpy(zero_copy_only=False))
    assert clock.time_us == 0
