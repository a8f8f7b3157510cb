"""Snapshots in object storage."""
