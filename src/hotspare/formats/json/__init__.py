"""Decodes JSON messages to rows, and encodes rows as JSON."""

__all__ = ["cutting", "decode", "plain", "rows"]
