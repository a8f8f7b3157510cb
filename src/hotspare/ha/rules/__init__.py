"""Decides about roles, snapshots and publishing, without clock, thread or input."""

__all__ = [
    "cold_spare",
    "facts",
    "hung_calls",
    "joining",
    "membership",
    "project_changes",
    "requests",
    "roles",
    "settings",
    "upgrading",
]
