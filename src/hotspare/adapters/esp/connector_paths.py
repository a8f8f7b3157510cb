"""Paths in the properties of connectors: relative ones begin at the project's folder, wherever the connector runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hotspare.adapters.esp.client_options import absolute_options
from hotspare.adapters.esp.connector_options import FILE_KIND, connector_file
from hotspare.adapters.esp.socket_options import connector_address
from hotspare.base.places import absolute_path_or_url
from hotspare.model.connector_groups import connector_path
from hotspare.model.connectors import is_external_topic
from hotspare.model.project import Connector
from hotspare.model.resolved import Resolved
from hotspare.projects.load import Bindings

_CLIENT_OPTIONS = ("kafkaglobalconfig", "kafkatopicconfig")
_SCHEMAS = "avroschemaregistryurl"


def with_absolute_paths(connector: Connector, home: Path) -> Connector:
    """Returns the connector with absolute paths. Raises UsageError as `connector_file` and `connector_address` do."""
    return replace(connector, properties=tuple({**dict(connector.properties), **_absolute(connector, home)}.items()))


def absolute_bindings(resolved: Resolved, home: Path, given: Bindings) -> Bindings:
    """Returns `given` (`connector_rules.rebind`), overlaid with the connectors' absolute paths. So an engine whose project is a
    copy in another folder uses the same files. Raises UsageError as `with_absolute_paths` does."""
    found = dict(given)
    for window in resolved.windows:
        for connector in window.window.connectors:
            path = connector_path(window.id, connector)
            if paths := _absolute(connector, home):
                found[path] = {**found.get(path, {}), **paths}
    return found


def _absolute(connector: Connector, home: Path) -> dict[str, str]:
    """Returns the properties that hold paths, made absolute."""
    if connector.kind == FILE_KIND and connector_address(connector) is None:
        return {"fsname": str(connector_file(connector, home))}
    if not is_external_topic(connector):
        return {}
    found = {name: connector.get(name) for name in (*_CLIENT_OPTIONS, _SCHEMAS) if connector.get(name).strip()}
    for name in _CLIENT_OPTIONS:
        if name in found:
            found[name] = absolute_options(found[name], home)
    if _SCHEMAS in found:
        found[_SCHEMAS] = absolute_path_or_url(found[_SCHEMAS].strip(), home)
    return found
