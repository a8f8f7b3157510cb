"""Decodes CSV messages to rows, and encodes rows as CSV."""

__all__ = ["decode", "grammar", "rows", "split"]
