"""Parses, types and evaluates the expressions of all dialects."""

__all__ = [
    "aggregates",
    "arrays",
    "checking",
    "compiled",
    "frame",
    "function_programs",
    "prelude",
    "single_values",
    "statements",
    "tree",
]
