"""Operations on groups, snapshots and projects, as functions that print nothing. Hints in errors name options of `hotspare`."""

__all__ = [
    "assessing",
    "groups",
    "inbound",
    "orders",
    "persist",
    "quality",
    "quarantine",
    "report",
    "reset",
    "restore",
    "row_files",
    "snapshots",
    "switchover",
    "topics",
    "upgrade_steps",
    "upgrading",
    "validating",
    "watching",
    "window_rows",
]
