"""The words by which the hash of a project includes its parts (`hotspare.projects.fingerprint`): they must never change."""

from __future__ import annotations

from hotspare.model.durations import format_duration
from hotspare.model.project import AcceptedOpcodes, Emission, Emit, Eviction, Expression, Initialization, Retention, Updates


def expression_meaning(expression: Expression) -> str:
    return f"{expression.text.strip()} ({expression.dialect.value})"


def initialization_meaning(initialization: Initialization) -> dict[str, str]:
    """Returns the entries for the project's hash; empty if the window has no initialization."""
    found = {f"function {f.name}": f"{expression_meaning(f.code)} as {f.type}" for f in initialization.functions}
    if initialization.code is not None:
        found["initializer"] = expression_meaning(initialization.code)
    return found


def retention_meaning(retention: Retention | None) -> str:
    if retention is None:
        return "none"
    limit = f"{retention.limit} events" if retention.kind.is_by_count else format_duration(retention.limit)
    clock = f" by {retention.time_field}" if retention.time_field else ""
    unit = f" in units of {format_duration(retention.unit_us)}" if retention.unit_us else ""
    groups = f" of each {', '.join(retention.by)}" if retention.by else ""
    order = " evicting before" if retention.eviction is Eviction.BEFORE else ""
    return f"{retention.kind.value} {limit}{clock}{unit}{groups}{order}"


def emission_meaning(emission: Emission) -> dict[str, str]:
    """Returns the entries for the project's hash; empty if the window emits all rows as it computes them."""
    found: dict[str, str] = {}
    if emission.output is AcceptedOpcodes.INSERT_ONLY:
        found["output"] = emission.output.value
    if emission.produces is AcceptedOpcodes.INSERT_ONLY:
        found["produces"] = emission.produces.value
    if emission.updates is Updates.COLLAPSED:
        found["updates"] = emission.updates.value
    if emission.pulse_us:
        found["pulse"] = format_duration(emission.pulse_us)
    if emission.emit is Emit.NEW:
        found["emit"] = emission.emit.value
    return found
