"""Says at start what is unlike hotspare's wishes in the settings of the bus's topics (SPEC B9, Z20, Z21)."""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.bus.contract import Bus
from hotspare.errors import BusError
from hotspare.telemetry.log import Log, LogEvent


def warn_of_deviations(bus: Bus, topics: Sequence[str], log: Log) -> None:
    """One line each. A bus that does not tell its settings stops nobody."""
    try:
        found = bus.deviations(topics)
    except BusError as error:
        log.event(LogEvent.TOPIC_WARNING, f"the settings of the topics could not be looked at: {error.message}")
        return
    for deviation in found:
        log.event(LogEvent.TOPIC_WARNING, str(deviation), topic=deviation.topic, setting=deviation.setting)
