"""Loads a project as every command does, with all checks that its expressions, connectors and operators have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from hotspare.base.errors import Mistake
from hotspare.base.places import absolute_path, display_path
from hotspare.model.project import Connector, WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import Schema
from hotspare.projects.load import Bindings, LoadedProject, home_properties, load_project
from hotspare.windows.shared.expressions import expression_mistakes


def checked_project(
    file: Path, properties: Mapping[str, str], home: Path | None = None, name: str = "", bindings: Bindings | None = None
) -> LoadedProject:
    """Returns the project as `load_project` does. @ESP_PROJECT_HOME@ is `home`, by default the file's folder, unless `properties`
    define it."""
    given = {**home_properties(file, home), **properties}
    connectors = partial(_connector_mistakes, home=absolute_path(home or file.parent))
    named = display_path(file)  # shown in the places of mistakes
    return load_project(
        named,
        given,
        name=name,
        bindings=bindings,
        expressions=expression_mistakes,
        connectors=connectors,
        operators=_operator_mistakes,
    )


def _connector_mistakes(connector: Connector, schema: Schema, home: Path) -> Sequence[Mistake]:
    from hotspare.adapters.esp.connector_mistakes import connector_mistakes  # imports all adapters

    return connector_mistakes(connector, schema, home)


def _operator_mistakes(resolved: Resolved, mistaken: Collection[WindowId]) -> Sequence[Mistake]:
    from hotspare.flow.plan import operator_mistakes  # imports all operators, which a command may not need

    return operator_mistakes(resolved, mistaken)
