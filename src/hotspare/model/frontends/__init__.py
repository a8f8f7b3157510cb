"""Texts of projects, read into trees with places."""

__all__ = ["esp_xml", "properties", "values", "yaml"]
