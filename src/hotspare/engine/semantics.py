"""Which version of what windows mean this is: state and outputs of one version are not gone on with by another.

The hash of a project says what the project is, not what its windows make of it. Where the same project over the same input gives
other outputs, or keeps another state, than before, `SEMANTICS` rises: a group and its snapshots name the version that they were
begun with, and an engine of another one is refused by name, instead of finding damaged pages, or going on otherwise than the group.
"""

from __future__ import annotations

from hotspare.errors import ProjectChanged

SEMANTICS = 8
"""1: before versions were told. 2: `index` means the same in every window type, deletes carry what was put out.
3: a bad event out of a JSON array is shown as it came.
4: Avro and Arrow messages with more in them than they count are bad events. 5: Summary with a length adds up block by block.
6: blanks around a field of CSV are no part of a text either.
7: an aggregate keeps the values of a small group in the row of the group; what comes out is the same. A computed text of more than
16 MiB is a bad event in windows that keep variables, too.
8: code of a window that returns false makes no event; it was a bad event."""
BEFORE_VERSIONS = 1
READ_SINCE = 3
"""The oldest version whose snapshots are gone on with: what they keep means the same, what comes of later input may not."""


def refuse_other_semantics(found: int, subject: str, since: int = SEMANTICS) -> None:
    """ProjectChanged where `subject`, a group or a snapshot, was begun with other semantics than these: newer, or older than
    `since`."""
    if since <= found <= SEMANTICS:
        return
    age = "an older" if found < SEMANTICS else "a newer"
    raise ProjectChanged(
        f"{subject} was begun by {age} hotspare, whose windows mean something else",
        detail=f"its version of semantics is {found}, that of this hotspare is {SEMANTICS}: the same input gives other outputs",
        hint=f"go on with {age} hotspare, use a new --prefix, or forget the group's state with: hotspare reset",
    )
