"""CSV to rows and back."""

__all__ = ["decode", "grammar", "lines", "quoting", "rows", "split"]
