"""Runs user code in Python, guarded so that every engine computes the same values."""

__all__ = ["column_guards", "instance", "meter", "program"]
