"""The engine process: puts a group, a runner, connectors and liveness together. Decides nothing itself."""

__all__ = [
    "careful_core",
    "options",
    "orders",
    "partitioned",
    "process",
    "project",
    "restoring",
    "starting",
    "topic_checks",
    "topics",
]
