"""Operations on groups, snapshots and projects, each once as a function that prints nothing. Hints name options of `hotspare`."""

__all__ = [
    "assessing",
    "groups",
    "inbound",
    "orders",
    "persist",
    "report",
    "reset",
    "row_files",
    "snapshots",
    "switchover",
    "upgrade_steps",
    "upgrading",
    "watching",
]
