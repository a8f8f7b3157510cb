"""Performs the actions of the HA loop."""

__all__ = ["hung_calls", "joining", "persisting", "restoring", "shard_agreement", "upgrading"]
