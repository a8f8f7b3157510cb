"""Writes rows of a window to a file, and publishes rows of a Parquet file to a source window.

A written file is Parquet with the columns' types, or CSV with events that `hotspare publish` reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotspare.adapters.files.canonical import InsertOpcode, RowForm
from hotspare.adapters.files.publisher import PublishOptions, PublishProgress, publish_file
from hotspare.base.errors import BusError, FileUnwritable, UsageError
from hotspare.bus.contract import Bus
from hotspare.flow.snapshot_content import table_schema
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Schema
from hotspare.operate.inbound import RowDestination
from hotspare.operate.snapshots import LoadedSnapshot, RowSelection

PARQUET, CSV = ".parquet", ".csv"
_ROWS_AT_ONCE = 1 << 16
_DIGITS = 32
"""The number of hexadecimal digits of the digest of a file's rows, which is part of the name of the source."""


def write_rows(file: Path, table: pa.Table, schema: Schema, looked: LoadedSnapshot, wanted: RowSelection) -> None:
    """Writes the rows of `table` to `file`, atomically: Parquet or CSV, by its suffix. Raises UsageError for another suffix,
    FileUnwritable if the file cannot be written."""
    if file.suffix not in (PARQUET, CSV):
        raise UsageError(f"{file}: unknown format of file", hint="use a name that ends in .parquet or .csv")
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if file.suffix == PARQUET:
            pq.write_table(table.replace_schema_metadata(_origin_metadata(schema, looked, wanted)), beside)
        else:
            write_events(beside, table)
        beside.replace(file)
    except OSError as error:
        raise FileUnwritable.from_os_error(file, error) from error
    finally:
        beside.unlink(missing_ok=True)


def _origin_metadata(schema: Schema, looked: LoadedSnapshot, wanted: RowSelection) -> dict[str, str]:
    """Returns the metadata of a Parquet file that describe the origin of its rows."""
    return {
        "hotspare.group": looked.group,
        "hotspare.snapshot": looked.info.name,
        "hotspare.window": wanted.window,
        "hotspare.part": wanted.part,
        "hotspare.schema": str(schema),
        "hotspare.project": looked.facts.project_hash,
    }


def write_events(file: Path, table: pa.Table) -> None:
    """Writes CSV with an insert for each row."""
    with file.open("wb") as out:
        for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            count = batch.num_rows
            opcode, flags = (pa.array(np.full(count, int(each), np.uint8)) for each in (Opcode.INSERT, Flag.NORMAL))
            names = ["hs:opcode", "hs:flags", *batch.schema.names]
            out.write(rows_to_csv(pa.RecordBatch.from_arrays([opcode, flags, *batch.columns], names=names), CsvStyle.EXACT))


@dataclass(frozen=True, slots=True)
class ParquetRows:
    """The rows of a file, in the columns of a schema."""

    file: Path
    schema: Schema
    table: pa.Table


def rows_in(file: Path, schema: Schema) -> ParquetRows:
    """Returns the rows of a Parquet file, converted to the schema's types. Raises UsageError if the file is not named `.parquet`,
    cannot be read, lacks a field of the schema or has another type."""
    if file.suffix != PARQUET:
        raise UsageError(f"{file} is not a Parquet file", hint="use `hotspare publish` for a CSV file of events")
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        why = str(error) if file.exists() else "the file does not exist"
        raise UsageError(f"file {file} cannot be read", detail=why) from error
    if missing := [name for name in schema.names if name not in table.column_names]:
        raise UsageError(f"{file} lacks the field {missing[0]}", hint=f"its columns are {', '.join(table.column_names)}")
    try:
        return ParquetRows(file, schema, table.select(list(schema.names)).cast(table_schema(schema)))
    except pa.ArrowException as error:
        raise UsageError(f"{file} has other types than {schema}", detail=str(error)) from error


def publish_file_rows(
    bus: Bus, place: RowDestination, rows: ParquetRows, stop: threading.Event, troubled: Callable[[BusError], None]
) -> PublishProgress:
    """Publishes each row as an upsert, until the end or `stop`, and returns the progress. Published rows are input, so all engines
    compute the same from them. `troubled` is called with errors of the bus that are waited out. Raises FileUnwritable.

    A repeated call continues after the rows already published, so each row of a file is published once. A file whose rows changed
    is another source, even under the same name.
    """
    (where, routing, count), file = place, rows.file
    form = RowForm(insert=InsertOpcode.UPSERT, schema=rows.schema)
    events = file.with_name(f".{file.name}.{uuid4().hex}.events")  # another process may publish the same file concurrently
    try:
        write_events(events, rows.table)
        with events.open("rb") as written:
            digest = hashlib.file_digest(written, hashlib.blake2b).hexdigest()[:_DIGITS]
        options = PublishOptions(form=form, source_name=f"import of {file.absolute()} {digest}")
        return publish_file(bus, where, events, options, stop, lambda _: None, troubled, routing, count=count)
    except OSError as error:
        raise FileUnwritable.from_os_error(events, error) from error
    finally:
        with contextlib.suppress(OSError):
            events.unlink(missing_ok=True)
