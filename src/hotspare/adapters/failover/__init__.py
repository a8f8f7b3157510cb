"""Connectors that fail over with their engine: which engine runs one, and where it continues."""

__all__ = ["adapter_group", "source_position", "topic_count"]
