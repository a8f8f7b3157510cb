"""Custom window (SPEC A36, A38): a Lua or Python window whose code has its own names for fields, settings, and heartbeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.code import Arguments, Language
from hotspare.model.project import NOWHERE
from hotspare.model.resolved import ResolvedWindow
from hotspare.model.types import FieldType, Schema
from hotspare.rows.batch import ARROW_TYPE
from hotspare.scripting.contract import CodeFailure, OutputEvents, Program, ProgramText
from hotspare.scripting.languages import compile_user_code
from hotspare.windows.custom.declaration import HEARTBEAT, CustomWindow
from hotspare.windows.shared.code_operator import CodeEvents, CodeWindowOperator
from hotspare.windows.shared.contract import Clock, OperatorInput

CONFIG = "_espconfig_"
"""The variable in which the code declares its calling conventions and the fields that it needs."""


class CustomOperator(CodeWindowOperator):
    def __init__(self, window: ResolvedWindow, inputs: Sequence[OperatorInput]) -> None:
        self._window = cast(CustomWindow, window.window)
        super().__init__(window, inputs)
        config = _config(str(self.id), self._program)
        refused = list(_refused(self._window, config, self._given[0].code_events.schema, self.schema))
        if refused:
            raise ProjectError(str(self.id), [Mistake(self._window.script.code.place, *each) for each in refused])
        if _is_on(config, "expand_parms"):
            script = replace(self._window.script, arguments=Arguments.FIELDS)
            self._program = compile_user_code(replace(self._text(window), script=script))
        if self._program.has_function(HEARTBEAT):
            self._heartbeat, self.clock = HEARTBEAT, Clock.TICKS

    def _text(self, window: ResolvedWindow) -> ProgramText:
        return replace(super()._text(window), settings=dict(self._window.settings))

    def _visible_events(self, source: OperatorInput) -> CodeEvents:
        if not self._window.inputs:
            return super()._visible_events(source)
        given = source.schema
        fields = [(replace(given.fields[given.index[field]], name=name), given.index[field]) for name, field in self._window.inputs]
        return CodeEvents(self.id, source.name, Schema(tuple(each for each, _ in fields)), [place for _, place in fields])

    def _made_event_schema(self) -> Schema:
        return Schema(tuple(replace(self.schema.fields[place], name=name) for name, place in self._sources()))

    def _output_columns(self, made: OutputEvents) -> Sequence[pa.Array]:
        """Returns one column per field of the window: the first value that is not null among the names that map to the field."""
        found: dict[int, pa.Array] = {}
        for (_, place), column in zip(self._sources(), made.columns, strict=True):
            found[place] = pc.coalesce(found[place], column) if place in found else column
        return [found.get(place, pa.nulls(len(made.row), ARROW_TYPE[field.type])) for place, field in enumerate(self.schema.fields)]

    def _sources(self) -> list[tuple[str, int]]:
        """Returns (name in the events that the code makes, place of the field): mapped names first, then the fields whose own names
        are not mapped.
        """
        index, mapped = self.schema.index, dict(self._window.outputs)
        own = [(name, place) for name, place in index.items() if name not in mapped]
        return [(name, index[field]) for name, field in mapped.items()] + own


def _config(label: str, program: Program) -> Mapping[str, Any]:
    """Returns the value of the code's variable CONFIG; empty if it is absent or not a table. Raises ProjectError if it cannot be
    read.
    """
    try:
        found = program.open().variable(CONFIG)
    except CodeFailure as failure:
        message = f"the variable {CONFIG} of {label} cannot be read: {failure.text}"
        raise ProjectError(label, [Mistake(NOWHERE, message, "write a table of plain values")]) from failure
    return found if isinstance(found, dict) else {}


def _refused(window: CustomWindow, config: Mapping[str, Any], given: Schema, made: Schema) -> Iterator[tuple[str, str]]:
    """Yields message and hint for each requirement in `config` that is not supported, or that the project does not meet."""
    if _is_on(config, "process_blocks"):
        message = f"the code of window {window.name} requests blocks of events, but the input does not define blocks"
        yield message, "let its function take one event"
    if _is_on(config, "expand_parms") and window.script.language is not Language.PYTHON:
        message = f"the code of window {window.name} requests fields by name, which {window.script.language.value} does not support"
        yield message, "let its function take the event, and read the fields from it"
    if _is_on(config, "encode_binary") and any(each.type is FieldType.BLOB for each in (*given.fields, *made.fields)):
        yield f"the code of window {window.name} requests blobs in base64, but gets their bytes", "leave encode_binary out"
    variables = _table(config, "inputVariables").get("fields")
    for each in variables if isinstance(variables, list) else ():
        name = each.get("name") if isinstance(each, dict) else None
        if isinstance(name, str) and each.get("optional") is False and name not in given.index:
            yield f"window {window.name} maps no field to {name}, which its code needs", "name the field under inputs (<input-map>)"


def _is_on(config: Mapping[str, Any], setting: str) -> bool:
    return bool(_table(config, "settings").get(setting))


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}
