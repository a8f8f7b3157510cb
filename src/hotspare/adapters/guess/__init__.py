"""Types of fields guessed from the values of a file."""

__all__ = ["columns", "sample"]
