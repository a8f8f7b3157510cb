"""The engine process: puts a group, a runner, connectors and liveness together. Decides nothing itself."""

__all__ = [
    "assessing",
    "careful_core",
    "definition",
    "looking",
    "options",
    "orders",
    "partitioned",
    "process",
    "project",
    "restoring",
    "retention",
    "starting",
    "two_projects",
    "upgrading",
    "watching",
]
