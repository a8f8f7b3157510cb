"""User code in Python."""

__all__ = ["column_guards", "instance", "meter", "program"]
