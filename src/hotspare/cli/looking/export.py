"""Rows of a window to a file: Parquet with the columns' types, or CSV as events, which `hotspare publish` takes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hotspare.base.errors import FileUnwritable, UsageError
from hotspare.formats.csv.rows import CsvStyle, rows_to_csv
from hotspare.host.looking import Looked, Wanted
from hotspare.model.events import Flag, Opcode
from hotspare.model.types import Schema

PARQUET, CSV = ".parquet", ".csv"
_ROWS_AT_ONCE = 1 << 16


def write_rows(file: Path, table: pa.Table, schema: Schema, looked: Looked, wanted: Wanted) -> None:
    """Whole or not at all. UsageError for a file whose name ends otherwise; FileUnwritable."""
    if file.suffix not in (PARQUET, CSV):
        raise UsageError(f"{file} has a form that is not known", hint="let its name end in .parquet or .csv")
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if file.suffix == PARQUET:
            pq.write_table(table.replace_schema_metadata(_where_from(schema, looked, wanted)), beside)
        else:
            write_events(beside, table)
        beside.replace(file)
    except OSError as error:
        raise FileUnwritable.of(file, error) from error
    finally:
        beside.unlink(missing_ok=True)


def _where_from(schema: Schema, looked: Looked, wanted: Wanted) -> dict[str, str]:
    """What a Parquet file says of its origin."""
    return {
        "hotspare.group": looked.group,
        "hotspare.snapshot": looked.info.name,
        "hotspare.window": wanted.window,
        "hotspare.part": wanted.part,
        "hotspare.schema": str(schema),
        "hotspare.project": looked.facts.project_hash,
    }


def write_events(file: Path, table: pa.Table) -> None:
    """CSV with an insert for each row."""
    with file.open("wb") as out:
        for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
            count = batch.num_rows
            opcode, flags = (pa.array(np.full(count, int(each), np.uint8)) for each in (Opcode.INSERT, Flag.NORMAL))
            names = ["hs:opcode", "hs:flags", *batch.schema.names]
            out.write(rows_to_csv(pa.RecordBatch.from_arrays([opcode, flags, *batch.columns], names=names), CsvStyle.EXACT))
