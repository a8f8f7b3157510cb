"""Performs the actions of the HA loop."""

__all__ = ["joining", "persisting", "restoring", "shard_agreement", "upgrading"]
