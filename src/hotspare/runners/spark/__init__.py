"""Runners on Spark."""

__all__ = ["jars", "jre", "ordered", "partitioned", "private", "session", "settings"]
