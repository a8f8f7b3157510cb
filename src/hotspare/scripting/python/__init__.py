"""User code in Python."""

__all__ = ["instance", "meter", "program", "row_by_row"]
