"""Loads projects from YAML or ESP XML, and checks them."""

__all__ = ["fingerprint", "load", "resolve"]
