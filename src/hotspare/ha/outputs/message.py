"""Builds and parses the messages of an output topic: the value has the stream's format; the headers name the outputs and the epoch.

The headers are enough to determine what is committed, whatever the format (SPEC B13).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.positions import OutputId
from hotspare.bus.contract import (
    CAUSE_HEADER,
    EPOCH_HEADER,
    FORMAT_HEADER,
    OUTPUTS_HEADER,
    TICK,
    Message,
    Outgoing,
    OutputsHeader,
    Progress,
    RowMessages,
)
from hotspare.formats.outputs import encode_each, encode_outputs
from hotspare.ha.ports import BlockCodec
from hotspare.model.types import Field
from hotspare.rows.batch import BEAT, CAUSE_COLUMNS, MessageFormat, has_causes, without_causes
from hotspare.rows.routing import row_keys


def output_message(block: pa.RecordBatch, format_: MessageFormat, epoch: int, codec: BlockCodec) -> Outgoing:
    """Returns one message for a block of at least one output, with consecutive sequences.

    If the stream has beats, the outputs of the block must have the same cause time. A beat must then be a block of its own
    (`message_starts`).
    """
    rows = without_causes(block)
    is_beat = has_causes(block) and block.column("hs:opcode")[0].as_py() == BEAT
    value = b"" if is_beat else codec.encode(rows) if format_ is MessageFormat.ARROW else encode_outputs(rows, format_)
    (outputs,) = _outputs_texts(block.column(0).slice(0, 1), block.slice(block.num_rows - 1))
    headers = (*_common_headers(format_, epoch), (OUTPUTS_HEADER, outputs))
    if has_causes(block):
        headers = (*headers, (CAUSE_HEADER, _causes(block.slice(0, 1))[0]), *(TICK.headers if is_beat else ()))
    return Outgoing(value, headers)


def row_messages(rows: pa.RecordBatch, format_: MessageFormat, epoch: int, message_key: Sequence[Field]) -> Sequence[Outgoing]:
    """Returns one message per output, with the key that `message_key` takes from its row. `format_` must be one of TEXT_FORMATS."""
    values, keys = encode_each(without_causes(rows), format_), row_keys(rows, message_key).to_pylist()
    found = RowMessages(_common_headers(format_, epoch), values, OUTPUTS_HEADER, _outputs_texts(rows.column(0), rows), keys)
    if not has_causes(rows):
        return found
    told = zip(found, _causes(rows), rows.column("hs:opcode").to_pylist(), strict=True)
    return [_with_cause(message, cause, opcode) for message, cause, opcode in told]


def _with_cause(message: Outgoing, cause: bytes, opcode: int) -> Outgoing:
    """Returns `message` with the header of its cause, for a stream with beats. A beat has an empty value and the headers of a
    tick."""
    headers = (*message.headers, (CAUSE_HEADER, cause))
    return Outgoing(b"", (*headers, *TICK.headers)) if opcode == BEAT else message._replace(headers=headers)


def _common_headers(format_: MessageFormat, epoch: int) -> tuple[tuple[str, bytes], ...]:
    return (FORMAT_HEADER, format_.header), (EPOCH_HEADER, b"%d" % epoch)


def _outputs_texts(first: pa.Array, last: pa.RecordBatch) -> list[bytes]:
    """Returns the value of OUTPUTS_HEADER for each message; `first` holds the sequence of its first output, `last` the row of its
    last output."""
    sequence, topic, partition, offset, index, ordinal, digest = (last.column(i).cast(pa.string()) for i in range(7))
    numbers = (first.cast(pa.string()), sequence, digest, topic, partition, offset, index, ordinal)
    texts: list[bytes] = pc.binary_join_element_wise(*numbers, " ").cast(pa.binary()).to_pylist()
    return texts


def _causes(rows: pa.RecordBatch) -> list[bytes]:
    """Returns the value of CAUSE_HEADER for each row, as if it were the first of a message."""
    times, seconds = (rows.column(name).to_pylist() for name, _ in CAUSE_COLUMNS)
    return [b"%d 1" % time_us if is_second else b"%d" % time_us for time_us, is_second in zip(times, seconds, strict=True)]


def message_starts(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns the indexes of the rows, except row 0, at which a message of a stream with beats has to begin. These are each change
    of the cause time, each beat, and each row after a beat."""
    times, beats = rows.column("hs:time").to_numpy(), rows.column("hs:opcode").to_numpy() == BEAT
    return 1 + np.flatnonzero((times[1:] != times[:-1]) | beats[1:] | beats[:-1])


def progress_of(message: Message) -> Progress | None:
    """Returns the progress up to the last output of an output message, by its headers; None if they are missing or invalid. The
    epoch is 0: the message may be from any."""
    told = OutputsHeader.from_message(message)
    if told is None:
        return None
    return Progress(told.last, OutputId(told.topic, told.partition, told.offset, told.row, told.ordinal), told.digest, 0)
