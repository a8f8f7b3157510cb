"""Outputs of another project as events (SPEC K10): an update, which leaves a window as two rows, enters one as one.

Why a row was deleted, by retention or by an event, is the other project's business.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotspare.formats.csv.decode import DecodedRows
from hotspare.model.events import Flag, Opcode
from hotspare.rows.batch import OUTPUTS_FORM, SECOND_FORM
from hotspare.rows.chunk import Bools, Int64s
from hotspare.rows.elementwise import Rows
from hotspare.windows.shared.stateless import passed_rows


def folded(events: Sequence[DecodedRows], forms: Int64s) -> tuple[list[DecodedRows], Rows, Rows]:
    """The events, those that are outputs folded; of the rows that went, which were the last of their message: that message, and the
    place in it. `forms`: what the raw column `format` says of each message."""
    if not (forms & OUTPUTS_FORM).any():
        return list(events), np.empty(0, np.int64), np.empty(0, np.int64)
    places = [rows.message << 32 | rows.index for rows in events]
    new = np.concatenate([place[rows.opcode == Opcode.UPDATE_BLOCK] for place, rows in zip(places, events, strict=True)])
    kept, gone = list[DecodedRows](), [np.empty(0, np.int64)]
    last = np.full(len(forms), -1, np.int64)
    for rows in events:
        np.maximum.at(last, rows.message, rows.index.astype(np.int64))
    for place, rows in zip(places, events, strict=True):
        is_second = _seconds(rows, place, new, forms)
        gone.append(place[is_second & (rows.index == last[rows.message])])
        kept.append(passed_rows(_as_events(rows, forms), ~is_second, rows.columns))
    ends = np.sort(np.concatenate(gone))
    return [rows for rows in kept if len(rows.message)], ends >> 32, ends & 0xFFFFFFFF


def _seconds(rows: DecodedRows, place: Int64s, new: Int64s, forms: Int64s) -> Bools:
    """The old rows of updates, of which the new one stands before them or ended the message before."""
    form = forms[rows.message]
    begins = ((form & SECOND_FORM) != 0) & (rows.index == 0)
    behind: Bools = (rows.opcode == Opcode.DELETE) & ((form & OUTPUTS_FORM) != 0) & (np.isin(place - 1, new) | begins)
    return behind


def _as_events(rows: DecodedRows, forms: Int64s) -> DecodedRows:
    is_output = (forms[rows.message] & OUTPUTS_FORM) != 0
    opcode = np.where(is_output & (rows.opcode == Opcode.UPDATE_BLOCK), np.uint8(Opcode.UPDATE), rows.opcode)
    flags = np.where(is_output, np.uint8(Flag.NORMAL) | (rows.flags & np.uint8(Flag.PARTIAL)), rows.flags).astype(np.uint8)
    return DecodedRows(rows.message, rows.index, opcode, flags, rows.columns)
