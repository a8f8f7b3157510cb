"""Converts XML events to JSON, and encodes rows as XML."""

__all__ = ["plain", "rows"]
