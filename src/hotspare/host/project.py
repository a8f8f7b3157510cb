"""Loads a project as every command does: with all the checks that anybody here has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from hotspare.adapters.esp.connector_mistakes import connector_mistakes
from hotspare.adapters.esp.connector_options import home_properties
from hotspare.engine.expressions.windows import expression_mistakes
from hotspare.model.load import Bindings, LoadedProject, load_project
from hotspare.places import absolute_path, display_path


def checked_project(
    file: Path, properties: Mapping[str, str], home: Path | None = None, name: str = "", bindings: Bindings | None = None
) -> LoadedProject:
    """As `load_project`. @ESP_PROJECT_HOME@ is `home`, by default the folder of the file, unless `properties` say otherwise."""
    given = {**home_properties(file, home), **properties}
    connectors = partial(connector_mistakes, home=absolute_path(home or file.parent))
    named = display_path(file)  # in places of mistakes, which people read
    return load_project(named, given, name=name, bindings=bindings, expressions=expression_mistakes, connectors=connectors)
