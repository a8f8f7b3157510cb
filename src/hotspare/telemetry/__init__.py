"""Writes the log, which never contains passwords."""

__all__ = ["log", "secrets"]
