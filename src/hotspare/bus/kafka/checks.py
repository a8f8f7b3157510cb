"""What is unlike hotspare's wishes in the settings of Kafka's topics, and what may come of each (SPEC B8, B9, B11, Z20, Z21).

Pure: from what the cluster says of itself. Every check is "at least".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hotspare.bus.contract import Deviation

CLUSTER = "(cluster)"
_COPIES = 3
_IN_SYNC = 2
_HOUR_MS = 3_600_000
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """`copies` is the least that any partition has; `is_state` for topics of which the newest message per key is kept."""

    name: str
    is_state: bool
    copies: int
    config: Mapping[str, str]


def cluster_deviations(brokers: int, config: Mapping[str, str]) -> Iterator[Deviation]:
    """Of the topic in which Kafka itself keeps its transactions. `config` is that of a broker."""
    if brokers < _COPIES:
        return
    lost = "with one broker gone, commits can be forgotten and two engines can publish"
    for setting, wanted in (("transaction.state.log.min.isr", _IN_SYNC), ("transaction.state.log.replication.factor", _COPIES)):
        value = config.get(setting)
        if value is not None and _number(value) < wanted:
            yield Deviation(CLUSTER, setting, value, f"at least {wanted}", lost)


def topic_deviations(facts: TopicFacts, brokers: int) -> Iterator[Deviation]:
    """In the order of how bad they are."""
    yield from _losing(facts, brokers)
    yield from _forgetting(facts)
    config = facts.config
    if not facts.is_state and config.get("message.timestamp.type", "") != "LogAppendTime":
        consequence = "system time is what each publisher's clock says; it may stand still or fall"
        deviation = _deviation(facts, "message.timestamp.type", "LogAppendTime", consequence)
        yield replace(deviation, keeps_engines_away=True)
    if _number(config.get("max.message.bytes", "")) < _BLOCK_BYTES and not facts.is_state:
        consequence = "a larger block of events is refused, and an engine that has to publish one stops"
        yield _deviation(facts, "max.message.bytes", f"at least {_BLOCK_BYTES}", consequence)


def _losing(facts: TopicFacts, brokers: int) -> Iterator[Deviation]:
    wanted_copies = min(_COPIES, brokers)
    if facts.copies < wanted_copies:
        consequence = "when its broker stops, events stop; when the broker is lost, so are they"
        yield Deviation(facts.name, "replication.factor", str(facts.copies), f"at least {wanted_copies}", consequence)
    in_sync = _number(facts.config.get("min.insync.replicas", ""))
    if brokers >= _COPIES and in_sync < _IN_SYNC:
        consequence = "an event that was acknowledged can be lost with one broker"
        yield _deviation(facts, "min.insync.replicas", f"at least {_IN_SYNC}", consequence)
    elif facts.copies > 1 and in_sync >= facts.copies:
        yield _deviation(facts, "min.insync.replicas", f"less than {facts.copies}", "when any one broker stops, events stop")
    if facts.config.get("unclean.leader.election.enable", "false") != "false":
        consequence = "a broker that missed events can become leader: what was committed is lost"
        yield _deviation(facts, "unclean.leader.election.enable", "false", consequence)


def _forgetting(facts: TopicFacts) -> Iterator[Deviation]:
    policy = facts.config.get("cleanup.policy", "")
    if facts.is_state:
        if policy != "compact":
            yield _deviation(facts, "cleanup.policy", "compact", "what is committed, and who owns a topic, is forgotten with time")
        return
    if "compact" in policy:
        consequence = "events vanish from the middle: an engine that catches up sees others than the one that publishes"
        yield _deviation(facts, "cleanup.policy", "delete", consequence)
    retention_ms = _number(facts.config.get("retention.ms", ""))
    if 0 <= retention_ms < _HOUR_MS:
        yield _deviation(facts, "retention.ms", f"at least {_HOUR_MS}", "an engine that was away for longer cannot catch up")
    if 0 <= retention_ms <= _number(facts.config.get("segment.ms", "")):
        consequence = "messages are kept up to twice as long as retention.ms says, and the disk fills up"
        yield _deviation(facts, "segment.ms", "less than retention.ms", consequence)


def _deviation(facts: TopicFacts, setting: str, wanted: str, consequence: str) -> Deviation:
    return Deviation(facts.name, setting, facts.config.get(setting, "unknown"), wanted, consequence)


def _number(text: str) -> int:
    """-1, which Kafka uses for "no limit", where it is none."""
    return int(text) if text.lstrip("-").isdecimal() else -1
