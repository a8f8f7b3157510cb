"""Decisions about roles, snapshots and publishing, without clock, thread or input."""

__all__ = ["cold", "facts", "joining", "makers", "membership", "requests", "roles", "settings", "upgrading"]
