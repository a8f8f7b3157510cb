"""YAML, read into trees with places."""

__all__ = ["text", "tree", "values", "yaml_writer"]
