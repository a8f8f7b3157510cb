"""Snapshots in Redis."""

__all__ = ["server"]
