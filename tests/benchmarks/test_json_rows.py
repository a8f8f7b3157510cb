"""The measurement of JSON rows next to Kafka Streams: the input and settings of both sides, and the report."""

from __future__ import annotations

import json

from benchmarks.json_rows.streams import AT_LEAST_ONCE, ENGINE, ONCE, PEERS, PROJECT, STREAMS, WRITE_PATH, key, messages, report
from benchmarks.kafka_streams.__main__ import Rate
from benchmarks.kafka_streams.peer import Status, is_whole

from hotspare.projects.load import load_text


def test_a_message_has_the_row_and_its_key() -> None:
    made = messages(998, 4)
    assert [json.loads(message)["id"] for message in made] == [998, 999, 1000, 1001]
    assert json.loads(made[2]) == {"opcode": "insert", "id": 1000, "card": "card-0", "amount": 250.0}
    assert [key(message) for message in made] == [b"998", b"999", b"1000", b"1001"]


def test_the_project_loads_without_a_warning() -> None:
    loaded = load_text(PROJECT)
    assert loaded.resolved.sources
    assert not loaded.warnings


def test_each_guarantee_of_streams_is_measured_as_it_is_and_tuned() -> None:
    found = [(settings["processing.guarantee"], "commit.interval.ms" in settings) for settings in PEERS.values()]
    assert found == [(ONCE, False), (ONCE, True), (AT_LEAST_ONCE, False), (AT_LEAST_ONCE, True)]
    assert STREAMS["consumer.isolation.level"] == "read_committed"


def test_an_instance_without_standbys_is_whole() -> None:
    alone = (Status("RUNNING", (0,), (), 0),)
    assert is_whole(alone, 1, 0)
    assert not is_whole(alone, 1)


def test_ratios_are_against_the_fastest_arm_that_is_exact() -> None:
    rates = dict(zip(PEERS, (100_000.0, 200_000.0, 400_000.0, 300_000.0), strict=True))
    turns = {name: [Rate(rate, 2.0), Rate(rate * 3, 5.0), Rate(rate / 2, 3.0)] for name, rate in rates.items()}
    found = {ENGINE: [Rate(150_000, 1.0)], WRITE_PATH: [Rate(300_000, 1.0)], **turns}
    lines = report(found).splitlines()
    assert lines[-1] == "whole_path_ratio 0.75 write_path_ratio 1.50"
    assert lines[4].split()[-4:] == ["200", "3.00", "0.75", "1.50"]
