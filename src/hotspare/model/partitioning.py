"""The fields by which a project's windows may be partitioned, found by following values through windows. Pure.

The engine processes each partition of the inbound topics by itself, so a window may only do what one partition determines. The
value of a source's field is carried through windows that pass or rename it, and ends at a window that computes something from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hotspare.base.errors import Mistake, ProjectError
from hotspare.model.project import WindowId
from hotspare.model.resolved import Resolved
from hotspare.model.types import FieldType, Schema
from hotspare.model.window_type import type_of

KEY_TYPES = frozenset({FieldType.INT32, FieldType.INT64, FieldType.STRING, FieldType.DATE, FieldType.STAMP})
"""The types of fields by which a project may be partitioned: equal values have one text, which every client can write."""
_HINT = "run the project unpartitioned, or do this in a second project whose source is this one's output"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a project cannot be partitioned by the chosen fields: what `window` does, and what to do instead."""

    window: WindowId
    reason: str
    hint: str = _HINT

    @property
    def sentence(self) -> str:
        return f"window {self.window} cannot be partitioned: {self.reason}"

    def __str__(self) -> str:
        return f"{self.sentence} (hint: {self.hint})"


def partition_fields(resolved: Resolved) -> dict[WindowId, str]:
    """Returns the field that partitions each source window: the project's choice, else the key if it is one field, else ""."""
    fields: dict[WindowId, str] = {}
    for source in resolved.sources:
        window, schema = resolved.window(source).window, resolved.schema(source)
        keys = [schema.names[i] for i in schema.key_indexes]
        fields[source] = type_of(window).partition_by(window) or (keys[0] if len(keys) == 1 else "")
    return fields


def refused_shards(resolved: Resolved, count: int) -> ProjectError | None:
    """Returns the error of a project that cannot run in `count` shards, with every window that prevents it; None if it can."""
    found = obstacles(resolved, partition_fields(resolved)) if count > 1 else ()
    mistakes = [Mistake(resolved.window(each.window).window.place, each.sentence, each.hint) for each in found]
    return ProjectError(resolved.project.name, mistakes) if mistakes else None


def carried_keys(resolved: Resolved, partition_by: Mapping[WindowId, str]) -> dict[WindowId, frozenset[str]]:
    """Returns, for each window, the fields that hold the value by which its source is partitioned. `partition_by`: the partitioning
    field of each source window.
    """
    keys, _ = _followed(resolved, partition_by)
    return keys


def obstacles(resolved: Resolved, partition_by: Mapping[WindowId, str]) -> tuple[Obstacle, ...]:
    """Returns every window that prevents partitioning, in order of evaluation; nothing if the project may be partitioned."""
    _, found = _followed(resolved, partition_by)
    return tuple(found)


def _followed(resolved: Resolved, partition_by: Mapping[WindowId, str]) -> tuple[dict[WindowId, frozenset[str]], list[Obstacle]]:
    keys: dict[WindowId, frozenset[str]] = {}
    found: list[Obstacle] = []
    told: set[WindowId] = set()  # windows already reported, and the windows downstream of them
    for window in resolved.windows:
        given = resolved.window_inputs(window)
        held = [keys[source] for source, _ in window.inputs]
        reason = hint = ""
        if not window.inputs:
            field = partition_by.get(window.id, "")
            reason, hint = _unfit_reason(field, window.schema), _choices(window.schema)
            held = [frozenset({field} & set(window.schema.names))]
        carried = type_of(window.window).carried_fields(window.window, given, held)
        keys[window.id] = carried.fields & set(_candidates(window.schema))
        if not reason:
            reason, hint = carried.refusal, carried.hint
        if told.intersection(source for source, _ in window.inputs):
            told.add(window.id)
        elif reason:
            told.add(window.id)
            found.append(Obstacle(window.id, reason, hint or _HINT))
    return keys, found


def _unfit_reason(field: str, schema: Schema) -> str:
    """Returns why a source cannot be partitioned by the field; "" if it can."""
    if field not in schema.index:
        return f"it has no field {field!r}" if field else "no field is named"
    if (type_ := schema.fields[schema.index[field]].type) not in KEY_TYPES:
        return f"its field {field} is a {type_.value}, of which equal values may have different texts"
    return ""


def _choices(schema: Schema) -> str:
    names = _candidates(schema)
    return (
        f"write `partition_by:` with one of {', '.join(names)}"
        if names
        else "give it a field of integers or text to partition it by"
    )


def _candidates(schema: Schema) -> list[str]:
    """Returns the fields whose type may hold a partitioning value. A double may not: several large integers become one double."""
    return [each.name for each in schema.fields if each.type in KEY_TYPES]
