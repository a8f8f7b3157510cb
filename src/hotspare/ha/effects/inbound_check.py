"""Notices that an inbound topic has got other partitions than the group reads: what is written to them would never be seen.

The call to the bus may take long, so it is made in the background; what it found counts in a later cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hotspare.errors import HotspareError
from hotspare.ha.group_state import GroupState
from hotspare.ha.ports import Ports
from hotspare.ha.rules.settings import GroupTopics

WAY_ON = "partitions cannot be taken away: run the project under another --prefix, whose topics it makes itself, and publish there"


def other_partitions(found: Mapping[str, int], topics: GroupTopics) -> str:
    """What the group would not read of topics with so many partitions; "" where it reads all. A topic that is missing is fine."""
    return "; ".join(
        f"inbound topic {topic.name} has {found[topic.name]} partitions, the group reads {topic.partitions}"
        for topic in topics.inbound
        if found.get(topic.name, topic.partitions) != topic.partitions
    )


def begin(state: GroupState, ports: Ports) -> None:
    """Look, beside the engine; never twice at once."""
    state.rounds = replace(state.rounds, inbound_checked_ms=ports.clock_ms())
    if state.is_inbound_check_running:
        return
    state.is_inbound_check_running = True

    def look() -> None:
        try:
            found = other_partitions(ports.bus.topics(), state.topics)
        except HotspareError:  # a bus that does not answer is asked again
            found = ""
        finally:
            state.is_inbound_check_running = False
        state.inbound_findings.append(found)

    ports.background(look)


def take_note(state: GroupState) -> None:
    """What a look found stops this engine, with the reason; called at the start of a cycle."""
    while state.inbound_findings:
        found = state.inbound_findings.popleft()
        if found and not state.standing.refusal:
            state.standing = replace(state.standing, refusal=f"{found}; {WAY_ON}")
