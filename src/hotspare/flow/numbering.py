"""Maps a state's output numbers to those on the topics, after an upgrade.

A state counts the outputs of each stream by itself. If a changed project continues a stream of the previous project, the topic has
a different count. The difference is the shift in a snapshot's header, or is unknown until the first engine of the project publishes
(`None`). A stream that is not named has the count of its topic.
"""

from __future__ import annotations

import json
from typing import TypeAlias

NUMBERING = "numbering"
"""Key in the header of a snapshot."""
NUMBERED_SINCE = "numbered_since"
"""Key in the header of a snapshot: the epoch of the publishing project's last change when these numbers were valid. Later changes
are in the progress of the group."""

Numbering: TypeAlias = dict[str, int | None]


def numbering_of(header: bytes) -> Numbering:
    """Reads the shift of each stream. Raises ValueError, TypeError or AttributeError if the header cannot be read."""
    return {str(name): None if shift is None else int(shift) for name, shift in json.loads(header).get(NUMBERING, {}).items()}


def numbered_since(header: bytes) -> int:
    """Reads the epoch. Raises ValueError, TypeError or AttributeError if the header cannot be read."""
    return int(json.loads(header).get(NUMBERED_SINCE, 0))
