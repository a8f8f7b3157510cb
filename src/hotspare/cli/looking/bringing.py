"""Rows of a Parquet file into a source window, as events: what is brought in is input, so all engines make the same of it."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from hotspare.base.errors import FileUnwritable, UsageError
from hotspare.cli.looking.export import PARQUET, write_events
from hotspare.flow.inside import table_schema
from hotspare.model.types import Schema

if TYPE_CHECKING:
    from hotspare.adapters.files.publisher import PublishProgress
    from hotspare.bus.contract import Bus
    from hotspare.cli.shared.inbound import Target

_DIGITS = 32
"""Of the digest of a file's rows, in the name of what is published."""


def bring_rows(bus: Bus, target: Target, file: Path, schema: Schema) -> PublishProgress:
    """Publish each row as an upsert. Begun again, it goes on where it was: a file's rows come once.
    A file with other rows is another one, whatever its name. UsageError where it cannot be read or lacks a field."""
    from hotspare.adapters.files.canonical import InsertOpcode, RowForm
    from hotspare.adapters.files.publisher import PublishOptions, publish_file
    from hotspare.cli.shared.inbound import inbound_place
    from hotspare.cli.shared.interrupt import stop_on_signal
    from hotspare.cli.shared.turns import say_trouble

    table = _table(file, schema)
    where, routing, count = inbound_place(bus, target, schema)
    form = RowForm(insert=InsertOpcode.UPSERT, schema=schema)
    events = file.with_name(f".{file.name}.{uuid4().hex}.events")  # somebody else may bring the same file at the same time
    try:
        write_events(events, table)
        with events.open("rb") as written:
            digest = hashlib.file_digest(written, hashlib.blake2b).hexdigest()[:_DIGITS]
        options = PublishOptions(form=form, source_name=f"import of {file.absolute()} {digest}")
        with stop_on_signal() as stop:
            return publish_file(bus, where, events, options, stop, lambda _: None, say_trouble, routing, count=count)
    except OSError as error:
        raise FileUnwritable.of(events, error) from error
    finally:
        with contextlib.suppress(OSError):
            events.unlink(missing_ok=True)


def _table(file: Path, schema: Schema) -> pa.Table:
    if file.suffix != PARQUET:
        raise UsageError(f"{file} is no Parquet file", hint="a CSV file of events takes `hotspare publish`")
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        why = str(error) if file.exists() else "there is no such file"
        raise UsageError(f"file {file} cannot be read", detail=why) from error
    if missing := [name for name in schema.names if name not in table.column_names]:
        raise UsageError(f"{file} lacks the field {missing[0]}", hint=f"its columns are {', '.join(table.column_names)}")
    try:
        return table.select(list(schema.names)).cast(table_schema(schema))
    except pa.ArrowException as error:
        raise UsageError(f"{file} has other types than {schema}", detail=str(error)) from error
