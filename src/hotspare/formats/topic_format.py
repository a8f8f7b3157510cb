"""Determines the format of a topic's messages without a format header: that of the connector which names the topic (SPEC I4)."""

from __future__ import annotations

from hotspare.model.connectors import is_bus
from hotspare.model.delivery import MessageCut, message_cut
from hotspare.model.project import Connector, ConnectorDirection, Window
from hotspare.model.types import Field, Schema
from hotspare.rows.batch import TEXT_FORMATS, MessageFormat
from hotspare.rows.routing import message_key

_OF_TYPE = {
    "binary": MessageFormat.ARROW,
    "csv": MessageFormat.CSV,
    "json": MessageFormat.JSON,
    "avro": MessageFormat.AVRO,
}


def inbound_format(window: Window) -> MessageFormat:
    """Returns the format of inbound messages without a format header: that of the window's publishing bus connector; CSV without
    such a connector."""
    return _format_of(window, ConnectorDirection.PUBLISH, MessageFormat.CSV)


def outbound_format(window: Window) -> MessageFormat:
    """Returns the format of the window's published outputs: that of its subscribing bus connector; Arrow blocks without such a
    connector."""
    return _format_of(window, ConnectorDirection.SUBSCRIBE, MessageFormat.ARROW)


def outbound_key(window: Window, schema: Schema) -> tuple[Field, ...]:
    """Returns the fields that are the key of each output's message; empty if the window's outputs are published in blocks."""
    connector = _bus_connector(window, ConnectorDirection.SUBSCRIBE)
    if outbound_format(window) not in TEXT_FORMATS or connector is None or message_cut(connector) is MessageCut.PER_BLOCK:
        return ()
    return message_key(schema)


def _format_of(window: Window, direction: ConnectorDirection, otherwise: MessageFormat) -> MessageFormat:
    connector = _bus_connector(window, direction)
    return otherwise if connector is None else _OF_TYPE.get(connector.get("kafkatype").strip().lower(), otherwise)


def _bus_connector(window: Window, direction: ConnectorDirection) -> Connector | None:
    """Returns the window's first connector, in this direction, for the window's topic on the project's bus; None without one."""
    return next((each for each in window.connectors if is_bus(each) and each.direction is direction), None)
