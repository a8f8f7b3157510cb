"""YAML or ESP XML to a checked project."""

__all__ = ["fingerprint", "load", "resolve"]
