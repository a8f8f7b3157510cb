"""Snapshots in a compacted topic of Kafka."""
