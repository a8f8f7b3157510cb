"""The measurement next to Kafka Streams: both sides get the same events in the right partitions, and the report matches the
result."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pytest
from benchmarks._divided import Divided
from benchmarks._divided_load import JSON, single_events
from benchmarks.kafka_streams.__main__ import BLOCKS_PROJECT, PROJECT, block_load, json_key, json_load, last_line, written
from benchmarks.kafka_streams.peer import Status, instance_of, is_whole

from hotspare.bus.open import open_bus
from hotspare.demo.site import embedded
from hotspare.formats.arrow_block import decode
from hotspare.projects.load import load_text

SHARDS, EVENTS = 3, 12_000
WHOLE = (Status("RUNNING", (0, 2), (1,), 5), Status("RUNNING", (1,), (0, 2), 0))


@pytest.fixture
def project(tmp_path: Path) -> Divided:
    made = Divided(embedded(tmp_path), tmp_path, "load", SHARDS, PROJECT)
    with contextlib.closing(open_bus(made.site.bus_url)) as bus:
        bus.create_topic(made.inbound, SHARDS)
    return made


def values_on(project: Divided, number: int) -> list[bytes]:
    with contextlib.closing(open_bus(project.site.bus_url)) as bus:
        place = project.inbound_places[number]
        return [message.value for message in bus.read(place, 0, messages_max=100_000, bytes_max=1 << 30)]


def test_messages_and_blocks_bring_the_same_events(project: Divided) -> None:
    for first in (0, EVENTS):
        singly, in_blocks = json_load(project, first, EVENTS), block_load(project, first, EVENTS)
        for messages, parts in zip(singly.values, in_blocks.values, strict=True):
            table = pa.Table.from_batches(map(decode, parts))
            events = [json.loads(message) for message in messages]
            assert [event["id"] for event in events] == table.column("id").to_pylist()
            assert [event["key"] for event in events] == table.column("key").to_pylist()
            assert [event["value"] for event in events] == table.column("value").to_pylist()


def test_the_key_of_a_message_says_its_shard(project: Divided) -> None:
    load, keys = json_load(project, 0, EVENTS), project.keys_by_shard()
    for number, messages in enumerate(load.values):
        assert {int(json_key(message)) for message in messages} == set(keys[number].tolist())
        assert all(json_key(message) == b"%d" % json.loads(message)["key"] for message in messages)


def test_what_is_held_back_is_written(project: Divided) -> None:
    load = json_load(project, 0, EVENTS)
    with written(project, load):
        pass
    assert [values_on(project, number) for number in range(SHARDS)] == load.values


def test_single_events_say_where_they_belong(project: Divided) -> None:
    keys = project.keys_by_shard()
    made = single_events(keys, 5, 5 + EVENTS, JSON)
    assert [number for number, _, _ in made] == [i % SHARDS for i in range(5, 5 + EVENTS)]
    for _, key, row in made:
        event = json.loads(row)
        assert event["key"] == key
        assert json_key(row) == b"%d" % key
    assert {key for number, key, _ in made if number == 0} == set(keys[0].tolist())


@pytest.mark.parametrize("text", [PROJECT, BLOCKS_PROJECT])
def test_the_projects_load(text: str) -> None:
    assert load_text(text).resolved.sources


def test_both_instances_have_each_partition() -> None:
    assert is_whole(WHOLE, SHARDS)
    assert not is_whole(WHOLE, SHARDS + 1)
    assert not is_whole(WHOLE[:1], SHARDS)
    late = Status.read('{"state": "RUNNING", "active": [1], "standby": [2, 0], "lag": 10001}')
    assert late.standby == (0, 2)
    assert not is_whole((WHOLE[0], late), SHARDS)
    assert not is_whole((WHOLE[0], Status("REBALANCING", (1,), (0, 2), 0)), SHARDS)


def test_an_epoch_says_whose_it_is() -> None:
    assert instance_of(17_325_600_001_232) == "2"


def test_the_last_line_says_what_was_measured() -> None:
    assert last_line(1.994, 0.1234) == "throughput_ratio 1.99 gap_ratio 0.123"
    assert last_line(None, None) == "throughput_ratio - gap_ratio -"
