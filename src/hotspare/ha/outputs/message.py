"""One message of an output topic: its value in the stream's format, in its headers which outputs it holds and under which epoch.

What the headers say is enough to know what is committed, whatever the format (SPEC B13, DESIGN section 5).
"""

from __future__ import annotations

import pyarrow as pa

from hotspare.bus.contract import EPOCH_HEADER, FORMAT_HEADER, OUTPUTS_HEADER, Message, Outgoing, Progress
from hotspare.engine.codec.outputs import encode_outputs
from hotspare.engine.rows.batch import MessageFormat
from hotspare.ha.outputs.held import mark_of
from hotspare.ha.ports import BlockCodec
from hotspare.positions import OutputId

_NUMBERS = 8


def output_message(block: pa.RecordBatch, format_: MessageFormat, epoch: int, codec: BlockCodec) -> Outgoing:
    """The outputs of a block, at least one, whose sequences follow each other."""
    value = codec.encode(block) if format_ is MessageFormat.ARROW else encode_outputs(block, format_)
    first, last = int(block.column(0)[0].as_py()), mark_of(block, block.num_rows - 1)
    cause = last.output_id
    place = () if cause is None else (cause.topic, cause.partition, cause.offset, cause.index, cause.ordinal)
    numbers = (first, last.sequence, last.digest, *place)
    outputs = " ".join(str(number) for number in numbers).encode()
    headers = ((FORMAT_HEADER, format_.header), (EPOCH_HEADER, str(epoch).encode()), (OUTPUTS_HEADER, outputs))
    return Outgoing(value, headers)


def progress_of(message: Message) -> Progress | None:
    """What was committed with an output message, by its headers; None where they do not say it. Epoch 0: it may be another's."""
    numbers = (message.header(OUTPUTS_HEADER) or b"").split()
    if len(numbers) != _NUMBERS or not all(number.isdigit() for number in numbers):
        return None
    _, sequence, digest, topic, partition, offset, index, ordinal = map(int, numbers)
    return Progress(sequence, OutputId(topic, partition, offset, index, ordinal), digest, 0)
