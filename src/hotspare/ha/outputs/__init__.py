"""Holds outputs until they are committed, and builds the messages that carry them."""

__all__ = ["message", "qualities"]
