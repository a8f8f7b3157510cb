"""Runners, which move input in batches to the core, with Spark or without."""

__all__ = ["contract", "local", "reading", "spark"]
