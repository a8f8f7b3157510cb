"""The page cache of a group, from the options of a command."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hotspare.table.page_cache.budget import Budget


def page_cache_for(budget: int, folder: Path | None, groups: int = 1) -> Budget | None:
    """Returns the page cache of one group, with an even share of `budget` bytes for `groups` groups; None if `budget` is 0. Its
    page files are in `folder`, or in the system's temporary folder. Raises UsageError or PageFileError if that folder is
    unsuitable."""
    if not budget:
        return None
    return Budget(budget // groups, folder or Path(tempfile.gettempdir()))
