"""Topics on Kafka: created with settings that lose nothing; each deviation names its possible consequence (SPEC B6-B12, Z20,
Z21)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from hotspare.base.errors import BusUnavailable, TopicMissing, UsageError
from hotspare.bus.contract import Commit, Outgoing, Partition
from hotspare.bus.kafka.bus import KafkaBus, open_kafka_bus
from hotspare.bus.kafka.topics import CLUSTER, TopicFacts, TopicKind, cluster_deviations, new_topic_config, topic_deviations
from hotspare.coordination.open import open_coordination
from hotspare.testing.cluster import wait_until
from hotspare.testing.kafka_server import KafkaServers
from tests.cli.running import hotspare_here
from tests.contract.kafka_door import empty
from tests.contract.material import outgoing, progress

PROJECT = """
project: meter
queries:
  cq:
    windows:
      readings: {type: source, schema: "id*:int64,value:double"}
      recent: {type: copy, retention: {bytime_sliding: 1 hour}, publish: true}
    edges: [readings -> recent]
"""


@pytest.fixture
def bus(kafka: KafkaServers) -> Iterator[KafkaBus]:
    empty(kafka.bootstrap)  # topics of any earlier test on the same brokers
    opened = open_kafka_bus(f"{kafka.url}?timeout_ms=20000")
    yield opened
    opened.close()
    empty(kafka.bootstrap)


def create_elsewhere(kafka: KafkaServers, topic: str, **config: str) -> None:
    """Creates a topic as another program would."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(30)
    wait_until(lambda: topic in admin.list_topics(timeout=30).topics, f"the broker knows topic {topic}")


def test_a_topic_that_hotspare_made_has_no_deviation(bus: KafkaBus) -> None:
    """SPEC B6, Z20."""
    bus.create_topic("t", 2)
    bus.producer("g", ["t"])
    names = ["t", "g.progress", "hotspare.owners"]
    assert set(bus.topics()) == set(names)
    assert bus.deviations([*names, "absent"]) == []
    assert bus.retention_ms("t") == 7 * 24 * 3600 * 1000
    assert bus.retention_ms("g.progress") is None


def test_a_topic_made_elsewhere_is_told_apart(bus: KafkaBus, kafka: KafkaServers) -> None:
    create_elsewhere(kafka, "t", cleanup_policy="compact", retention_ms="30000", segment_ms="60000")
    create_elsewhere(kafka, "g.progress", cleanup_policy="delete")
    found = {(each.topic, each.setting): each.value for each in bus.deviations(["t", "g.progress"])}
    assert found == {
        ("t", "cleanup.policy"): "compact",
        ("t", "retention.ms"): "30000",
        ("t", "segment.ms"): "60000",
        ("t", "message.timestamp.type"): "CreateTime",
        ("t", "max.message.bytes"): "1048588",
        ("g.progress", "cleanup.policy"): "delete",
    }
    with pytest.raises(UsageError, match="a message has 1048704 bytes; the limit of topic t is 1048588"):
        bus.append(Partition("t"), [Outgoing(b"v" * (1 << 20))])


def test_what_does_not_fit_into_one_batch_is_appended_whole_all_the_same(bus: KafkaBus, kafka: KafkaServers) -> None:
    create_elsewhere(kafka, "t", message_timestamp_type="LogAppendTime")
    messages = [Outgoing(bytes([n]) * 400_000) for n in range(5)]
    first = bus.append(Partition("t"), messages)
    found = bus.read(Partition("t"), first, messages_max=9, bytes_max=1 << 30, wait_ms=20_000)
    while len(found) < len(messages):
        found = [*found, *bus.read(Partition("t"), found[-1].offset + 1, messages_max=9, bytes_max=1 << 30, wait_ms=20_000)]
    assert [m.value for m in found] == [m.value for m in messages]


