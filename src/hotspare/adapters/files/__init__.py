"""Files as sources and destinations of events."""

__all__ = ["canonical", "output_file", "output_rows", "publisher", "row_file", "row_routing", "source_bytes", "subscriber"]
