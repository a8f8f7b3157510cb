"""The version of windows' semantics: an engine of one version does not continue the state and the outputs of another.

A project's hash identifies the project, not how this version of hotspare evaluates it. `SEMANTICS` must rise with every change
after which the same project over the same input has other outputs or another state. A group's facts and its snapshots record the
version of the engine that began them. So an engine of another version fails with a clear error instead of publishing other outputs.
"""

from __future__ import annotations

from hotspare.base.errors import RESET_HINT, ProjectChanged

SEMANTICS = 1
_UNREADABLE = 0


def stated_semantics(fact: bytes) -> int:
    """Returns the version in a group's fact; 0, which is never a valid version, if the fact is not a decimal number."""
    return int(fact) if fact.isdigit() else _UNREADABLE


def refuse_other_semantics(found: int, subject: str) -> None:
    """Raises ProjectChanged if the version `found` is not `SEMANTICS`. `subject`: the group or snapshot with that version, for the
    message."""
    if found == SEMANTICS:
        return
    age = "an older version" if found < SEMANTICS else "a newer version"
    raise ProjectChanged(
        f"{subject} was begun by {age} of hotspare, whose windows have other semantics",
        detail=f"its semantics have version {found}, those of this hotspare {SEMANTICS}: the same input gives other outputs",
        hint=f"run {age} of hotspare, or upgrade the group with: hotspare upgrade PROJECT --bus URL; or use a new --prefix, or "
        f"{RESET_HINT}",
    )
