"""Maps a state's output numbers to those on the topics, after an upgrade.

A state counts the outputs of each stream by itself. If a changed project continues a stream of the previous project, the topic has
a different count. The difference, the shift, is in the snapshot's header; it is None (unknown) until the first engine of the
project publishes. A stream that the header does not name has shift 0.
"""

from __future__ import annotations

import json
from typing import TypeAlias

NUMBERING = "numbering"
"""Key in the header of a snapshot: the shift of each stream."""
NUMBERED_SINCE = "numbered_since"
"""Key in the header of a snapshot: the epoch of the publishing project's last change at which the shifts were valid. Later changes
are recorded in the group's progress."""

Numbering: TypeAlias = dict[str, int | None]


def numbering_of(header: bytes) -> Numbering:
    """Returns the shift of each stream that the header names; None: unknown. Raises ValueError, TypeError or AttributeError if the
    header cannot be read."""
    return {str(name): None if shift is None else int(shift) for name, shift in json.loads(header).get(NUMBERING, {}).items()}


def numbered_since(header: bytes) -> int:
    """Returns the epoch of `NUMBERED_SINCE`, 0 if the header has none. Raises ValueError, TypeError or AttributeError if the header
    cannot be read."""
    return int(json.loads(header).get(NUMBERED_SINCE, 0))
