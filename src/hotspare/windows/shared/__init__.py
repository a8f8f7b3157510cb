"""Code that several window types share."""

__all__ = ["contract", "expressions", "keyed", "merging", "new_rows", "rowwise", "stateless"]
