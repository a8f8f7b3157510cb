"""Operations on groups, snapshots and projects, each once as a function, for commands and programs: no options, nothing printed."""

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
