"""Window types: each has a folder of its name, and `registry` lists them all."""

__all__ = ["registry", "shared"]
