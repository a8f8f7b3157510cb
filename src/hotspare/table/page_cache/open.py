"""The residence of a group from what people said."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hotspare.table.page_cache.budget import Budget


def residence_for(budget: int, folder: Path | None, groups: int = 1) -> Budget | None:
    """Of one of so many groups, which share a budget evenly; None where there is no budget. UsageError, PageFileError."""
    if not budget:
        return None
    return Budget(budget // groups, folder or Path(tempfile.gettempdir()))
