"""Output blocks as an engine publishes them, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hotspare.bus.contract import Outgoing, Partition
from hotspare.bus.memory import MemoryBusClient
from hotspare.formats import arrow_block
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Field, FieldType, KeyRole, Schema
from hotspare.rows.batch import OUTPUT_COLUMNS, output_schema

TOPIC = "p.project.cq.window.O"
SCHEMA = Schema((Field("id", FieldType.INT64, KeyRole.KEY), Field("value", FieldType.DOUBLE)))
I, UB, D = Opcode.INSERT, Opcode.UPDATE_BLOCK, Opcode.DELETE  # noqa: E741 - the letters of SPEC 5.2
N, R = Flag.NORMAL, Flag.RETENTION
Row = tuple[Opcode, Flag, int, float | None]

ROWS: list[list[Row]] = [[(I, N, 1, 1.0)], [(UB, N, 1, 2.5), (D, N, 1, 1.0)], [(D, R, 1, 2.5), (I, N, 2, None)]]
ROWS_TEXT = b"I,N, 1,1.000000\nUB,N, 1,2.500000\nD,N, 1,1.000000\nD,R, 1,2.500000\nI,N, 2,\n"


def block(rows: Sequence[Row], first_sequence: int) -> pa.RecordBatch:
    """Returns outputs with sequences from `first_sequence` on."""
    count = len(rows)
    given = {
        "hs:sequence": list(range(first_sequence, first_sequence + count)),
        "hs:opcode": [int(row[0]) for row in rows],
        "hs:flags": [int(row[1]) for row in rows],
    }
    columns = [pa.array(given.get(name, [0] * count), type_) for name, type_ in OUTPUT_COLUMNS]
    columns += [pa.array([row[2] for row in rows], pa.int64()), pa.array([row[3] for row in rows], pa.float64())]
    return pa.RecordBatch.from_arrays(columns, schema=output_schema(SCHEMA))


def publish(bus: MemoryBusClient, blocks: Sequence[Sequence[Row]], first_sequence: int = 1) -> None:
    """Appends one message per block."""
    for rows in blocks:
        bus.append(Partition(TOPIC), [Outgoing(arrow_block.encode(block(rows, first_sequence)))])
        first_sequence += len(rows)
