"""Writes the values of one window in YAML; `yaml.values` reads them back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hotspare.model.durations import format_duration
from hotspare.model.project import Dialect, Expression, IndexType, Initialization, Retention

Written = dict[str, Any]


def index_name(index: IndexType) -> str:
    """Returns the name of an index type in YAML, such as `hash` for `pi_HASH`."""
    return index.value.removeprefix("pi_").lower()


@dataclass(frozen=True, slots=True)
class YamlWriter:
    """Converts values of a window to entries of a YAML document. An expression in `dialect` is written as plain text, one in
    another dialect under its dialect's name."""

    dialect: Dialect

    def expression(self, expression: Expression) -> str | Written:
        return expression.text if expression.dialect is self.dialect else {expression.dialect.value: expression.text}

    def retention(self, retention: Retention | None) -> Written:
        """Returns the entry `retention`; empty if `retention` is None."""
        if retention is None:
            return {}
        limit = retention.limit if retention.kind.is_by_count else format_duration(retention.limit)
        written: Written = {retention.kind.value: limit}
        if retention.time_field:
            written["field"] = retention.time_field
        if retention.unit_us:
            written["unit"] = format_duration(retention.unit_us)
        if retention.by:
            written["by"] = list(retention.by)
        if retention.is_by_events:
            written["evict"] = retention.eviction.value
        return {"retention": written}

    def initialization(self, initialization: Initialization) -> Written:
        """Returns the entry `initialize`; empty if there is neither code nor a function."""
        code = YamlWriter(Dialect.ESP).expression
        written: Written = {}
        if initialization.code is not None:
            written["code"] = code(initialization.code)
        if initialization.functions:
            written["functions"] = {f.name: {"type": f.type, "code": code(f.code)} for f in initialization.functions}
        return {"initialize": written} if written else {}
