"""The fail-over of connectors with their engine: the engine that runs one, and the place at which it continues."""

__all__ = ["adapter_group", "partition_count_check", "source_position"]
