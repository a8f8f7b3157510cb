"""The fail-over of connectors with their engine: which engine runs a connector, and from which position it continues."""

__all__ = ["adapter_group", "partition_count_check", "source_position"]
