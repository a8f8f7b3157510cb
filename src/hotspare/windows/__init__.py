"""Window types, a folder each; `registry` lists them."""

__all__ = ["registry", "shared"]
