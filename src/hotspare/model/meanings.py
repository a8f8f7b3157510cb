"""How the hash of a project says what expressions and retention mean (`hotspare.model.fingerprint`): never to be said otherwise."""

from __future__ import annotations

from hotspare.model.durations import format_duration
from hotspare.model.project import Expression, Retention


def expression_meaning(expression: Expression) -> str:
    return f"{expression.text.strip()} ({expression.dialect.value})"


def retention_meaning(retention: Retention | None) -> str:
    if retention is None:
        return "none"
    limit = f"{retention.limit} events" if retention.kind.is_by_count else format_duration(retention.limit)
    clock = f" by {retention.time_field}" if retention.time_field else ""
    unit = f" in units of {format_duration(retention.unit_us)}" if retention.unit_us else ""
    return f"{retention.kind.value} {limit}{clock}{unit}"
