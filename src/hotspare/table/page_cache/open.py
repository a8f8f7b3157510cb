"""The page cache of a group, from the options of a command."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hotspare.table.page_cache.budget import Budget


def page_cache_for(budget: int, folder: Path | None, groups: int = 1) -> Budget | None:
    """Returns one group's even share of a budget in bytes; None if that is 0. Raises UsageError, PageFileError."""
    if not budget:
        return None
    return Budget(budget // groups, folder or Path(tempfile.gettempdir()))
