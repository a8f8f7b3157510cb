"""Engines that run as tasks of a Spark application."""

__all__ = ["application", "role_sharing"]
