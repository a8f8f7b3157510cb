"""The commands of `hotspare`."""

__all__ = ["main"]
