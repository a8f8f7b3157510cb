"""Snapshots in Redis."""
