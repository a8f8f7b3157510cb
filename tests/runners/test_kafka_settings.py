"""What Spark's Kafka source is told: positions, guarantees, and the options of the bus under their Java names."""

from __future__ import annotations

import json

import pytest

from hotspare.base.errors import UsageError
from hotspare.runners.contract import SourceTopic
from hotspare.runners.spark.kafka.source import java_options, source_options

TOPICS = (SourceTopic("a", 2), SourceTopic("b"))


def test_every_partition_is_read_from_its_position_and_nothing_is_skipped() -> None:
    options = source_options("h:1", {}, TOPICS, {(0, 0): 5, (0, 1): 0, (1, 0): 7}, 100, 50)
    assert json.loads(options["assign"]) == {"a": [0, 1], "b": [0]}
    assert json.loads(options["startingOffsets"]) == {"a": {"0": 5, "1": 0}, "b": {"0": 7}}
    assert options["failOnDataLoss"] == "true"
    assert options["includeHeaders"] == "true"
    assert options["maxOffsetsPerTrigger"] == "100"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["kafka.bootstrap.servers"] == "h:1"


def test_options_of_the_url_get_their_java_names() -> None:
    said = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": 'p"w\\'}
    java = java_options({**said, "ssl.ca.location": "/ca.pem", "socket.timeout.ms": "100", "queue.buffering.max.ms": "1"})
    assert java == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": ('org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p\\"w\\\\";'),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
    }


@pytest.mark.parametrize("options", [{"no.such": "secret"}, {"sasl.username": "secret", "sasl.mechanism": "GSSAPI"}])
def test_what_java_has_no_counterpart_for_is_refused_without_its_value(options: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        java_options(options)
    assert "secret" not in str(caught.value)
