"""Access to Kafka: parses the URL, defines the settings of every client, and translates the client's errors.

Options in the URL may be secret: they are passed only to the client, and never appear in a message or log.
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
"""The timeout of a first request, in seconds. It is short, because the broker that the client addresses may have died."""
TIMEOUT_MS_MAX = 120_000
MESSAGE_OVERHEAD_BYTES = 128
HEADER_OVERHEAD_BYTES = 16
"""Upper limits of the bytes that Kafka adds to a message sent alone, and to each header."""
WIRE_BYTES_MAX = 96 * 1024 * 1024
"""The limit in bytes of one request or answer: the largest message, its headers, and the protocol's overhead."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_OPTION = re.compile(r"[a-z][a-z0-9.]*")
_RESERVED_OPTION_NAMES = """
bootstrap.servers metadata.broker.list transactional.id enable.idempotence acks request.required.acks isolation.level
enable.auto.commit enable.auto.offset.store enable.partition.eof plugin.library.paths
"""
_RESERVED_OPTIONS = frozenset(_RESERVED_OPTION_NAMES.split())
"""Options that a URL must not set, because exactness depends on them, or they would load code."""

_REFUSAL_NAMES = """
TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED
SASL_AUTHENTICATION_FAILED _AUTHENTICATION _SSL SECURITY_DISABLED UNSUPPORTED_SASL_MECHANISM MSG_SIZE_TOO_LARGE INVALID_MSG
INVALID_RECORD TOPIC_EXCEPTION INVALID_REQUEST UNSUPPORTED_VERSION POLICY_VIOLATION INVALID_CONFIG INVALID_PARTITIONS
INVALID_TRANSACTION_TIMEOUT _INVALID_ARG _UNSUPPORTED_FEATURE _NOT_IMPLEMENTED
"""
_REFUSALS = frozenset(getattr(KafkaError, name) for name in _REFUSAL_NAMES.split())
"""Codes of permanent errors. All other errors count as temporary."""
FENCED_CODES = frozenset((KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH))
MISSING_TOPIC_CODES = frozenset((KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART))

CLIENT_LOG = logging.getLogger("hotspare.bus.kafka")
"""The client's own log. It is separate from hotspare's log, because the client reports every failed attempt to connect."""
CLIENT_LOG.addHandler(logging.NullHandler())
CLIENT_LOG.propagate = False


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The settings of a bus: those of its URL, and constants. `bootstrap`: the brokers. `timeout_ms`: how long one call waits.
    `options`: passed to every client unchanged."""

    bootstrap: str
    timeout_ms: int = TIMEOUT_MS
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    message_bytes_max: int = MESSAGE_BYTES_MAX
    """The limit in bytes of a message that this client sends."""
    guards_max: int = 32
    """The number of guards whose writers stay open, each with its own client. An evicted guard opens its writer again at its next
    use."""
    recent_s: float = 0.3
    """The age in seconds up to which a spare's last read of progress is recent enough for its first fence. A spare reads ten times
    a second."""
    own_consumer_min_s: float = 5.0
    """The shortest time in seconds for which a partition with a backlog has its own consumer, even if no message arrives."""

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1000


def parse_kafka_url(url: str) -> KafkaSettings:
    """Parses a URL `kafka://host:9092[,host:9092 ...][?option=value&...]`. Raises UsageError, without secrets, for any other text.

    `timeout_ms`: how long one call waits for the bus. `password_file` or `password_env` names the file or variable that holds
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
    """Returns the settings of every client, including the options of the URL."""
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
    """Returns the error for options that the client refuses. It lists all option names: the client's own text would contain a
    value, which may be secret."""
    names = ", ".join(sorted(settings.options)) or "none"
    return UsageError(
        "the kafka client refuses an option of the bus's URL", detail=f"options: {names}", hint="see librdkafka's list of options"
    )


def error_of(raised: KafkaException) -> KafkaError:
    error: KafkaError = raised.args[0]
    return error


def bus_error(raised: KafkaException, what: str) -> HotspareError:
    """Translates a client's error for a call that wrote nothing. `what` completes the text "kafka cannot ...". Returns
    BusUnavailable for temporary errors, MessageTooLarge or BusError for permanent ones."""
    error = error_of(raised)
    detail = f"{error.name()}: {error.str()}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        hint = "raise max.message.bytes of the topic, or put fewer rows into one message"
        return MessageTooLarge(f"kafka cannot {what}: a message is too large", detail=detail, hint=hint)
    if error.code() in _REFUSALS:
        return BusError(f"kafka cannot {what}", detail=detail, hint="see the broker's log for the reason")
    return BusUnavailable(f"kafka cannot {what} now", detail=detail)
