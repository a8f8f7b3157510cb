"""The access to Kafka: the URL, the settings of every client, and the meaning of the client's errors.

Options in the URL may be secret: they go to the client, and never into a message.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from confluent_kafka import KafkaError, KafkaException

from hotspare.base.errors import BusError, BusUnavailable, HotspareError, MessageTooLarge, UsageError
from hotspare.base.passwords import take_password
from hotspare.bus.limits import MESSAGE_BYTES_MAX

TIMEOUT_MS = 5_000
LOOKUP_TIMEOUT_S = 1.0
"""The first timeout for the broker that the client believes to be in charge: it may have died."""
TIMEOUT_MS_MAX = 120_000
MESSAGE_OVERHEAD_BYTES = 128
HEADER_OVERHEAD_BYTES = 16
"""The most that Kafka adds to a message sent alone, and to each of its headers."""
WIRE_BYTES_MAX = 96 * 1024 * 1024
"""The limit of one request or answer: the largest message, its headers, and the protocol around them."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_OPTION = re.compile(r"[a-z][a-z0-9.]*")
_RESERVED_OPTION_NAMES = """
bootstrap.servers metadata.broker.list transactional.id enable.idempotence acks request.required.acks isolation.level
enable.auto.commit enable.auto.offset.store enable.partition.eof plugin.library.paths
"""
_RESERVED_OPTIONS = frozenset(_RESERVED_OPTION_NAMES.split())
"""Options that a URL must not set: exactness depends on them, or they would load code."""

_REFUSAL_NAMES = """
TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED
SASL_AUTHENTICATION_FAILED _AUTHENTICATION _SSL SECURITY_DISABLED UNSUPPORTED_SASL_MECHANISM MSG_SIZE_TOO_LARGE INVALID_MSG
INVALID_RECORD TOPIC_EXCEPTION INVALID_REQUEST UNSUPPORTED_VERSION POLICY_VIOLATION INVALID_CONFIG INVALID_PARTITIONS
INVALID_TRANSACTION_TIMEOUT _INVALID_ARG _UNSUPPORTED_FEATURE _NOT_IMPLEMENTED
"""
_REFUSALS = frozenset(getattr(KafkaError, name) for name in _REFUSAL_NAMES.split())
"""Permanent errors; every other one may pass."""
FENCED_CODES = frozenset((KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH))
MISSING_TOPIC_CODES = frozenset((KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART))

CLIENT_LOG = logging.getLogger("hotspare.bus.kafka")
"""The client's own log: it reports every failed attempt to connect, which does not belong in hotspare's log."""
CLIENT_LOG.addHandler(logging.NullHandler())
CLIENT_LOG.propagate = False


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The settings of a bus: those of its URL, and those that all URLs share. `options` go to every client unchanged."""

    bootstrap: str
    timeout_ms: int = TIMEOUT_MS
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    message_bytes_max: int = MESSAGE_BYTES_MAX
    """The largest message that this client sends."""
    guards_max: int = 32
    """The number of guards whose turn is kept, each with a client of its own; an evicted guard takes its turn again at its next
    use."""
    recent_s: float = 0.3
    """The age up to which a spare's read of progress is recent enough for its first fence: it reads ten times a second."""
    own_consumer_min_s: float = 5.0
    """The least time for which a partition with a backlog keeps a consumer of its own, also if no message comes."""

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1000


def parse_kafka_url(url: str) -> KafkaSettings:
    """Parses `kafka://host:9092[,host:9092 ...][?option=value&...]`. UsageError, without secrets, for any other text.

    `timeout_ms` is the time one call waits for the bus. `password_file` or `password_env` names the file or variable that holds
    `sasl.password`. All other options are those of librdkafka.
    """
    rest, _, query = url.removeprefix("kafka://").partition("?")
    hosts = rest.rstrip("/").split(",")
    if not all(_HOST.fullmatch(host) for host in hosts):
        raise UsageError(
            "the URL of a kafka bus does not name its brokers",
            hint="write kafka://host:9092[,host:9092][?option=value], with sasl.username=NAME&password_file=FILE for a user",
        )
    options = dict(parse_qsl(query, keep_blank_values=True))
    timeout_text = options.pop("timeout_ms", str(TIMEOUT_MS))
    if not timeout_text.isdecimal() or not 100 <= int(timeout_text) <= TIMEOUT_MS_MAX:
        raise UsageError("option timeout_ms of a kafka bus is out of range", hint=f"write 100 to {TIMEOUT_MS_MAX}")
    if (password := take_password(options)) is not None:
        options["sasl.password"] = password
    for name in options:
        if not _OPTION.fullmatch(name):
            raise UsageError("a kafka bus has an option with an invalid name", hint="use the names of librdkafka's options")
        if name in _RESERVED_OPTIONS:
            raise UsageError(f"option {name} of a kafka bus is set by hotspare", hint="leave it out")
    return KafkaSettings(",".join(hosts), int(timeout_text), options)


def client_settings(settings: KafkaSettings) -> dict[str, Any]:
    """Returns the settings that all clients share."""
    return {
        "client.id": "hotspare",
        "socket.nagle.disable": True,
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 200,
        "allow.auto.create.topics": False,
        "message.max.bytes": WIRE_BYTES_MAX,
        "receive.message.max.bytes": WIRE_BYTES_MAX + (1 << 20),
        **settings.options,
        "bootstrap.servers": settings.bootstrap,
    }


def producer_settings(settings: KafkaSettings) -> dict[str, Any]:
    """Returns the settings of every producer: nothing is written twice or out of order, and an acknowledged write is on all
    replicas in sync."""
    return {
        "compression.type": "lz4",  # most of an output block is columns that hardly change; a URL may choose another
        **client_settings(settings),
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 0,
        "queue.buffering.max.messages": 1_000_000,
        "batch.size": WIRE_BYTES_MAX,
        "batch.num.messages": 1_000_000,
        "delivery.timeout.ms": settings.timeout_ms,
    }


def refused_options(settings: KafkaSettings) -> UsageError:
    """Returns the error for options that the client refuses. Names no single one: the client names it only together with its
    value."""
    names = ", ".join(sorted(settings.options)) or "none"
    return UsageError(
        "the kafka client refuses an option of the bus's URL", detail=f"options: {names}", hint="see librdkafka's list of options"
    )


def error_of(raised: KafkaException) -> KafkaError:
    error: KafkaError = raised.args[0]
    return error


def bus_error(raised: KafkaException, what: str) -> HotspareError:
    """Returns the error for a call that wrote nothing. `what` completes "kafka cannot ..."."""
    error = error_of(raised)
    detail = f"{error.name()}: {error.str()}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        hint = "raise max.message.bytes of the topic, or put fewer rows into one message"
        return MessageTooLarge(f"kafka cannot {what}: a message is too large", detail=detail, hint=hint)
    if error.code() in _REFUSALS:
        return BusError(f"kafka cannot {what}", detail=detail, hint="see the broker's log for the reason")
    return BusUnavailable(f"kafka cannot {what} now", detail=detail)
