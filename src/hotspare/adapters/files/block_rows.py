"""Files of binary blocks (SPEC I5, I6): concatenated Arrow IPC streams, each as a message of a topic.

Each block defines its columns, so a file that is truncated and continued stays valid. Any program with Arrow reads and writes it,
and every value is exact. A publisher reads the events as rows of text: the same blocks give the same bytes, so it can continue at
any row.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

import pyarrow as pa

from hotspare.adapters.files.source_bytes import is_compressed, open_bytes
from hotspare.base.errors import BusError, UsageError
from hotspare.formats import arrow_block
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.formats.json.plain import meta_names
from hotspare.formats.outputs import schema_of
from hotspare.model.types import Schema
from hotspare.rows.batch import OUTPUT_COLUMNS

_ARROW_FILE_MAGIC = b"ARROW1"
_ROWS_AT_ONCE = 1 << 16
_COPIED_BYTES = 1 << 20


def rows_to_block(rows: pa.RecordBatch) -> bytes:
    """Returns one block of outputs: opcode, flags and the fields."""
    opcode, flags = meta_names(schema_of(rows))
    names = [name for name in rows.schema.names if name not in dict(OUTPUT_COLUMNS)]
    columns = [rows.column("hs:opcode"), rows.column("hs:flags"), *(rows.column(name) for name in names)]
    return arrow_block.encode(pa.RecordBatch.from_arrays(columns, names=[opcode, flags, *names]))


def open_as_csv(path: Path, schema: Schema) -> FileIO:
    """Returns an unnamed temporary file with the events of a file's blocks as rows of CSV. The caller closes it. Raises
    UsageError for a block that is unreadable or has other fields than `schema`, and OSError."""
    rows = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  the caller closes it
    try:
        for batch in _batches(path):
            events = arrow_block.events_of(batch, schema)
            for begin in range(0, events.num_rows, _ROWS_AT_ONCE):
                _write(rows, rows_to_csv(events.slice(begin, _ROWS_AT_ONCE), CsvStyle.EXACT))
    except BusError as error:
        rows.close()
        raise UsageError(
            f"file {path} does not match the schema: {error.message}", hint=f"write blocks with the fields of the window: {schema}"
        ) from None
    except BaseException:
        rows.close()
        raise
    return rows


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    with _unpacked(path) if is_compressed(path) else pa.OSFile(str(path)) as source:
        if source.read(len(_ARROW_FILE_MAGIC)) == _ARROW_FILE_MAGIC:
            raise UsageError(f"file {path} is an Arrow file, not an Arrow stream", hint="write it with pyarrow.ipc.new_stream")
        source.seek(0)
        while (begin := source.tell()) < source.size():
            try:
                with pa.ipc.open_stream(source) as reader:
                    for batch in reader:
                        batch.validate(full=True)
                        yield batch
            except (pa.ArrowException, ValueError, KeyError) as error:
                hint = "write it as an Arrow IPC stream; the vendor's own layout of blocks is not supported"
                detail = str(error).partition("\n")[0]
                raise UsageError(f"file {path} has no Arrow block at byte {begin}", detail=detail, hint=hint) from None


def _unpacked(path: Path) -> pa.NativeFile:
    """Returns an unnamed temporary file with the uncompressed content of a file."""
    packed, unpacked = open_bytes(path), tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  the reader closes it
    try:
        while data := packed.read_at(_COPIED_BYTES, unpacked.tell()):
            _write(unpacked, data)
    finally:
        packed.close()
    unpacked.seek(0)
    return pa.PythonFile(unpacked, "r")


def _write(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
