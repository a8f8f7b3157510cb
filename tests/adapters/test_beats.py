"""Readers of a stream with beats for another project get all of its events and nothing else (SPEC K10)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.files.subscriber import Opening, SubscribeOptions, Until, subscribe_file
from hotspare.adapters.topics.publisher import OutputsAsEvents
from hotspare.bus.contract import CAUSE_HEADER, OUTPUTS_HEADER, TICK, Message, Outgoing, Partition
from hotspare.bus.memory import MemoryBus, MemoryBusClient
from hotspare.model.types import Schema
from tests.adapters.outputs import ROWS, ROWS_TEXT, SCHEMA, TOPIC, publish


def beat(sequence: int) -> Outgoing:
    outputs = b"%d %d 0 0 0 0 0 0" % (sequence, sequence)
    return Outgoing(b"", ((OUTPUTS_HEADER, outputs), (CAUSE_HEADER, b"7"), *TICK.headers))


def with_beats() -> MemoryBusClient:
    """Returns a bus with a beat before the first output, between any two messages, and at the end."""
    bus = MemoryBus().client("subscriber")
    bus.create_topic(TOPIC)
    sequence = 1
    for rows in ROWS:
        bus.append(Partition(TOPIC), [beat(sequence)])
        publish(bus, [rows], sequence + 1)
        sequence += 1 + len(rows)
    bus.append(Partition(TOPIC), [beat(sequence)])
    return bus


@pytest.mark.parametrize("schema", [SCHEMA, None])
@pytest.mark.parametrize("opening", [Opening.STREAM, Opening.SNAPSHOT])
def test_a_file_holds_the_events_and_no_number_is_missed(schema: Schema | None, opening: Opening, tmp_path: Path) -> None:
    file, options = tmp_path / "out.csv", SubscribeOptions(until=Until.END, opening=opening)
    done = subscribe_file(with_beats(), TOPIC, file, OutputRows(FileStyle(), schema), options, threading.Event())
    assert file.read_bytes() == (ROWS_TEXT if opening is Opening.STREAM else b"I,N, 2,\n")
    assert (done.breaks, done.first_sequence) == (0, 1)


def test_a_topic_of_others_brings_in_no_beats() -> None:
    sent = beat(3)
    rows, is_open = OutputsAsEvents(SCHEMA, TOPIC).convert_message(Message(1, 1, sent.value, sent.headers), frozenset(), 0)
    assert (list(rows), is_open) == ([], frozenset())
