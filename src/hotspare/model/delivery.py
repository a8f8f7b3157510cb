"""Which outputs of a window its stream holds, as the subscribing connectors of a bus request them (SPEC I14, I15).

All readers of a topic read the same messages, so all bus connectors of a window must request the same outputs. A connector to a
file may select outputs by itself if the stream holds all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hotspare.model.connectors import is_bus
from hotspare.model.events import RetentionDeletes, UpdateBlocks
from hotspare.model.failover_rules import boolean_property
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Connector, ConnectorDirection, Window

COLLAPSE, NO_RETENTION_DELETES = "collapse", "rmretdel"
"""Names of the connector properties that change what is delivered."""


BLOCKS = "csvmsgpereventblock"
"""The property that puts several outputs in a text format into one message."""


class MessageCut(Enum):
    """The outputs in CSV or JSON that one message of a topic holds."""

    PER_EVENT = "per event"
    PER_BLOCK = "per block"
    """The outputs that are published together; in an external topic those of one message of the stream."""


def message_cut(connector: Connector) -> MessageCut:
    return MessageCut.PER_BLOCK if boolean_property(connector, BLOCKS) == "true" else MessageCut.PER_EVENT


@dataclass(frozen=True, slots=True)
class Delivery:
    updates: UpdateBlocks = UpdateBlocks.PAIRS
    retention_deletes: RetentionDeletes = RetentionDeletes.KEPT


WHOLE_STREAM = Delivery()
"""The default: the stream holds all outputs, as the window emits them."""


def delivery_of(window: Window) -> Delivery:
    """Returns which outputs the window's stream holds."""
    collapsed, dropped = (_is_requested(window, name) for name in (COLLAPSE, NO_RETENTION_DELETES))
    return Delivery(
        UpdateBlocks.COLLAPSED if collapsed else UpdateBlocks.PAIRS,
        RetentionDeletes.DROPPED if dropped else RetentionDeletes.KEPT,
    )


def check_delivery(window: Window, found: Mistakes) -> None:
    for name in (COLLAPSE, NO_RETENTION_DELETES):
        asking = [c for c in window.connectors if is_bus(c) and boolean_property(c, name) == "true"]
        silent = [
            c for c in window.connectors if c.direction is ConnectorDirection.SUBSCRIBE and boolean_property(c, name) != "true"
        ]
        if asking and silent:
            message = f"connector {asking[0].name} of window {window.name} has {name}, connector {silent[0].name} has not"
            found.add(silent[0].place, f"{message}: they read one topic", "give both the same value")


def delivery_meaning(window: Window) -> dict[str, str]:
    """Returns the entries for the project's hash; empty if the stream holds all outputs unchanged."""
    delivery, found = delivery_of(window), dict[str, str]()
    if delivery.updates is not WHOLE_STREAM.updates:
        found["updates in the stream"] = delivery.updates.value
    if delivery.retention_deletes is not WHOLE_STREAM.retention_deletes:
        found["retention deletes in the stream"] = delivery.retention_deletes.value
    return found


def _is_requested(window: Window, name: str) -> bool:
    return any(
        is_bus(c) and c.direction is ConnectorDirection.SUBSCRIBE and boolean_property(c, name) == "true" for c in window.connectors
    )
