"""Runners on Spark."""

__all__ = ["arrow_map", "jars", "jre", "ordered", "partitioned", "session", "settings"]
