"""Outputs of another project as events: what its engine put out for readers that fold it, as a source window takes it (SPEC K10).

An update leaves a window as two rows, the new one and a delete of the old one; a source window takes it as one. Why a row was
deleted, by retention or by an event, is the other project's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from hotspare.adapters.files.output_rows import FileStyle, OutputRows
from hotspare.adapters.received import RowChoice, UpdateBlocks, ends_in_update
from hotspare.base.errors import UsageError
from hotspare.bus.contract import OUTPUTS_HEADER, Message
from hotspare.formats.csv.rows import CsvStyle, row_texts
from hotspare.model.events import Flag
from hotspare.model.types import Schema

_ONE_ROW = RowChoice(updates=UpdateBlocks.COLLAPSED)


def is_output(message: Message) -> bool:
    """Whether an engine put it out. It says itself how it is written."""
    return message.header(OUTPUTS_HEADER) is not None


class PutOut:
    """Outputs to rows of CSV, for a source window of this schema."""

    def __init__(self, schema: Schema | None, topic: str) -> None:
        self._schema = schema
        self._topic = topic

    def cut(self, message: Message, open_updates: frozenset[int], partition: int) -> tuple[Sequence[bytes], frozenset[int]]:
        """The rows of a message, and the partitions in which an update is open behind it. BusError where it is of another schema,
        UsageError where none is known."""
        rows = self._rows.decode([message])
        if not len(rows):
            return [], open_updates
        chosen = _ONE_ROW.apply(rows, update_open=int(partition in open_updates))
        place = chosen.schema.get_field_index("hs:flags")
        plain = chosen.set_column(place, chosen.schema.field(place), pa.array(np.full(len(chosen), Flag.NORMAL, np.uint8)))
        texts = [text.encode() for text in row_texts(plain, CsvStyle.EXACT)]
        return texts, open_updates | {partition} if ends_in_update(rows) else open_updates - {partition}

    @cached_property
    def _rows(self) -> OutputRows:
        if self._schema is None:
            what = f"topic {self._topic} holds outputs of a project, whose fields are not known"
            raise UsageError(what, hint="name the file of the project that reads them with --project")
        return OutputRows(FileStyle(), self._schema)
