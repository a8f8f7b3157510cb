"""The version of windows' semantics: an engine of one version does not continue the state and the outputs of another.

A project's hash identifies the project, not what its windows make of it. `SEMANTICS` rises with every change after which the same
project over the same input gives other outputs, or keeps another state. A group's facts and its snapshots carry the version with
which they were begun. So an engine of another version is refused with a clear error, and does not publish other outputs.
"""

from __future__ import annotations

from hotspare.base.errors import ProjectChanged

SEMANTICS = 1
_UNREADABLE = 0


def stated_semantics(fact: bytes) -> int:
    """The version that a group's fact states; 0, which no hotspare has, if the fact is not a number."""
    return int(fact) if fact.isdigit() else _UNREADABLE


def refuse_other_semantics(found: int, subject: str) -> None:
    """Raises ProjectChanged if `subject`, a group or a snapshot, was begun with a version other than `SEMANTICS`."""
    if found == SEMANTICS:
        return
    age = "an older version" if found < SEMANTICS else "a newer version"
    raise ProjectChanged(
        f"{subject} was begun by {age} of hotspare, whose windows have other semantics",
        detail=f"its semantics have version {found}, those of this hotspare {SEMANTICS}: the same input gives other outputs",
        hint=f"run {age} of hotspare, or upgrade the group with: hotspare upgrade; or use a new --prefix, or delete the group's "
        "state with: hotspare reset",
    )