@pytest.mark.parametrize("name", ["with blank", "ключ", ".", "a/b"])
def test_a_name_that_kafka_does_not_take_is_refused(bus: KafkaBus, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be used on kafka"):
        bus.create_topic(name)


def test_names_that_are_the_same_to_kafka_are_refused(bus: KafkaBus) -> None:
    bus.create_topic("a.b")
    with pytest.raises(UsageError, match="topic a_b cannot be created"):
        bus.create_topic("a_b")


def test_a_topic_that_was_deleted_meanwhile_is_missing(bus: KafkaBus, kafka: KafkaServers) -> None:
    bus.create_topic("t")
    bus.append(Partition("t"), outgoing("a"))
    empty(kafka.bootstrap)
    with pytest.raises(TopicMissing):
        bus.end_offset(Partition("t"))


def test_the_command_tells_owners_deviations_and_how_to_read(bus: KafkaBus, kafka: KafkaServers) -> None:
    """SPEC B16, B17; a commit's marker is at the end of the topic, and the newest message before it."""
    bus.create_topic("p.q.c.w.O")
    producer = bus.producer("p.q", ["p.q.c.w.O"])
    producer.fence(1)
    producer.publish(1, Commit({"p.q.c.w.O": outgoing("a")}, {"c/w": progress(1, 1)}))
    producer.fence(1)  # by then the commit can be read
    create_elsewhere(kafka, "p.other", retention_ms="5000")
    answer = subprocess.run(
        [sys.executable, "-m", "hotspare", "topics", "--bus", kafka.url, "--prefix", "p.", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(answer.stdout)
    rows = {row["topic"]: row for row in said["topics"]}
    assert (rows["p.q.c.w.O"]["owner"], rows["p.q.c.w.O"]["kind"]) == ("p.q", "output")
    assert rows["p.q.c.w.O"]["newest_time"] is not None
    assert rows["p.q.progress"]["kind"] == "progress"
    assert ("p.other", "retention.ms") in {(each["topic"], each["setting"]) for each in said["deviations"]}
    assert "--isolation-level read_committed" in said["read_with"]


GOOD = {**new_topic_config(TopicKind.EVENTS, 3), "retention.ms": "604800000"}


def test_validate_compares_the_topics_of_a_cluster(bus: KafkaBus, kafka: KafkaServers, tmp_path: Path) -> None:
    """Without coordination and store, too, which are in no place next to Kafka."""
    project = tmp_path / "meter.yaml"
    project.write_text(PROJECT)
    create_elsewhere(kafka, "hotspare.meter.cq.readings.I", retention_ms="60000", message_timestamp_type="LogAppendTime")
    done = hotspare_here("validate", project, "--bus", kafka.url)
    assert (done.returncode, "retention" in done.stderr) == (0, True), done.stderr
    coordination = tmp_path / "coordination.db"
    with contextlib.closing(open_coordination(f"sqlite:///{coordination}")):
        asked = ("--bus", kafka.url, "--coordination", f"sqlite:///{coordination}", "--store", (tmp_path / "store").as_uri())
        done = hotspare_here("validate", project, *asked)
    assert "no coordination of its own" not in done.stderr


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("min.insync.replicas", "1", "loss of one broker can lose"),
        ("min.insync.replicas", "3", "if any one broker stops, events stop"),
        ("unclean.leader.election.enable", "true", "committed events are lost"),
        ("message.timestamp.type", "CreateTime", "publishers' clocks"),
        ("cleanup.policy", "compact,delete", "deletes single events"),
        ("retention.ms", "30000", "cannot catch up"),
        ("segment.ms", "604800000", "up to twice as long"),
        ("max.message.bytes", "1048588", "kafka refuses"),
    ],
)
def test_each_deviation_says_what_may_come_of_it(setting: str, value: str, said: str) -> None:
    """SPEC B9, B11, B12."""
    config = {**GOOD, setting: value}
    if setting == "retention.ms":
        config["segment.ms"] = "10000"
    (found,) = topic_deviations(TopicFacts("t", False, 3, config), brokers=3)
    assert (found.topic, found.setting, found.value) == ("t", setting, value)
    assert said in str(found)


def test_checks_are_at_least_and_count_the_brokers() -> None:
    better = {**GOOD, "min.insync.replicas": "2", "retention.ms": "-1", "max.message.bytes": "999999999"}
    assert not list(topic_deviations(TopicFacts("t", False, 5, better), brokers=5))
    assert not list(topic_deviations(TopicFacts("t", False, 1, {**GOOD, "min.insync.replicas": "1"}), brokers=1))
    few = topic_deviations(TopicFacts("t", False, 2, GOOD), brokers=3)
    assert [(each.setting, each.value) for each in few] == [("replication.factor", "2"), ("min.insync.replicas", "2")]


def test_the_clusters_own_transactions_need_copies() -> None:
    config = {"transaction.state.log.min.isr": "1", "transaction.state.log.replication.factor": "1"}
    found = list(cluster_deviations(3, config))
    assert [(each.topic, each.setting) for each in found] == [(CLUSTER, setting) for setting in config]
    assert not list(cluster_deviations(1, config))
    assert not list(cluster_deviations(3, {}))


def test_a_bus_that_is_not_there_is_said_in_time() -> None:
    bus = open_kafka_bus("kafka://127.0.0.1:1?timeout_ms=300")
    try:
        with pytest.raises(BusUnavailable):
            bus.topics()
        with pytest.raises(BusUnavailable):
            bus.append(Partition("t"), outgoing("a"))
        with pytest.raises(BusUnavailable, match="did not grant the right to publish in time"):
            bus._writers_of("g").open()
    finally:
        bus.close()
