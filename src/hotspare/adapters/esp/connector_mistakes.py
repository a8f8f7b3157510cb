"""The check of a project's connectors for values that their adapters would refuse at their start (SPEC I2-I6)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hotspare.adapters.esp.connector_options import FILE_KIND, file_format, file_style, publish_options, subscribe_options
from hotspare.adapters.esp.connector_paths import with_absolute_paths
from hotspare.adapters.esp.generated_options import GENERATED_KINDS, generated_mistakes
from hotspare.adapters.esp.socket_options import connector_address
from hotspare.adapters.esp.topic_options import topic_publish_options, topic_send_options
from hotspare.base.errors import Mistake, UsageError
from hotspare.base.places import absolute_path
from hotspare.model.connectors import PROPERTY_VALUES, is_external_topic
from hotspare.model.project import Connector, ConnectorDirection
from hotspare.model.types import Schema


def connector_mistakes(connector: Connector, schema: Schema, home: Path | None = None) -> tuple[Mistake, ...]:
    """Returns the errors that the connector's adapter would raise at its start, so that loading a project reports them. The
    properties of a file connector are checked one by one; of other errors only the first is returned. Relative paths begin at
    `home`, by default the folder of the project's file. Skips values with a reference to an unset project property, and unknown
    formats, which the model reports itself."""
    home = absolute_path(home or Path(connector.place.file).parent)
    if connector.kind in GENERATED_KINDS:
        return generated_mistakes(connector, schema, home)
    if is_external_topic(connector):
        return _topic_mistakes(with_absolute_paths(connector, home), schema)
    if connector.kind != FILE_KIND:
        return ()
    if connector.get("fstype", "csv").strip().lower() not in ("", *PROPERTY_VALUES["fstype"]):
        return ()
    try:
        file_format(connector)
        connector_address(connector)
    except UsageError as error:
        return (Mistake(connector.place, error.message, error.hint),)
    found = []
    for name, value in connector.properties:
        if name in PROPERTY_VALUES or "@" in value:
            continue
        alone = dataclasses.replace(connector, properties=((name, value),))
        try:
            if connector.direction is ConnectorDirection.PUBLISH:
                publish_options(alone, schema)
            else:
                subscribe_options(alone)
                file_style(alone)
        except UsageError as error:
            found.append(Mistake(connector.place, error.message, error.hint))
    return tuple(found)


def _topic_mistakes(connector: Connector, schema: Schema) -> tuple[Mistake, ...]:
    if any("@" in value for name, value in connector.properties if name != "kafkaglobalconfig"):
        return ()
    try:
        options = topic_publish_options if connector.direction is ConnectorDirection.PUBLISH else topic_send_options
        options(connector, schema, connector.name)
    except UsageError as error:
        return (Mistake(connector.place, error.message, error.hint),)
    return ()
