"""File connectors whose file is a socket: its address, and the properties that a socket does not support (SPEC I5, I6)."""

from __future__ import annotations

import re

from hotspare.adapters.esp.connector_options import publish_options
from hotspare.adapters.esp.property_values import FALSE
from hotspare.adapters.files.canonical import FileFormat
from hotspare.adapters.sockets.line_socket import Address, SocketSide, parse_address
from hotspare.adapters.sockets.publisher import LineOptions
from hotspare.base.errors import UsageError
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.types import Schema
from hotspare.rows.batch import MessageFormat

_HOST_PORT = re.compile(r"([A-Za-z0-9.\-]*):([0-9]{1,5})")
_FILES_ONLY: dict[ConnectorDirection, tuple[str, ...]] = {
    ConnectorDirection.PUBLISH: ("plain", "header", "growinginputfile", "rate", "maxevents", "repeatcount", "publishwithupsert"),
    ConnectorDirection.SUBSCRIBE: (
        "plain",
        "header",
        "collapse",
        "rmretdel",
        "snapshot",
        "maxfilesize",
        "periodicity",
        "dateformat",
    ),
}
_FORMATS = {FileFormat.CSV.value: MessageFormat.CSV, FileFormat.JSON.value: MessageFormat.JSON}


def connector_address(connector: Connector) -> Address | None:
    """Returns the socket address that a connector names instead of a file; None for a file.

    Forms: `tcp://HOST:PORT` and `tcp-connect://HOST:PORT`, or, as SAS writes them, `:PORT` to listen and `HOST:PORT` to connect.
    Raises UsageError for a property that a socket does not support.
    """
    name = connector.get("fsname").strip()
    match = _HOST_PORT.fullmatch(name)
    side = SocketSide.CONNECT if match is not None and match[1] else SocketSide.LISTEN
    address = parse_address(f"{side.value}://{name}" if match is not None else name)
    if address is not None:
        _check(connector)
    return address


def line_format(connector: Connector) -> MessageFormat:
    """Returns the format of a socket's lines."""
    return _FORMATS[connector.get("fstype", FileFormat.CSV.value).strip().lower() or FileFormat.CSV.value]


def line_options(connector: Connector, schema: Schema) -> LineOptions:
    return LineOptions(publish_options(connector, schema).form)


def _check(connector: Connector) -> None:
    if (connector.get("fstype", FileFormat.CSV.value).strip().lower() or FileFormat.CSV.value) not in _FORMATS:
        raise UsageError(
            f"connector {connector.name} has fstype {connector.get('fstype')}: a socket does not support it", hint="use csv or json"
        )
    for name in _FILES_ONLY[connector.direction]:
        if connector.get(name).strip().lower() not in FALSE:
            raise UsageError(
                f"property {name} of connector {connector.name} has no effect: it applies to files, and fsname is a socket",
                hint="leave it out",
            )
