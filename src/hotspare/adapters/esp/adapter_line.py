"""Reads the option text of the file adapters that hotspare replaces, `-C name=value,name=value,...` (SPEC I7).

    type=pub,url="dfESP://HOST:PORT/project/query/window",fsname=in.csv,header=2,transport=kafka,transportconfigfile=pub.cfg

File options are those of a file connector, with the same meaning. Options that are unknown or have no effect are reported by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from hotspare.base.errors import Place, UsageError
from hotspare.model.connector_rules import check_properties, connector_from_properties
from hotspare.model.mistakes import Mistakes
from hotspare.model.project import Connector, ConnectorDirection

_SETTING = re.compile(r"""\s*([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|(.*?))\s*(?:,(?=\s*[A-Za-z_]+\s*=)|,?\s*$)""", re.DOTALL)
"""Matches a setting `name=value`. An unquoted value may hold a comma, unless a name and `=` follow it."""
_SOCKET = re.compile(r"([A-Za-z0-9_.-]*):([0-9]{1,5})")
_DIRECTIONS = {"pub": ConnectorDirection.PUBLISH, "sub": ConnectorDirection.SUBSCRIBE}
_TRANSPORTS = ("", "native", "kafka")
_ADAPTER_SETTINGS = ("type", "url", "transport", "transportconfigfile", "loglevel")
_NAME = "adapter"


@dataclass(frozen=True, slots=True)
class AdapterLine:
    """The parsed options. `connector`: a file connector with these options. `file`: a path, or a socket address
    (`line_socket.parse_address`).

    `transport_config` is "" if none is named. `notes`: a sentence for each option that has no effect or was corrected.
    """

    url: str
    file: str
    connector: Connector
    transport_config: str
    notes: tuple[str, ...]


def read_adapter_line(text: str) -> AdapterLine:
    """Parses the option text of an adapter. Raises UsageError if it is invalid, or names an unsupported direction, transport or
    value."""
    settings = _settings(text)
    direction = _DIRECTIONS.get(settings.get("type", "").lower())
    if direction is None:
        raise UsageError(f"-C has type {settings.get('type', '')!r}: not a direction", hint="write type=pub or type=sub")
    transport = settings.get("transport", "").lower()
    if transport not in _TRANSPORTS:
        raise UsageError(f"-C has transport {transport!r}: not supported", hint="write transport=kafka")
    for name in ("url", "fsname"):
        if not settings.get(name):
            raise UsageError(f"-C has no {name}", hint=_HINTS[name])
    if not settings["url"].startswith("dfESP://"):
        raise UsageError(f"-C has url {settings['url']!r}: not a dfESP:// URL", hint=_HINTS["url"])
    url, _, query = settings["url"].partition("?")
    given = {**dict(parse_qsl(query, keep_blank_values=True)), **{n: v for n, v in settings.items() if n not in _ADAPTER_SETTINGS}}
    found, place = Mistakes(), Place("-C")
    connector = connector_from_properties(_NAME, "fs", direction, given, place, found)
    check_properties(connector, found)
    if found:
        raise UsageError("-C has invalid options", detail="\n".join(str(mistake) for mistake in found.mistakes))
    notes = tuple(str(warning) for warning in found.warnings)
    return AdapterLine(url, _file(settings["fsname"]), connector, settings.get("transportconfigfile", ""), notes)


_HINTS = {
    "url": "name the window: write url=dfESP://HOST:PORT/project/query/window",
    "fsname": "write fsname=FILE, or fsname=:PORT or fsname=HOST:PORT for a socket",
}


def _settings(text: str) -> dict[str, str]:
    settings: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        match = _SETTING.match(text, at)
        if match is None or match.end() == at:
            raise UsageError(f"-C cannot be parsed from {text[at:].strip()[:40]!r} on", hint="write name=value,name=value")
        name, value = match.group(1).lower(), next((v for v in match.groups()[1:] if v is not None), "")
        if name in settings:
            raise UsageError(f"-C has {name} twice", hint="leave one out")
        settings[name] = value
        at = match.end()
    return settings


def _file(fsname: str) -> str:
    """Returns a file name unchanged, and a socket as an address: without a host the adapter listens, with one it connects."""
    socket = _SOCKET.fullmatch(fsname)
    if socket is None:
        return fsname
    return f"tcp-connect://{fsname}" if socket.group(1) else f"tcp://{fsname}"
