"""What the windows behind a window say of it where its own entries leave something out: whether a source is a stream or a table,
and in which order a retention evicts. They are not read yet, so this looks at their types, their indexes and what they emit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotspare.model.frontends.yaml.tree import Entries, Node, Text
from hotspare.model.project import Edge, Emit
from hotspare.model.window_type import WindowType
from hotspare.windows.registry import WINDOW_TYPES


@dataclass(frozen=True, slots=True)
class Surroundings:
    """`streams`: names of windows behind which others stand, none of which keeps or relates rows. `alerting`: names of windows
    behind which, at any distance, one has `emit: new`."""

    streams: frozenset[str]
    alerting: frozenset[str]


def surroundings(windows: Mapping[str, Node], edges: Sequence[Edge]) -> Surroundings:
    """`windows`: the entries of a query by name, as written, with whatever mistakes; an edge may name windows that do not exist."""
    needing: set[str] = set()
    alerting: set[str] = set()
    changed = True
    while changed:
        needing_now = {edge.source for edge in edges if edge.target in needing or _keeps_rows(windows.get(edge.target), edge.role)}
        alerting_now = {edge.source for edge in edges if edge.target in alerting or _emits_new(windows.get(edge.target))}
        changed = needing_now != needing or alerting_now != alerting
        needing, alerting = needing_now, alerting_now
    return Surroundings(frozenset(edge.source for edge in edges) - needing, frozenset(alerting))


def _keeps_rows(window: Node | None, role: str) -> bool:
    """Whether a window relates the rows of its input as they are now, or keeps them in an index, so that they may be updated."""
    window_type = _type_of(window)
    if window_type is None or role in window_type.related_roles:
        return True
    return window_type.keeps_input and _text(window, "index") not in ("empty", "pi_EMPTY")


def _emits_new(window: Node | None) -> bool:
    return _text(window, "emit") == Emit.NEW.value


def _type_of(window: Node | None) -> WindowType[Any] | None:
    return WINDOW_TYPES.get(_text(window, "type"))


def _text(window: Node | None, key: str) -> str:
    value = window.values.get(key) if isinstance(window, Entries) else None
    return value.value.strip() if isinstance(value, Text) else ""
