"""One message of an output topic: its value in the stream's format, in its headers which outputs it holds and under which epoch.

What the headers say is enough to know what is committed, whatever the format (SPEC B13, DESIGN section 5).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hotspare.bus.contract import CAUSE_HEADER, EPOCH_HEADER, FORMAT_HEADER, OUTPUTS_HEADER, TICK, Message, Outgoing, Progress
from hotspare.engine.codec.outputs import encode_outputs
from hotspare.engine.rows.batch import BEAT, CAUSE_COLUMNS, MessageFormat, has_causes, without_causes
from hotspare.ha.outputs.held import mark_of
from hotspare.ha.ports import BlockCodec
from hotspare.positions import OutputId

_NUMBERS = 8


def output_message(block: pa.RecordBatch, format_: MessageFormat, epoch: int, codec: BlockCodec) -> Outgoing:
    """The outputs of a block, at least one, whose sequences follow each other. Where their stream has beats, they have one cause's
    time, and a beat is alone."""
    rows = without_causes(block)
    is_beat = has_causes(block) and block.column("hs:opcode")[0].as_py() == BEAT
    value = b"" if is_beat else codec.encode(rows) if format_ is MessageFormat.ARROW else encode_outputs(rows, format_)
    first, last = int(block.column(0)[0].as_py()), mark_of(block, block.num_rows - 1)
    cause = last.output_id
    place = () if cause is None else (cause.topic, cause.partition, cause.offset, cause.index, cause.ordinal)
    numbers = (first, last.sequence, last.digest, *place)
    outputs = " ".join(str(number) for number in numbers).encode()
    headers: tuple[tuple[str, bytes], ...]
    headers = ((FORMAT_HEADER, format_.header), (EPOCH_HEADER, str(epoch).encode()), (OUTPUTS_HEADER, outputs))
    if has_causes(block):
        headers = (*headers, (CAUSE_HEADER, _cause(block)), *(TICK.headers if is_beat else ()))
    return Outgoing(value, headers)


def _cause(block: pa.RecordBatch) -> bytes:
    time_us, is_second = (block.column(name)[0].as_py() for name, _ in CAUSE_COLUMNS)
    return b"%d 1" % time_us if is_second else b"%d" % time_us


def alike(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Of outputs of a stream with beats: from which rows on other messages begin. Each has one cause's time, a beat is alone."""
    times, beats = rows.column("hs:time").to_numpy(), rows.column("hs:opcode").to_numpy() == BEAT
    return 1 + np.flatnonzero((times[1:] != times[:-1]) | beats[1:] | beats[:-1])


def progress_of(message: Message) -> Progress | None:
    """What was committed with an output message, by its headers; None where they do not say it. Epoch 0: it may be another's."""
    numbers = (message.header(OUTPUTS_HEADER) or b"").split()
    if len(numbers) != _NUMBERS or not all(number.isdigit() for number in numbers):
        return None
    _, sequence, digest, topic, partition, offset, index, ordinal = map(int, numbers)
    return Progress(sequence, OutputId(topic, partition, offset, index, ordinal), digest, 0)
