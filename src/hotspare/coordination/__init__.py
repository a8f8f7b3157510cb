"""Coordinates engines: epochs by compare-and-set, leases, members, and facts of groups."""

__all__ = ["contract", "memory", "open"]
