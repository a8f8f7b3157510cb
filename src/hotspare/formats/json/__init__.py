"""JSON to rows and back."""

__all__ = ["cutting", "decode", "plain", "rows"]
