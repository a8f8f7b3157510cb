"""Expressions of both dialects: parsing, types, evaluation."""

__all__ = ["aggregates", "arrays", "checking", "compiled", "frame", "prelude", "programs", "single_values", "statements", "tree"]
