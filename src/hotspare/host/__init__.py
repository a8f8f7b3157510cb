"""The engine process: connects a group, a runner, connectors and liveness. It decides nothing itself."""

__all__ = [
    "options",
    "orders",
    "partitioned",
    "process",
    "project",
    "recovering_core",
    "restoring",
    "starting",
    "topic_checks",
    "topics",
    "watchdog",
]
