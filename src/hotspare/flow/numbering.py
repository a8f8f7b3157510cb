"""How the numbers of a state's outputs stand to those on their topics, where a project was upgraded.

A state counts the outputs of each stream by itself. Where a changed project goes on with a stream of the project before it, the
topic has another count: by the shift that the header of a snapshot says, or by one that is not known before the first engine
of the project publishes (`None`). A stream that is not named counts as its topic does.
"""

from __future__ import annotations

import json
from typing import TypeAlias

NUMBERING = "numbering"
"""In the header of a snapshot."""
NUMBERED_SINCE = "numbered_since"
"""Likewise: the epoch at which the project last changed that publishes, when these numbers were so. What changed later is to be
seen in the progress of the group."""

Numbering: TypeAlias = dict[str, int | None]


def numbering_of(header: bytes) -> Numbering:
    """ValueError, TypeError or AttributeError where it cannot be read."""
    return {str(name): None if shift is None else int(shift) for name, shift in json.loads(header).get(NUMBERING, {}).items()}


def numbered_since(header: bytes) -> int:
    """ValueError, TypeError or AttributeError where it cannot be read."""
    return int(json.loads(header).get(NUMBERED_SINCE, 0))
