"""The load of the scale-out measurement: it counts outputs, so each event must be in its partition, exactly once."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchmarks._divided import KEYS, Divided
from benchmarks._divided_load import blocks, feed, held_back, outputs_of
from benchmarks.scale_out import CaughtUp, last_line, ports

from hotspare.bus.open import open_bus
from hotspare.demo.site import embedded
from hotspare.formats.arrow_block import decode

SHARDS, EVENTS = 3, 12_000


@pytest.fixture
def project(tmp_path: Path) -> Divided:
    made = Divided(embedded(tmp_path), tmp_path, "load", SHARDS)
    with contextlib.closing(open_bus(made.site.bus_url)) as bus:
        bus.create_topic(made.inbound, SHARDS)
    return made


def values_on(project: Divided, number: int) -> list[bytes]:
    with contextlib.closing(open_bus(project.site.bus_url)) as bus:
        place = project.inbound_places[number]
        return [message.value for message in bus.read(place, 0, messages_max=100_000, bytes_max=1 << 30)]


def test_blocks_bring_every_id_once_and_every_key_to_its_shard(project: Divided) -> None:
    for first in (0, EVENTS):
        with held_back(project, blocks(project, first, EVENTS, 500)):
            pass
    tables = [pa.Table.from_batches(map(decode, values_on(project, number))) for number in range(SHARDS)]
    ids = np.concatenate([table.column("id").to_numpy() for table in tables])
    assert np.array_equal(np.sort(ids), np.arange(2 * EVENTS))
    found = [set(table.column("key").to_pylist()) for table in tables]
    assert found == [set(keys.tolist()) for keys in project.keys_by_shard()]
    assert outputs_of(project, 2 * EVENTS) == 2 * 2 * EVENTS - KEYS
    assert max(table.num_rows for table in tables) - min(table.num_rows for table in tables) <= 1


def test_too_few_events_cannot_be_counted(project: Divided) -> None:
    with pytest.raises(ValueError, match="too few"):
        outputs_of(project, KEYS // 2)


def test_the_even_load_keeps_its_rate_and_its_shards(project: Divided) -> None:
    feed(project, 2_000, 0.5)
    keys = [set(each.tolist()) for each in project.keys_by_shard()]
    ids = []
    for number in range(SHARDS):
        rows = [value.split(b",") for value in values_on(project, number)]
        assert {int(row[3]) for row in rows} <= keys[number]
        ids += [int(row[2]) for row in rows]
    assert sorted(ids) == list(range(KEYS, KEYS + len(ids)))
    assert 0 < len(ids) <= 1_000


def test_the_last_line_says_what_was_measured() -> None:
    local, one, two = (CaughtUp(speed, {"JVM": jvm, "Python": 2.0}, 1.0) for speed, jvm in ((9e5, 0.0), (1e6, 0.1), (1.9e6, 0.2)))
    assert last_line({0: local, 1: one, 2: two}) == "scale_2 1.90 cpu_per_event_ratio 1.10"
    assert last_line({}) == "scale_2 - cpu_per_event_ratio -"


def test_ports_of_servers() -> None:
    assert ports("kafka://127.0.0.1:9092,127.0.0.1:9093?timeout.ms=5") == [9092, 9093]
    assert ports("zookeeper://127.0.0.1:2181/path") == [2181]
    assert ports("sqlite:////tmp/bus.db") == []
