"""Reports, when an engine starts, settings of the bus's topics that are unlike what hotspare needs (SPEC B9, Z20, Z21)."""

from __future__ import annotations

from collections.abc import Sequence

from hotspare.base.choices import CreateTime
from hotspare.base.errors import BusError, UsageError
from hotspare.bus.contract import Bus
from hotspare.bus.naming import records_topic
from hotspare.telemetry.log import Log, LogEvent


def check_settings(bus: Bus, inbound: Sequence[str], outbound: Sequence[str], create_time: CreateTime, log: Log) -> None:
    """One line in the log for each that is unlike hotspare's wishes. UsageError where an inbound topic cannot be used as it is. A
    bus that does not tell its settings stops nobody."""
    try:
        found = bus.deviations([*inbound, *outbound, *(records_topic(topic) for topic in inbound)])
    except BusError as error:
        log.event(LogEvent.TOPIC_WARNING, f"the settings of the topics could not be looked at: {error.message}")
        return
    for deviation in found:
        if deviation.keeps_engines_away and deviation.topic in inbound and create_time is CreateTime.REFUSE:
            raise UsageError(
                f"inbound topic {deviation.topic} cannot be used: its {deviation.setting} is {deviation.value}",
                detail=deviation.consequence,
                hint=f"set it to {deviation.wanted} (kafka-configs.sh --alter), or write `create-time: accept` in "
                "the engines' settings file; or, under "
                "another --prefix, bring it in by `hotspare publish --topic` or a kafka connector that names it",
            )
        log.event(LogEvent.TOPIC_WARNING, str(deviation), topic=deviation.topic, setting=deviation.setting)
