"""Imports look-ups and writers on demand: they need the Python client of the state database, which is an optional dependency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotspare.base.errors import UsageError
from hotspare.bus.topic_writer import TopicWriter
from hotspare.model.project import IndexType
from hotspare.model.statedb import RecordKeeping, RecordQuery
from hotspare.model.types import Schema

if TYPE_CHECKING:
    from hotspare.adapters.state.lookups import LookUps


def open_look_ups(query: RecordQuery, asks: Schema, answers: Schema, index: IndexType) -> LookUps:
    """Opens the look-ups of a window. Raises UsageError if the address cannot be parsed, or the client is not installed."""
    try:
        from hotspare.adapters.state.lookups import LookUps
    except ModuleNotFoundError as error:
        raise _no_client(error) from None
    return LookUps(query, asks, answers, index)


def open_state_writer(kept: RecordKeeping, stream: str, epoch: int) -> TopicWriter:
    """Opens a writer of one stream's records. Raises UsageError if the address cannot be parsed, or the client is not installed."""
    try:
        from hotspare.adapters.state.writer import StateWriter
    except ModuleNotFoundError as error:
        raise _no_client(error) from None
    return StateWriter(kept, stream, epoch)


def _no_client(error: ModuleNotFoundError) -> UsageError:
    return UsageError("records in Redis need its Python client", detail=str(error), hint="run pip install 'hotspare[redis]'")
