"""The engine process: connects a group, a runner, connectors and liveness. It makes no decision of its own."""

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
