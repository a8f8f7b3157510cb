"""Writes the log, which never contains passwords, and the text of metrics."""

__all__ = ["log", "metrics", "secrets"]
