"""Messages of an output topic: the value in the stream's format, in the headers which outputs it holds and under which epoch.

What the headers say is enough to know what is committed, whatever the format (SPEC B13, DESIGN section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hotspare.bus.contract import (
    CAUSE_HEADER,
    EPOCH_HEADER,
    FORMAT_HEADER,
    OUTPUTS_HEADER,
    TICK,
    Message,
    Outgoing,
    OutputNumbers,
    Progress,
)
from hotspare.engine.codec.outputs import encode_each, encode_outputs
from hotspare.engine.routing import row_keys
from hotspare.engine.rows.batch import BEAT, CAUSE_COLUMNS, MessageFormat, has_causes, without_causes
from hotspare.ha.ports import BlockCodec
from hotspare.model.types import Field
from hotspare.positions import OutputId


def output_message(block: pa.RecordBatch, format_: MessageFormat, epoch: int, codec: BlockCodec) -> Outgoing:
    """The outputs of a block, at least one, whose sequences follow each other. Where their stream has beats, they have one cause's
    time, and a beat is alone."""
    rows = without_causes(block)
    is_beat = has_causes(block) and block.column("hs:opcode")[0].as_py() == BEAT
    value = b"" if is_beat else codec.encode(rows) if format_ is MessageFormat.ARROW else encode_outputs(rows, format_)
    (outputs,) = _outputs_texts(block.column(0).slice(0, 1), block.slice(block.num_rows - 1))
    headers = (*_common_headers(format_, epoch), (OUTPUTS_HEADER, outputs))
    if has_causes(block):
        headers = (*headers, (CAUSE_HEADER, _causes(block.slice(0, 1))[0]), *(TICK.headers if is_beat else ()))
    return Outgoing(value, headers)


def row_messages(rows: pa.RecordBatch, format_: MessageFormat, epoch: int, message_key: Sequence[Field]) -> Sequence[Outgoing]:
    """Returns a message for each output, whose key is that of the row; `format_` is one of TEXT_FORMATS."""
    values, keys = encode_each(without_causes(rows), format_), row_keys(rows, message_key).to_pylist()
    found = RowMessages(_common_headers(format_, epoch), values, _outputs_texts(rows.column(0), rows), keys)
    if not has_causes(rows):
        return found
    told = zip(found, _causes(rows), rows.column("hs:opcode").to_pylist(), strict=True)
    return [_with_cause(message, cause, opcode) for message, cause, opcode in told]


class RowMessages(Sequence[Outgoing]):
    """Messages of one output each, built when they are read. Only their texts are kept: as objects they would make the garbage
    collector walk over hundreds of thousands of them in each transaction, which takes longer than all else."""

    def __init__(
        self, common: tuple[tuple[str, bytes], ...], values: Sequence[bytes], outputs: Sequence[bytes], keys: Sequence[bytes]
    ) -> None:
        """`common`: the headers that all share; `outputs`: the texts of OUTPUTS_HEADER."""
        self._common, self._values, self._outputs, self._keys = common, values, outputs, keys

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Outgoing]:
        common = self._common
        for value, text, key in zip(self._values, self._outputs, self._keys, strict=True):
            yield Outgoing(value, (*common, (OUTPUTS_HEADER, text)), key)

    @overload
    def __getitem__(self, place: int) -> Outgoing: ...
    @overload
    def __getitem__(self, place: slice) -> RowMessages: ...
    def __getitem__(self, place: int | slice) -> Outgoing | RowMessages:
        if isinstance(place, slice):
            return RowMessages(self._common, self._values[place], self._outputs[place], self._keys[place])
        headers = (*self._common, (OUTPUTS_HEADER, self._outputs[place]))
        return Outgoing(self._values[place], headers, self._keys[place])


def _with_cause(message: Outgoing, cause: bytes, opcode: int) -> Outgoing:
    """Returns the message of an output of a stream with beats; a beat has no value."""
    headers = (*message.headers, (CAUSE_HEADER, cause))
    return Outgoing(b"", (*headers, *TICK.headers)) if opcode == BEAT else message._replace(headers=headers)


def _common_headers(format_: MessageFormat, epoch: int) -> tuple[tuple[str, bytes], ...]:
    return (FORMAT_HEADER, format_.header), (EPOCH_HEADER, b"%d" % epoch)


def _outputs_texts(first: pa.Array, last: pa.RecordBatch) -> list[bytes]:
    """Returns the header of each message whose first output has the sequence `first`, and whose last one is the row `last`."""
    sequence, topic, partition, offset, index, ordinal, digest = (last.column(i).cast(pa.string()) for i in range(7))
    numbers = (first.cast(pa.string()), sequence, digest, topic, partition, offset, index, ordinal)
    texts: list[bytes] = pc.binary_join_element_wise(*numbers, " ").cast(pa.binary()).to_pylist()
    return texts


def _causes(rows: pa.RecordBatch) -> list[bytes]:
    """Returns the header of each row as the first of a message."""
    times, seconds = (rows.column(name).to_pylist() for name, _ in CAUSE_COLUMNS)
    return [b"%d 1" % time_us if is_second else b"%d" % time_us for time_us, is_second in zip(times, seconds, strict=True)]


def alike(rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Of outputs of a stream with beats: from which rows on other messages begin. Each has one cause's time, a beat is alone."""
    times, beats = rows.column("hs:time").to_numpy(), rows.column("hs:opcode").to_numpy() == BEAT
    return 1 + np.flatnonzero((times[1:] != times[:-1]) | beats[1:] | beats[:-1])


def progress_of(message: Message) -> Progress | None:
    """What was committed with an output message, by its headers; None where they do not say it. Epoch 0: it may be another's."""
    told = OutputNumbers.of_message(message)
    if told is None:
        return None
    return Progress(told.last, OutputId(told.topic, told.partition, told.offset, told.row, told.ordinal), told.digest, 0)
