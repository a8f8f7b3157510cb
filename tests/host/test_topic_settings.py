"""The reaction of a starting engine to topics that differ from its wishes (SPEC B9, Z20, Z21)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from hotspare.base.errors import UsageError
from hotspare.bus.contract import Deviation, Outgoing, Partition
from hotspare.bus.kafka.topics import TopicFacts, topic_deviations
from hotspare.bus.sqlite import SqliteBus
from hotspare.ha.effects.joining import create_topics
from hotspare.ha.group import GroupEngine
from hotspare.ha.rules.settings import GroupTopics, InboundTopic
from hotspare.host import process
from hotspare.host.options import EngineOptions
from hotspare.projects.load import load_project
from hotspare.telemetry.log import Log

PROJECT = """
project: p
queries:
  q:
    windows: {s: {type: source, opcodes: any, schema: "id*:int64"}, c: {type: copy, publish: true}}
    edges: [s -> c]
"""


class _StartedError(Exception):
    """Signals that the engine passed its checks."""


class _OthersTopics(SqliteBus):
    """A file bus whose topics have the settings of Kafka topics created by other applications."""

    def deviations(self, topics: Sequence[str]) -> Sequence[Deviation]:
        config = {"message.timestamp.type": "CreateTime", "max.message.bytes": str(96 << 20), "cleanup.policy": "delete"}
        return [each for topic in topics for each in topic_deviations(TopicFacts(topic, False, 3, config), brokers=1)]


def start(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> str:
    """Returns how far an engine gets: "started", or why it was refused."""

    def refuse_to_go_on(_: GroupEngine) -> None:
        raise _StartedError

    monkeypatch.setattr(process, "open_bus", lambda *_: _OthersTopics(folder / "bus.db"))
    monkeypatch.setattr(GroupEngine, "start", refuse_to_go_on)
    file = folder / "p.yaml"
    file.write_text(PROJECT)
    given = EngineOptions(file, f"sqlite:///{folder / 'bus.db'}", **options)  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack:
        engine = process.EngineProcess(given, load_project(file), Log(), stack)
        try:
            engine.run()
        except _StartedError:
            return "started"
        except UsageError as error:
            return str(error)
    return "ended"


def test_an_inbound_topic_whose_publishers_set_the_times_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = start(tmp_path, monkeypatch)
    assert "inbound topic hotspare.p.q.s.I cannot be used: its message.timestamp.type is CreateTime" in refusal
    assert "create-time: accept" in refusal
    assert "hotspare publish --topic" in refusal


def test_it_is_used_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hotspare.base.choices import CreateTime

    assert start(tmp_path, monkeypatch, create_time=CreateTime.ACCEPT) == "started"


@pytest.mark.parametrize("is_used", [False, True])
def test_an_unused_topic_gets_the_partitions_that_the_group_reads(tmp_path: Path, *, is_used: bool) -> None:
    bus = SqliteBus(tmp_path / "bus.db")
    bus.create_topic("in")
    if is_used:
        bus.append(Partition("in"), [Outgoing(b"i,n,1")])
    topics = GroupTopics((InboundTopic("in", 3),), ())
    if is_used:
        with pytest.raises(UsageError, match="inbound topic in has 1 partitions, the group reads 3"):
            create_topics(bus, topics)
    else:
        create_topics(bus, topics)
    assert dict(bus.topics()) == {"in": 1 if is_used else 3}
    bus.close()


def test_a_topic_with_other_partitions_is_refused_and_the_ways_on_are_named(tmp_path: Path) -> None:
    """SPEC B9: run under another prefix, or publish from the external topic."""
    bus = SqliteBus(tmp_path / "bus.db")
    bus.create_topic("hotspare.p.q.s.I", 3)
    with pytest.raises(UsageError) as refused:
        create_topics(bus, GroupTopics((InboundTopic("hotspare.p.q.s.I"),), ()))
    bus.close()
    assert "inbound topic hotspare.p.q.s.I has 3 partitions, the group reads 1" in refused.value.message
    for way in (
        "partitions cannot be removed",
        "--prefix",
        "--shards",
        "hotspare publish --topic",
        "a kafka connector that names it",
    ):
        assert way in refused.value.hint
