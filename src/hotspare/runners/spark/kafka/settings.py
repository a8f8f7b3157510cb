"""The settings of Spark's Kafka source, each with its reason, and what the options of a bus's URL are called in Java.

A URL names options as librdkafka does (bus/kafka/client.py); Spark reads with the Java client, which has other names for some.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from hotspare.base.errors import UsageError
from hotspare.runners.contract import Positions, SourceTopic

_SAME_NAME = (
    *("security.protocol", "client.id", "client.dns.lookup", "client.rack", "reconnect.backoff.ms", "reconnect.backoff.max.ms"),
    *("retry.backoff.ms", "retry.backoff.max.ms", "sasl.kerberos.service.name", "sasl.mechanism", "metadata.max.age.ms"),
    "ssl.endpoint.identification.algorithm",
)
_OTHER_NAME = {"sasl.mechanisms": "sasl.mechanism", "socket.receive.buffer.bytes": "receive.buffer.bytes"}
_MERGED = frozenset(
    ["sasl.username", "sasl.password", "ssl.ca.location", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.key.password"]
)
_ONLY_OF_THE_OTHER_CLIENT = (
    *("socket.timeout.ms", "socket.keepalive.enable", "socket.nagle.disable", "queue.", "queued.", "message.max.bytes", "batch."),
    *("linger.ms", "compression.", "delivery.timeout.ms", "transaction.timeout.ms", "fetch.", "receive.message.max.bytes", "debug"),
    *("log.", "statistics.interval.ms", "broker.address.", "topic.metadata.", "api.version.", "enable.ssl."),
)
"""What makes no difference to what is read."""
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_options(options: Mapping[str, str]) -> dict[str, str]:
    """A bus URL's options for the Java client. UsageError, which names no value, for one that it has no counterpart for."""
    java: dict[str, str] = {}
    for name, value in options.items():
        if name in _SAME_NAME:
            java[name] = value
        elif name in _OTHER_NAME:
            java[_OTHER_NAME[name]] = value
        elif name not in _MERGED and not name.startswith(_ONLY_OF_THE_OTHER_CLIENT):
            raise UsageError(
                f"option {name} of the bus cannot be given to spark's kafka source",
                hint="see docs/spark.md for those that can, or use `--runner local`",
            )
    return {**java, **_login(options), **_certificates(options)}


def _login(options: Mapping[str, str]) -> dict[str, str]:
    if "sasl.username" not in options:
        return {}
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms") or ""
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise UsageError(
            "the bus has a sasl.username, but no sasl.mechanism that takes one", hint=f"use {', '.join(_LOGIN_MODULES)}"
        )
    name, password = (_quoted(options.get(key, "")) for key in ("sasl.username", "sasl.password"))
    return {"sasl.jaas.config": f"{module} required username={name} password={password};"}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _certificates(options: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if "ssl.ca.location" in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": options["ssl.ca.location"]}
    if "ssl.ca.pem" in options:
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": options["ssl.ca.pem"]}
    if "ssl.certificate.pem" in options:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": options["ssl.certificate.pem"]}
        java |= {"ssl.keystore.key": options.get("ssl.key.pem", "")}
        if "ssl.key.password" in options:
            java["ssl.key.password"] = options["ssl.key.password"]
    return java


def source_options(
    bootstrap: str, client: Mapping[str, str], topics: Sequence[SourceTopic], start: Positions, messages_max: int, per_task: int
) -> dict[str, str]:
    """Options of `spark.readStream.format("kafka")`: the partitions that `start` names, from its offsets on.

    A batch has at most `messages_max` messages, a task at most `per_task` of them.
    """
    java = {
        # A transaction's messages come when it is committed, those of an aborted one never.
        "isolation.level": "read_committed",
        # Without it the last messages before a pause wait for the answer to a fetch that waits 500 ms for more.
        "fetch.max.wait.ms": "5",
        "max.poll.records": "5000",
        "receive.buffer.bytes": str(1 << 20),
        "max.partition.fetch.bytes": str(4 << 20),
        # A reader that names a topic must not bring it about.
        "allow.auto.create.topics": "false",
        # Nobody asked the clients to tell the brokers about themselves.
        "enable.metrics.push": "false",
        "reconnect.backoff.ms": "20",
        "reconnect.backoff.max.ms": "500",
        **client,
    }
    return {
        "kafka.bootstrap.servers": bootstrap,
        "assign": json.dumps(_by_topic(topics, ((key, key[1]) for key in sorted(start)), list)),
        "startingOffsets": json.dumps(_by_topic(topics, (((t, p), (str(p), start[t, p])) for t, p in sorted(start)), dict)),
        # What is no longer kept ends the query; it is never skipped.
        "failOnDataLoss": "true",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(messages_max),
        "maxRecordsPerPartition": str(per_task),
        **{f"kafka.{name}": value for name, value in java.items()},
    }


def _by_topic(topics: Sequence[SourceTopic], entries: Iterable[tuple[tuple[int, int], object]], kind: type) -> dict[str, object]:
    grouped: dict[str, list[object]] = {}
    for (topic, _), entry in entries:
        grouped.setdefault(topics[topic].name, []).append(entry)
    return {name: kind(found) for name, found in grouped.items()}
