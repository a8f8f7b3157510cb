"""Snapshots, stored whole or not at all."""

__all__ = ["choosing", "contract", "encryption", "memory", "open", "placed", "redis", "writing"]
