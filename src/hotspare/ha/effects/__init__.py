"""Actions of the high-availability loop, performed."""

__all__ = ["joining", "persisting", "restoring", "shard_agreement", "upgrading"]
