"""Expressions of both dialects: parsing, types, evaluation."""

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
