"""Runners, which deliver input in batches to the engine core, with Spark or without."""

__all__ = ["contract", "local", "reading", "spark"]
