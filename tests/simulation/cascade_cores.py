"""The small cores of two projects: upstream stream `q/b` has beats, the downstream project reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from hotspare.base.inbound_role import InboundRole
from hotspare.ha.rules.settings import GroupTopics, InboundTopic, OutputStream
from hotspare.rows.batch import BEAT, CAUSE_COLUMNS, OUTPUTS_FORM, RowKind
from hotspare.rows.partition_clock import Belief, PartitionClock
from tests.simulation.codec import StreamCodec
from tests.simulation.fast_core import DECODED, OUTPUT, STREAMS, FastCore, FastCores, columns_of
from tests.simulation.kits import FastKit, Kit, Raw

STREAM, TOPIC = STREAMS[1], "before.b"
OWN, READ, SIGNS = 0, 1, 2
"""Indexes of the downstream project's inbound topics."""
_WITH_CAUSES = pa.schema([*OUTPUT, *(pa.field(*each) for each in CAUSE_COLUMNS)])
_OPCODE = OUTPUT.get_field_index("hs:opcode")


class BeatCore(FastCore):
    """The upstream core."""

    def batch_of(self, stream: str, outputs: list[tuple[int, ...]]) -> pa.RecordBatch:
        return columns_of(outputs, _WITH_CAUSES) if stream == STREAM else super().batch_of(stream, outputs)

    def at_heartbeat(self, row: tuple[int, ...], ordinals: dict[str, int]) -> Iterator[tuple[str, tuple[int, ...]]]:
        stream, beat = self._put(STREAM, row, ordinals, 0, 0)
        yield stream, (*beat[:_OPCODE], BEAT, *beat[_OPCODE + 1 :])

    def _put(self, stream: str, row: tuple[int, ...], ordinals: dict[str, int], n: int, v: int) -> tuple[str, tuple[int, ...]]:
        _, output = super()._put(stream, row, ordinals, n, v)
        return stream, (*output, self.time_us, False) if stream == STREAM else output


class ReadingCore(FastCore):
    """The downstream core: it believes the stream's times, and ignores the topic of ticks alone."""

    def set_partitions(self, partitions: Iterable[tuple[int, int]], skew_max_us: int | None = None) -> None:
        super().set_partitions([key for key in partitions if key[0] != SIGNS], skew_max_us)
        self._clocks[READ, 0] = PartitionClock(None, self.beliefs.get((READ, 0), Belief()))

    def _settle(self, key: tuple[int, int], came: list[tuple[int, ...]]) -> None:
        if key[0] == SIGNS:
            self.positions[key] = came[-1][2] + 1
        else:
            super()._settle(key, came)


@dataclass
class ReadingKit(FastKit):
    """Decodes upstream outputs, as blocks of its messages or one by one as text."""

    def decode(self, messages: Sequence[Raw]) -> pa.RecordBatch:
        rows: list[tuple[int, ...]] = []
        for m in messages:
            add = partial(_row, m)
            if m.is_tick:
                rows.append(add(0, RowKind.TICK, 0))
            elif m.form & OUTPUTS_FORM:
                block = StreamCodec().decode(m.value)
                pairs = zip(block.column("n").to_pylist(), block.column("v").to_pylist(), strict=True)
                rows += [add(index, RowKind.EVENT, _value(n, v)) for index, (n, v) in enumerate(pairs)]
            else:
                numbers = tuple(map(int, m.value.split()))
                rows.append(add(0, RowKind.EVENT, _value(*numbers) if m.topic == READ else numbers[0]))
        return columns_of(rows, DECODED)


def _row(message: Raw, index: int, kind: RowKind, value: int) -> tuple[int, ...]:
    return message.topic, message.partition, message.offset, index, message.time_us, kind, value


def _value(n: int, v: int) -> int:
    """Returns the value of an output as an event."""
    return n * 7 + v & 0xFFF


def before_kit() -> Kit:
    outbound = (OutputStream(STREAMS[0], "before.a"), OutputStream(STREAM, TOPIC, has_beats=True))
    return FastKit(FastCores(kind=BeatCore), GroupTopics((InboundTopic("before.in0"), InboundTopic("before.in1")), outbound))


def behind_kit() -> Kit:
    outbound = tuple(OutputStream(stream, f"behind.{stream[-1]}") for stream in STREAMS)
    read, signs = InboundTopic(TOPIC, kind=InboundRole.OUTPUTS), InboundTopic("behind.signs", kind=InboundRole.TICKS)
    return ReadingKit(FastCores(kind=ReadingCore), GroupTopics((InboundTopic("behind.own"), read, signs), outbound))
