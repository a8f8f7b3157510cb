"""Opens what needs the client of a state database; the client is an extra of its own."""

from __future__ import annotations

from hotspare.bus.topic_writer import TopicWriter
from hotspare.errors import UsageError
from hotspare.model.statedb import RecordKeeping


def open_state_writer(kept: RecordKeeping, stream: str, epoch: int) -> TopicWriter:
    """UsageError where the address cannot be read, or the client is not installed."""
    try:
        from hotspare.adapters.state.writer import StateWriter
    except ModuleNotFoundError as error:
        raise UsageError("records in Redis need its client", detail=str(error), hint="pip install 'hotspare[redis]'") from None
    return StateWriter(kept, stream, epoch)
