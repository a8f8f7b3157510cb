"""XML to rows and back."""

__all__ = ["plain", "rows"]
