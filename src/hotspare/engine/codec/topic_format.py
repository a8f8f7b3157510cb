"""How the messages of a topic are written where they do not say it themselves: by the connector that names the topic (SPEC I4)."""

from __future__ import annotations

from hotspare.engine.rows.batch import MessageFormat
from hotspare.model.connectors import is_bus
from hotspare.model.project import ConnectorDirection, Window

_OF_TYPE = {
    "binary": MessageFormat.ARROW,
    "csv": MessageFormat.CSV,
    "json": MessageFormat.JSON,
    "avro": MessageFormat.AVRO,
}


def inbound_format(window: Window) -> MessageFormat:
    """Of messages without a format header, that of the window's publishing bus connector; CSV where there is none."""
    return _format_of(window, ConnectorDirection.PUBLISH, MessageFormat.CSV)


def outbound_format(window: Window) -> MessageFormat:
    """In which the window's outputs are published: that of its subscribing bus connector; Arrow blocks where there is none."""
    return _format_of(window, ConnectorDirection.SUBSCRIBE, MessageFormat.ARROW)


def _format_of(window: Window, direction: ConnectorDirection, otherwise: MessageFormat) -> MessageFormat:
    for connector in window.connectors:
        if is_bus(connector) and connector.direction is direction:
            return _OF_TYPE.get(connector.get("kafkatype").strip().lower(), otherwise)
    return otherwise
