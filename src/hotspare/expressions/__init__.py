"""Expressions of both dialects: parsing, types, evaluation."""

__all__ = [
    "aggregates",
    "arrays",
    "checking",
    "compiled",
    "frame",
    "number_steps",
    "prelude",
    "programs",
    "single_values",
    "statements",
    "stepwise",
    "tree",
]
