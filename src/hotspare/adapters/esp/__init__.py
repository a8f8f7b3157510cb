"""Connectors as ESP XML declares them: their kinds, properties and paths."""

__all__ = ["adapter_line", "connector_mistakes", "connector_options", "connector_paths", "transport_config"]
