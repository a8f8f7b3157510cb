"""Bugs in how a project publishes to another that reads its stream, and in how that is read: only a cascade can find them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.bus.contract import Message
from hotspare.ha.outputs import blocks
from hotspare.ha.outputs.blocks import Block, MessageSizes
from hotspare.ha.rules import decide
from hotspare.runners import reading
from tests.simulation import engines
from tests.simulation.planting import Groups, planted


@planted(groups=Groups.CASCADE)
def time_of_append_instead_of_cause() -> Any:
    """Inputs have the time of their commit."""

    def cause(read: Message) -> tuple[int, bool]:
        return read.append_time_us, reading_cause(read)[1]

    reading_cause = reading._cause
    return patch.object(reading, "_cause", cause)


@planted(groups=Groups.CASCADE)
def beats_run_ahead_of_held_outputs() -> Any:
    """Beats are first in a transaction, so that time passes downstream as soon as possible."""
    right = MessageSizes.split_messages

    def cut(self: MessageSizes, *arguments: Any) -> list[Block]:
        return sorted(right(self, *arguments), key=lambda block: block.messages[0].value != b"")

    return patch.object(MessageSizes, "split_messages", cut)


@planted(groups=Groups.CASCADE)
def a_message_holds_outputs_of_several_times() -> Any:
    """Only beats have messages of their own."""

    def alike(rows: pa.RecordBatch) -> Any:
        beats = rows.column("hs:opcode").to_numpy() == 0
        return 1 + np.flatnonzero(beats[1:] | beats[:-1])

    return patch.object(blocks, "message_starts", alike)


@planted(groups=Groups.CASCADE)
def the_one_behind_ticks_the_stream_that_it_reads() -> Any:
    """It ticks it like any inbound topic, so that time passes if upstream is idle."""
    return patch.object(decide, "InboundRole", SimpleNamespace(OUTPUTS=None))


@planted(groups=Groups.CASCADE)
def beats_are_passed_over() -> Any:
    """Beats are ignored like messages without events."""
    right = reading.raw_batch

    def raw_batch(part: reading.MessageRun, *arguments: Any) -> pa.RecordBatch:
        batch = right(part, *arguments)
        return batch.filter(pc.invert(batch.column("tick")))

    return patch.object(engines, "raw_batch", raw_batch)
