"""Stores of snapshots, which are written completely or not at all."""

__all__ = ["contract", "encryption", "memory", "open", "redis", "renamed_groups", "snapshot_choice", "writing"]
